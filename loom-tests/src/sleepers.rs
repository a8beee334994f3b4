//! Those asleep on a word: the kernel's side of waiting and waking.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;

use limitset::core::Waited;
use loom::sync::atomic::AtomicU32;
use loom::sync::{Condvar, Mutex};
use loom::thread::yield_now;

use crate::sweep::ROLES;

/// Who sleeps on a word. The mutex stands for the kernel's: it compares the word and enqueues in one step.
pub(crate) struct Sleepers {
    queue: Mutex<Queue>,
    beds: Vec<Condvar>,
}

#[derive(Default)]
struct Queue {
    asleep: VecDeque<u32>,
    /// How much there is to know about deaths and enrolments, and how much of it each role has been told.
    news: u32,
    told: [u32; ROLES],
    /// Whoever sleeps is being killed.
    killed: bool,
}

impl Queue {
    /// Whether a role has yet to hear something; tells it.
    fn has_news_for(&mut self, role: u32) -> bool {
        std::mem::replace(&mut self.told[role as usize], self.news) != self.news
    }

    /// Takes a role out; false if somebody has woken it before.
    fn leave(&mut self, role: u32) -> bool {
        let before = self.asleep.len();
        self.asleep.retain(|sleeper| *sleeper != role);
        self.asleep.len() < before
    }
}

impl Sleepers {
    pub(crate) fn new() -> Self {
        let beds = (0..ROLES).map(|_| Condvar::new()).collect();
        Self { queue: Mutex::new(Queue::default()), beds }
    }

    /// Sleeps while the word is `seen`, until woken, until there are news or until time is up. None: killed.
    pub(crate) fn sleep(
        &self,
        role: u32,
        word: &AtomicU32,
        seen: u32,
        is_late: impl Fn() -> bool,
    ) -> Option<Waited> {
        let mut queue = self.queue.lock().unwrap();
        if word.load(Relaxed) != seen {
            return Some(Waited::Woken);
        }
        queue.asleep.push_back(role);
        while queue.asleep.contains(&role) {
            if queue.killed {
                queue.leave(role);
                return None;
            }
            if queue.has_news_for(role) || is_late() {
                queue.leave(role);
                return Some(Waited::SliceOver);
            }
            queue = self.beds[role as usize].wait(queue).unwrap();
        }
        Some(Waited::Woken)
    }

    /// Sleeps while the word is `seen`, until woken or until time is up, whichever comes first.
    pub(crate) fn doze(&self, role: u32, word: &AtomicU32, seen: u32) -> Waited {
        let mut queue = self.queue.lock().unwrap();
        if word.load(Relaxed) != seen {
            return Waited::Woken;
        }
        queue.asleep.push_back(role);
        drop(queue);
        yield_now();
        let mut queue = self.queue.lock().unwrap();
        if queue.leave(role) { Waited::SliceOver } else { Waited::Woken }
    }

    /// Wakes the first; false if there is none.
    pub(crate) fn wake_one(&self) -> bool {
        let mut queue = self.queue.lock().unwrap();
        let Some(role) = queue.asleep.pop_front() else { return false };
        self.beds[role as usize].notify_one();
        true
    }

    pub(crate) fn wake_all(&self) {
        let mut queue = self.queue.lock().unwrap();
        while let Some(role) = queue.asleep.pop_front() {
            self.beds[role as usize].notify_one();
        }
    }

    /// Ends everybody's slice.
    pub(crate) fn tell(&self) {
        let mut queue = self.queue.lock().unwrap();
        queue.news += 1;
        queue.killed = false;
        self.rouse(&queue);
    }

    /// Lets everybody look at the clock.
    pub(crate) fn strike(&self) {
        self.rouse(&self.queue.lock().unwrap());
    }

    /// Ends everybody's life.
    pub(crate) fn kill(&self) {
        let mut queue = self.queue.lock().unwrap();
        queue.killed = true;
        self.rouse(&queue);
    }

    fn rouse(&self, queue: &Queue) {
        for role in &queue.asleep {
            self.beds[*role as usize].notify_one();
        }
    }
}
