//! Waits for a turn: in a thread, with a timeout, and as a future. Run with `cargo run --example waiting`.
#![expect(clippy::expect_used, reason = "an example states its expectations")]

use std::time::Duration;

use limitset::{AcquireError, CallLimit, LimitSet, ResourceLimit};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let limits = LimitSet::builder()
        .limit(CallLimit::new(100, Duration::from_millis(100)).burst(5))
        .limit(ResourceLimit::new("connections", 1))
        .open_anonymous()?;

    // Five are granted at once, then one per millisecond.
    for _ in 0..20 {
        limits.acquire(())?.release()?;
    }

    // One connection: the error of the second caller names its holder.
    let held = limits.acquire(())?;
    match limits.acquire_timeout((), Duration::from_millis(20)) {
        Err(AcquireError::TimedOut(late)) => println!("{late}"),
        other => return Err(format!("expected a timeout, got {other:?}").into()),
    }

    // First come, first served: waiters have tickets.
    let waiters: Vec<_> = (1..=3)
        .map(|place| {
            let limits = limits.clone();
            let waiter = std::thread::spawn(move || {
                let held = limits.acquire(()).expect("the set is there");
                println!("waiter {place} has ticket {}", held.ticket());
            });
            (place, waiter)
        })
        .inspect(|(place, _)| while limits.stats().is_ok_and(|stats| stats.waiters < *place) {})
        .map(|(_, waiter)| waiter)
        .collect();
    println!("now: {}", limits.try_acquire(()).expect_err("others wait"));
    held.release()?;
    for waiter in waiters {
        waiter.join().expect("no waiter panics");
    }

    // A future waits without a thread, on any executor.
    pollster::block_on(async {
        let held = limits.acquire_async(()).await?;
        let dropped = limits.acquire_async(()).timeout(Duration::from_millis(5)).await;
        println!("as a future: {}", dropped.expect_err("it is held"));
        held.release()?;
        Ok::<(), Box<dyn std::error::Error>>(())
    })
}
