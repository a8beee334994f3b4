//! How long after a release does a blocked waiter run? Two processes hand one permit to each other, beside the least that
//! Linux can do: a bare futex ping-pong.
//!
//! Both wait all the time but for their own turn, so every release wakes the other. Nanoseconds are per hand-over. On
//! one processor that is a switch of processes; on two, an idle processor is woken, which a virtual machine makes
//! slow and irregular. Claims use the first.

use std::rc::Rc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Duration;

use limitset::Clock;

use crate::batches::{Plan, Row, Whose};
use crate::crew::{self, Crew, Job};
use crate::ours::{self, TempSet};
use crate::results::{Bench, Group};
use crate::rivals::{posix::Posix, sysv::Sysv};
use crate::sys::{self, Shared};

const QUESTION: &str = "How long after a release does a blocked waiter run, against a bare futex ping-pong?";

/// Nobody waits that long, unless something is broken.
const PATIENCE: Duration = Duration::from_secs(2);

pub fn run(plan: Plan) -> Bench {
    let cpus = sys::cpus();
    let one = [cpus[0], cpus[0]];
    let mut groups = vec![group("same", "Both processes on one CPU", one)];
    if let &[first, second, ..] = cpus.as_slice() {
        groups.push(group("two", "Each process on a CPU of its own", [first, second]));
    }
    Bench::measure("handover", QUESTION, groups, plan, None)
}

fn group(kind: &str, title: &str, cpus: [usize; 2]) -> Group<Row> {
    let key = |name: &str| format!("{kind}/{name}");
    let temp = TempSet::new(vec![ours::permit("turn", 1)], Clock::Monotonic);
    let turns: Rc<Shared<AtomicU32>> = Rc::new(Shared::zeroed());
    let (word, posix) = (Rc::new(Shared::<AtomicU32>::zeroed()), Rc::new(Posix::new(0)));
    let start = |job: &dyn Fn(usize) -> Job| Crew::start(&cpus, job);
    let rows = vec![
        Row::timed(key("futex"), Whose::Theirs, "futex ping-pong", {
            let crew = start(&|index| by_futex(Rc::clone(&word), index));
            crew::measure(crew, move |begins| {
                if begins {
                    word.store(0, Relaxed)
                }
            })
        })
        .note("one store, one wake, one wait"),
        Row::timed(key("ours"), Whose::Ours, "limitset, `release` to blocked `acquire`", {
            let crew = start(&|index| by_permit(&temp, Rc::clone(&turns), index));
            crew::measure(crew, move |_| _ = (&temp, &turns))
        }),
        Row::timed(key("posix"), Whose::Theirs, "POSIX semaphores, one each", {
            let crew = start(&|index| {
                let (wait, post) = (Rc::clone(&posix), Rc::clone(&posix));
                by_pair(index, move |at| wait.wait(at), move |at| post.post(at))
            });
            crew::measure(crew, move |begins| if begins { posix.post(0) } else { posix.drain() })
        }),
        match Sysv::new(2, 0) {
            Err(why) => Row::not_run(key("sysv"), Whose::Theirs, "SysV semaphores, one each", &why),
            Ok(sysv) => {
                let sysv = Rc::new(sysv);
                let crew = start(&|index| {
                    let (wait, post) = (Rc::clone(&sysv), Rc::clone(&sysv));
                    by_pair(index, move |at| wait.wait(at as u16), move |at| post.post(at as u16))
                });
                let around = move |begins| if begins { sysv.post(0) } else { sysv.drain() };
                Row::timed(
                    key("sysv"),
                    Whose::Theirs,
                    "SysV semaphores, one each",
                    crew::measure(crew, around),
                )
            }
        },
    ];
    Group::new(title, key("futex"), rows)
}

/// The word says whose turn it is.
fn by_futex(word: Rc<Shared<AtomicU32>>, index: usize) -> Job {
    let (me, other) = (index as u32, 1 - index as u32);
    Box::new(move |stop| {
        let mut turns = 0;
        loop {
            while word.load(Acquire) != me {
                sys::futex_wait(&word, other, PATIENCE);
                if stop.is_set() && word.load(Acquire) != me {
                    return turns;
                }
            }
            turns += 1;
            word.store(other, Release);
            sys::futex_wake(&word, 1);
            if stop.is_set() {
                return turns;
            }
        }
    })
}

/// Whoever releases finds the other in the queue, which gets the permit at once.
fn by_permit(temp: &TempSet, last: Rc<Shared<AtomicU32>>, index: usize) -> Job {
    let set = temp.attach();
    let request = ours::one_of_each(&set);
    let me = index as u32 + 1;
    Box::new(move |stop| {
        let mut turns = 0;
        while !stop.is_set() {
            let held = set.acquire_timeout(&request, PATIENCE).expect("the permit");
            // A permit that was not handed over does not count.
            turns += u64::from(last.swap(me, Relaxed) != me);
            held.release().expect("released");
        }
        turns
    })
}

/// A semaphore for each: wait for one's own, post the other's.
fn by_pair(index: usize, wait: impl Fn(usize) -> bool + 'static, post: impl Fn(usize) + 'static) -> Job {
    Box::new(move |stop| {
        let mut turns = 0;
        while wait(index) {
            turns += 1;
            post(1 - index);
            if stop.is_set() {
                break;
            }
        }
        turns
    })
}
