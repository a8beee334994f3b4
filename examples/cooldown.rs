//! A server answers "too many requests": the whole set pauses, once, and resumes slowly. Run with `cargo run
//! --example cooldown`.

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
        .clock(Clock::Manual) // so that this example takes no time
        .in_memory()?;

    // Two requests are under way. Both are answered with 429; the second answer belongs to the time before
    // the pause.
    let (first, second) = (limits.try_acquire(())?, limits.try_acquire(())?);
    println!("first:  {:?}", first.rate_limited(Some(seconds(7)))?); // Retry-After: 7
    println!("second: {:?}", second.rate_limited(None)?);
    match limits.try_acquire(()) {
        Err(AcquireError::CoolingDown { remaining, .. }) => {
            println!("no request is admitted for another {remaining:?}")
        }
        other => return Err(format!("{other:?}").into()),
    }

    // The pause is over. Four callers try at once, and are admitted one after the other.
    limits.advance(seconds(7))?;
    let mut time = Duration::ZERO;
    for caller in 1..=4 {
        while let Err(AcquireError::CoolingDown { remaining, .. }) = limits.try_acquire(()).map(drop) {
            limits.advance(remaining)?;
            time += remaining;
        }
        println!("caller {caller} after {time:?}");
    }
    // The admitted requests succeeded, so the next pause is short again.
    println!("{} pauses in a row", limits.stats()?.cooldown.consecutive);
    Ok(())
}
