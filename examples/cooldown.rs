//! The other side says "too many requests": the whole set pauses, once, and resumes slowly. Run it with
//! `cargo run --example cooldown`.

use std::time::Duration;

use limitset::{AcquireError, CallLimit, Clock, Cooldown, LimitSet};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let seconds = Duration::from_secs;
    let limits = LimitSet::builder()
        .limit(CallLimit::per_second(100))
        // Pauses of 5, 10, 20 … seconds; afterwards three admissions with gaps of 400, 250 and 100 ms.
        .cooldown(Cooldown::default().jitter(0.0).slow_start(
            3,
            Duration::from_millis(400),
            Duration::from_millis(100),
        ))
        .clock(Clock::Manual) // so that nobody has to wait for this example
        .in_memory()?;

    // Two requests are under way. Both are answered with 429; the second answer is about the time before the pause.
    let (first, second) = (limits.try_acquire(())?, limits.try_acquire(())?);
    println!("first:  {:?}", first.rate_limited(Some(seconds(7)))?); // Retry-After: 7
    println!("second: {:?}", second.rate_limited(None)?);
    match limits.try_acquire(()) {
        Err(AcquireError::CoolingDown { remaining, .. }) => println!("nobody asks for another {remaining:?}"),
        other => return Err(format!("{other:?}").into()),
    }

    // The pause is over. Four callers want to go on at once, and are let in one after the other.
    limits.advance(seconds(7))?;
    let mut time = Duration::ZERO;
    for caller in 1..=4 {
        while let Err(AcquireError::CoolingDown { remaining, .. }) = limits.try_acquire(()).map(drop) {
            limits.advance(remaining)?;
            time += remaining;
        }
        println!("caller {caller} after {time:?}");
    }
    // What was let in went well, so the next pause is a short one again.
    println!("{} pauses in a row", limits.stats()?.cooldown.consecutive);
    Ok(())
}
