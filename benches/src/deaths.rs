//! How soon after the death of a process can its permit be had by `try_acquire`?
//!
//! Eight participants: six that only hold something else, one that is killed while it holds the only permit, and one that
//! asks for the permit in a loop. The loop runs before the kill, too, so that the last look for dead holders is recent.
//! The clock runs from the moment that the killed process was waited for.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::{Duration, Instant};

use limitset::{Clock, LimitSet, ResolvedRequest};

use crate::batches::Plan;
use crate::ours::{self, TempSet};
use crate::results::{Bench, Share};
use crate::sys::{self, Shared};

const QUESTION: &str = "How soon after a process was killed does `try_acquire` get the permit that it held?";

/// Besides the one that asks and the one that is killed.
const BYSTANDERS: usize = 6;
/// What counts as soon.
pub const SOON: Duration = Duration::from_millis(5);
/// Longer than any look takes to come round: only tells a hang from slowness.
const PATIENCE: Duration = Duration::from_secs(20);

pub fn run(plan: Plan) -> Bench {
    let kills = plan.rounds * 10;
    let temp = TempSet::new(vec![ours::permit("wanted", 1), ours::permit("other", 64)], Clock::Monotonic);
    let ready: Shared<AtomicU32> = Shared::zeroed();
    let bystanders: Vec<Holder> = (0..BYSTANDERS).map(|_| Holder::start(&temp, "other", &ready)).collect();
    let request = only(&temp.set, "wanted");
    let mut times: Vec<Duration> = (0..kills).map(|_| kill_one(&temp, &request, &ready)).collect();
    drop(bystanders);
    times.sort_unstable();
    let soon = times.iter().filter(|time| **time <= SOON).count();
    let at = |percent: usize| {
        let place = (times.len() * percent / 100).min(times.len() - 1);
        format!("{:.2} ms", times[place].as_secs_f64() * 1e3)
    };
    let table = format!(
        "| kills | median | 95 % | 99 % | longest | within {} ms |\n| ---: | ---: | ---: | ---: | ---: | ---: |\n\
         | {kills} | {} | {} | {} | {} | {soon} |\n",
        SOON.as_millis(),
        at(50),
        at(95),
        at(99),
        at(100),
    );
    let shares = vec![Share { key: "noticed", met: soon, of: kills }];
    Bench {
        name: "deaths",
        question: QUESTION,
        groups: Vec::new(),
        contended: false,
        remarks: vec![table],
        shares,
    }
}

fn only(set: &LimitSet, wanted: &str) -> ResolvedRequest {
    let keys = set.limits().iter().map(|limit| limit.name().to_owned());
    let request = keys.fold(set.request(), |it, key| {
        let amount = u64::from(key == wanted);
        it.amount(key, amount)
    });
    request.build().expect("a request")
}

/// How long after the end of its holder the permit is granted.
fn kill_one(temp: &TempSet, request: &ResolvedRequest, ready: &Shared<AtomicU32>) -> Duration {
    let holder = Holder::start(temp, "wanted", ready);
    for _ in 0..100 {
        assert!(temp.set.try_acquire(request).is_err(), "its holder lives");
    }
    drop(holder);
    let start = Instant::now();
    loop {
        match temp.set.try_acquire(request) {
            Ok(held) => {
                let time = start.elapsed();
                held.release().expect("released");
                return time;
            }
            Err(refused) => assert!(start.elapsed() < PATIENCE, "{refused}"),
        }
    }
}

/// A process that holds a permit until it is killed; killed, and waited for, when dropped.
struct Holder(i32);

impl Holder {
    fn start(temp: &TempSet, key: &str, ready: &Shared<AtomicU32>) -> Holder {
        ready.store(0, Release);
        // SAFETY: the child attaches, holds, and never returns.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0, "cannot fork: {}", std::io::Error::last_os_error());
        if pid == 0 {
            let set = temp.attach();
            let _held = set.try_acquire(&only(&set, key)).expect("granted");
            ready.store(1, Release);
            sys::futex_wake(ready, 1);
            loop {
                std::thread::sleep(PATIENCE);
            }
        }
        let holder = Holder(pid);
        let start = Instant::now();
        while ready.load(Acquire) == 0 {
            assert!(start.elapsed() < PATIENCE, "the holder did not come up");
            sys::futex_wait(ready, 0, Duration::from_millis(100));
        }
        holder
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // SAFETY: it is our child, and was not waited for.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            libc::waitpid(self.0, std::ptr::null_mut(), 0);
        }
    }
}
