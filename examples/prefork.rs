//! Four forked workers share one budget. One of them is killed while it holds a connection; the others
//! continue, and the connection is returned to them.
//!
//! Run with `cargo run --example prefork`. The set has no name: it disappears with its last process.

use limitset::{AcquireError, CallLimit, LimitSet, ResourceLimit};
use nix::sys::signal::{Signal, raise};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, fork};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Outcome<()> {
    let limits = LimitSet::builder()
        .limit(CallLimit::per_day(1_000))
        .limit(ResourceLimit::new("connections", 2))
        .open_anonymous()?;

    let workers = (1..=4).map(|number| start(number, &limits)).collect::<Outcome<Vec<Pid>>>()?;
    for worker in workers {
        println!("{:?}", waitpid(worker, None)?);
    }

    limits.reap()?; // optional: a process that needs a permit reaps by itself
    let stats = limits.stats()?;
    for limit in &stats.limits {
        println!("{}: {} granted, {} of {} in use", limit.key, limit.granted, limit.in_use, limit.capacity);
    }
    println!("{} permits of dead participants returned", stats.reaped_permits);
    let calls = stats.limit("call_count").ok_or("there is no call limit")?;
    if calls.granted < 1_000 { Err("fewer than 1,000 calls were granted".into()) } else { Ok(()) }
}

fn start(number: u32, limits: &LimitSet) -> Outcome<Pid> {
    // SAFETY: this process has one thread, so the child is a whole copy of it.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => Ok(child),
        ForkResult::Child => std::process::exit(work(number, limits).map_or(1, |()| 0)),
    }
}

/// Makes calls until the daily budget is used up.
fn work(number: u32, limits: &LimitSet) -> Outcome<()> {
    let mut calls = 0;
    loop {
        match limits.try_acquire(()) {
            Ok(held) => {
                calls += 1;
                if number == 1 && calls == 10 {
                    raise(Signal::SIGKILL)?; // while it holds a connection
                }
                held.release()?;
            }
            Err(AcquireError::Denied(denial)) if denial.retry_after().is_some() => break,
            Err(AcquireError::Denied(_)) => std::thread::yield_now(), // other workers hold the connections
            Err(other) => return Err(other.into()),
        }
    }
    println!("worker {number} made {calls} calls");
    Ok(())
}
