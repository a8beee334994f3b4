//! Work that must not be lost, and that its caller cannot wait for: returning permits behind a stuck lock.
//!
//! One thread per process does all of it. It starts when work is left to it, and ends when none is left. Work waits in one
//! line per lock, first come, first served. The thread goes from line to line and waits a slice at each lock that is still
//! stuck, so a lock that stays stuck delays the others by a slice and never blocks them. A forked child has a queue and a
//! thread of its own; work that its parent left stays the parent's.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::answer::{Trouble, Unavailable};
use crate::set::LimitSet;
use crate::sys::fork::PerProcess;
use crate::sys::{clock, thread};

/// How long a destructor waits for a lock before the background thread waits in its place.
pub(crate) const DROP_PATIENCE: Duration = Duration::from_millis(200);
/// How long the background thread waits at one stuck lock before it tries the next.
const SLICE: Duration = Duration::from_millis(20);

/// Tries something with this patience, in nanoseconds, and returns whether it is over: false if the lock was busy.
type Work = Box<dyn FnMut(u64) -> bool + Send>;

/// What waits for one lock.
struct Line {
    lock: usize,
    work: VecDeque<Work>,
}

#[derive(Default)]
struct Queue {
    lines: VecDeque<Line>,
    is_running: bool,
}

static QUEUE: PerProcess<Mutex<Queue>> = PerProcess::new();

fn lock(queue: &Mutex<Queue>) -> MutexGuard<'_, Queue> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Leaves `work` to the background thread, which repeats it until it is over. `lock` tells locks apart: the address of
/// something that all users of one lock share.
///
/// If no thread can be started, the work waits until one can, at the next call, or until this process ends and a survivor
/// cleans up after it.
pub(crate) fn run(lock_address: usize, work: impl FnMut(u64) -> bool + Send + 'static) {
    let queue = QUEUE.get(Mutex::default);
    let mut state = lock(queue);
    state.push(lock_address, VecDeque::from([Box::new(work) as Work]));
    if !state.is_running {
        state.is_running = thread::start(c"limitset-return", move || serve(queue)).is_ok();
    }
}

impl Queue {
    /// Appends work to the line of its lock.
    fn push(&mut self, lock: usize, mut work: VecDeque<Work>) {
        match self.lines.iter_mut().find(|line| line.lock == lock) {
            Some(line) => line.work.append(&mut work),
            None => self.lines.push_back(Line { lock, work }),
        }
    }

    /// Puts work that could not be done back: before work that has come since, behind all other locks.
    fn put_back(&mut self, lock: usize, mut work: VecDeque<Work>) {
        if let Some(place) = self.lines.iter().position(|line| line.lock == lock)
            && let Some(mut since) = self.lines.remove(place)
        {
            work.append(&mut since.work);
        }
        self.lines.push_back(Line { lock, work });
    }
}

fn serve(queue: &Mutex<Queue>) {
    loop {
        let mut state = lock(queue);
        let Some(Line { lock: address, mut work }) = state.lines.pop_front() else {
            state.is_running = false;
            return;
        };
        drop(state);
        while let Some(mut first) = work.pop_front() {
            // A panic ends this piece of work; the others are not lost with it.
            let is_over = catch_unwind(AssertUnwindSafe(|| first(clock::nanos(SLICE)))).unwrap_or(true);
            if !is_over {
                work.push_front(first);
                lock(queue).put_back(address, work);
                break;
            }
        }
    }
}

impl LimitSet {
    /// Does something with the patience given to it. If a process was stopped while holding the lock, the background
    /// thread does it later.
    pub(crate) fn or_in_background_within<T: 'static>(
        &self,
        patience: u64,
        work: impl Fn(&Self, u64) -> Result<T, Trouble> + Send + 'static,
    ) -> Result<T, Trouble> {
        let done = work(self, patience);
        if is_busy(&done) {
            self.in_background(work);
        }
        done
    }

    /// The same with the usual patience.
    pub(crate) fn or_in_background<T: 'static>(
        &self,
        work: impl Fn(&Self, u64) -> Result<T, Trouble> + Send + 'static,
    ) -> Result<T, Trouble> {
        self.or_in_background_within(self.segment().patience(), work)
    }

    /// Leaves something to the background thread, until the lock is not busy.
    pub(crate) fn in_background<T>(&self, work: impl Fn(&Self, u64) -> Result<T, Trouble> + Send + 'static) {
        let set = self.clone();
        let lock = std::ptr::from_ref(set.engine().block.lock).addr();
        run(lock, move |patience| !is_busy(&work(&set, patience)));
    }
}

fn is_busy<T>(done: &Result<T, Trouble>) -> bool {
    matches!(done, Err(Trouble::Unavailable(Unavailable::Busy { .. })))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn over() -> VecDeque<Work> {
        VecDeque::from([Box::new(|_| true) as Work])
    }

    #[test]
    fn work_that_was_put_back_goes_before_later_work_of_its_lock_and_behind_other_locks() {
        let mut queue = Queue::default();
        queue.push(1, over());
        queue.push(2, over());
        let Line { lock, work } = queue.lines.pop_front().unwrap();
        queue.push(1, over());
        queue.push(1, over());
        queue.put_back(lock, work);
        let lines: Vec<_> = queue.lines.iter().map(|line| (line.lock, line.work.len())).collect();
        assert_eq!(lines, [(2, 1), (1, 3)]);
    }

    #[test]
    fn a_panic_and_a_stuck_lock_hold_up_no_other_work() {
        let (tell, told) = std::sync::mpsc::channel();
        let (also, free) = (tell.clone(), std::sync::Arc::new(Mutex::new(false)));
        let is_free = free.clone();
        run(usize::MAX, move |_| {
            let is_free = *is_free.lock().unwrap();
            if is_free {
                also.send("stuck").unwrap();
            }
            is_free
        });
        run(usize::MAX - 1, |_| std::panic::resume_unwind(Box::new("as the test wants it")));
        run(usize::MAX - 1, move |_| tell.send("other").is_ok());
        assert_eq!(told.recv().unwrap(), "other");
        *free.lock().unwrap() = true;
        assert_eq!(told.recv().unwrap(), "stuck");
    }
}
