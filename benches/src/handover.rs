//! How long after a release does a blocked waiter run? Two processes hand permits to each other, beside the
//! minimum on Linux: a bare futex ping-pong.
//!
//! Each process only waits for its turn and ends it. Nanoseconds are per hand-over. On one processor that is
//! a switch of processes; on two, an idle processor is woken, which a virtual machine makes slow and
//! irregular. Claims use the first.

use std::rc::Rc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Duration;

use limitset::{Acquisition, Clock};

use crate::batches::{Plan, Row, Whose};
use crate::crew::{self, Crew, Job};
use crate::ours::{self, TempSet};
use crate::results::{Bench, Group};
use crate::rivals::{posix::Posix, sysv::Sysv};
use crate::sys::{self, Shared};

const QUESTION: &str = "How long after a release does a blocked waiter run, against a bare futex ping-pong?";

/// The timeout of a wait, reached only if something is broken.
const PATIENCE: Duration = Duration::from_secs(2);

const PERMITS: [&str; 3] = ["a", "b", "c"];

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
    let temp = TempSet::new(PERMITS.map(|key| ours::permit(key, 1)).into(), Clock::Monotonic);
    let ready: Rc<Shared<AtomicU32>> = Rc::new(Shared::zeroed());
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
            let crew = start(&|index| by_permits(&temp, Rc::clone(&ready), index));
            crew::measure(crew, move |begins| {
                let _set = &temp;
                if begins {
                    ready.store(0, Relaxed);
                }
            })
        })
        .note("one of three permits each time; lock, queue, wake, wait"),
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

/// Alternates by a futex word that holds the index of the process whose turn it is.
fn by_futex(word: Rc<Shared<AtomicU32>>, index: usize) -> Job {
    let (me, other) = (index as u32, 1 - index as u32);
    Box::new(move |stop| {
        let mut turns = 0;
        loop {
            while word.load(Acquire) != me {
                sys::futex_wait(&word, other, PATIENCE);
            }
            // Read during the own turn, and the turn is passed on in any case, so that the other process
            // ends, too.
            let over = stop.is_set();
            turns += 1;
            word.store(other, Release);
            sys::futex_wake(&word, 1);
            if over {
                return turns;
            }
        }
    })
}

/// Alternates by three permits, because a woken process may run before the process that woke it: each has to
/// wait for a permit that the other certainly holds. The process whose turn it is holds two, releases the
/// older, and waits for the permit of the other process.
fn by_permits(temp: &TempSet, ready: Rc<Shared<AtomicU32>>, index: usize) -> Job {
    let set = temp.attach();
    let requests = PERMITS.map(|wanted| {
        let request =
            PERMITS.iter().fold(set.request(), |it, key| it.amount(*key, u64::from(*key == wanted)));
        request.build().expect("a request")
    });
    Box::new(move |stop| {
        let acquire = |turn: usize| set.acquire_timeout(&requests[turn % 3], PATIENCE).expect("a permit");
        let mut held = [None, None, None];
        if index == 0 {
            held[0] = Some(acquire(0));
            held[2] = Some(acquire(2));
        } else {
            held[1] = Some(acquire(1));
        }
        ready.fetch_add(1, Release);
        while ready.load(Acquire) < 2 {
            std::thread::yield_now();
        }
        let (mut turn, mut turns) = (0, 0);
        if index == 1 {
            held[0] = Some(acquire(0));
            (turn, turns) = (1, 1);
        }
        // Dropping the permits lets the other process continue, and see the stop.
        while !stop.is_set() {
            let older: Option<Acquisition> = held[turn % 3].take();
            older.expect("held since the last turn").release().expect("released");
            held[(turn + 1) % 3] = Some(acquire(turn + 1));
            (turn, turns) = (turn + 2, turns + 1);
        }
        turns
    })
}

/// Alternates by one semaphore for each process: waits for its own, posts the other's.
fn by_pair(index: usize, wait: impl Fn(usize) -> bool + 'static, post: impl Fn(usize) + 'static) -> Job {
    Box::new(move |stop| {
        let mut turns = 0;
        while wait(index) {
            let over = stop.is_set();
            turns += 1;
            post(1 - index);
            if over {
                break;
            }
        }
        turns
    })
}
