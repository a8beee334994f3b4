//! How long does a bystander wait for its first answer after something that concerns many sleeping waiters: the death of a
//! lock holder, `reconfigure`, `reset`, `resume`? With 1,000 threads asleep it should take about as long as with 10.
//!
//! The waiters are threads of a process of their own, and want a permit that stays held. Only the `check` is timed, from
//! the moment when the cause is over.

use std::rc::Rc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::{Duration, Instant};

use limitset::core::NEVER;
use limitset::{Acquisition, Clock, ResolvedRequest, Segment};

use crate::batches::{Plan, Row, Whose, nanos};
use crate::crew::Crew;
use crate::ours::{self, TempSet};
use crate::results::{Bench, Group};
use crate::sys::{self, Shared};

const QUESTION: &str = "How long does a bystander's first `check` take after a lock holder's death, `reconfigure`, `reset` or `resume`, with 10 and with 1,000 sleeping waiters?";

const HOUR: Duration = Duration::from_secs(3_600);

/// How many sleep: few, and many.
pub const WAITERS: [usize; 2] = [10, 1_000];

/// What concerns them.
pub const CAUSES: [&str; 4] = ["death", "reconfigure", "reset", "resume"];

/// The key of a row.
pub fn key(cause: &str, waiters: usize) -> String {
    format!("bystander/{cause}/{waiters}")
}

pub fn run(plan: Plan) -> Bench {
    let crowds = WAITERS.map(|count| (count, Crowd::new(count).map(Rc::new)));
    let groups = CAUSES.map(|cause| {
        let rows = crowds.iter().map(|(count, crowd)| row(cause, *count, crowd)).collect();
        Group::new(format!("First `check` after {cause}, by sleeping waiters"), key(cause, WAITERS[0]), rows)
    });
    Bench::measure("bystander", QUESTION, groups.into(), plan, None)
}

fn row(cause: &'static str, count: usize, crowd: &Result<Rc<Crowd>, String>) -> Row {
    let crowd = match crowd {
        Ok(crowd) => Rc::clone(crowd),
        Err(why) => return Row::not_run(key(cause, count), Whose::Ours, count.to_string(), why),
    };
    let measure = Box::new(move |length: Duration| {
        let (mut took, mut times) = (Duration::ZERO, 0_u32);
        let begun = Instant::now();
        while times == 0 || begun.elapsed() < length {
            crowd.bring_about(cause)?;
            let start = Instant::now();
            // What it answers does not matter: after a pause, that the set is cooling down.
            let _ = crowd.temp.set.check(&crowd.request);
            took += start.elapsed();
            times += 1;
        }
        Ok(nanos(took) / f64::from(times))
    });
    // One process is timed; the others sleep.
    Row { crew: false, ..Row::timed(key(cause, count), Whose::Ours, count.to_string(), measure) }
}

/// A set, and a process whose threads wait for its only permit.
struct Crowd {
    /// Dropped first: the waiters' process ends.
    _crew: Crew,
    _held: Acquisition,
    request: ResolvedRequest,
    temp: Rc<TempSet>,
}

impl Crowd {
    fn new(count: usize) -> Result<Self, String> {
        let limits = vec![ours::call(), ours::permit("busy", 1)];
        let options = Segment::options().waiters(2_048).doorbell_slice(HOUR);
        let temp = TempSet::with(limits, Clock::Monotonic, options);
        let busy = temp.set.request().amount("call_count", 0).amount("busy", 1).build();
        let busy = busy.map_err(|error| error.to_string())?;
        let held = temp.set.try_acquire(&busy).map_err(|error| error.to_string())?;
        let crew = Crew::start(&sys::cpus()[..1], |_| {
            let set = temp.attach();
            for _ in 0..count {
                let (set, busy) = (set.clone(), busy.clone());
                let waits = move || drop(set.acquire(&busy));
                std::thread::Builder::new().stack_size(64 << 10).spawn(waits).expect("a thread");
            }
            while set.stats().expect("stats").waiters < count as u64 {
                std::thread::sleep(Duration::from_millis(1));
            }
            // All it has to do is to be there.
            Box::new(|_| 1)
        })?;
        let request = ours::only_the_first(&temp.set);
        Ok(Self { _crew: crew, _held: held, request, temp })
    }

    fn bring_about(&self, cause: &str) -> Result<(), String> {
        let set = &self.temp.set;
        let done = match cause {
            "death" => return self.kill_a_lock_holder(),
            "reconfigure" => set.reconfigure([ours::permit("busy", 1)]),
            "reset" => set.reset(),
            _ => set.pause(HOUR).and_then(|_| set.resume()).map(drop),
        };
        done.map_err(|error| error.to_string())
    }

    /// Kills a process that has just taken the lock.
    fn kill_a_lock_holder(&self) -> Result<(), String> {
        let is_inside: Shared<AtomicU32> = Shared::zeroed();
        // SAFETY: this process has one thread; the child only takes the lock and waits for its end.
        let pid = match unsafe { libc::fork() } {
            -1 => return Err(format!("cannot fork: {}", std::io::Error::last_os_error())),
            0 => {
                let segment = self.temp.set.segment();
                if let (Ok(me), Ok((block, _))) = (segment.participant(), segment.state_block())
                    && let Ok(locked) = block.lock(me, NEVER)
                {
                    std::mem::forget(locked.guard());
                    is_inside.store(1, Release);
                }
                loop {
                    std::thread::park();
                }
            }
            pid => pid,
        };
        let begun = Instant::now();
        while is_inside.load(Acquire) == 0 && begun.elapsed() < Duration::from_secs(5) {
            std::thread::yield_now();
        }
        // SAFETY: our child, not reaped yet, so the number is still its own.
        unsafe { libc::kill(pid, libc::SIGKILL) };
        // SAFETY: our child.
        unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
        let taken = is_inside.load(Acquire) != 0;
        if taken { Ok(()) } else { Err("the child did not get the lock".to_owned()) }
    }
}
