//! Tokens are charged before the work, and corrected when the real use is known.
//!
//! Run with `cargo run --example refund`. The clock stands still, so that the numbers are easy to follow.

use std::time::Duration;

use limitset::{Clock, LimitSet, RateLimit, UsageError};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let limits =
        LimitSet::builder().limit(RateLimit::per_minute("tokens", 1_000)).clock(Clock::Manual).in_memory()?;
    let show = |what: &str| {
        let stats = limits.stats()?;
        let tokens = stats.limit("tokens").ok_or("there is no limit \"tokens\"")?;
        println!("{what:<36} available {:>4}, debt {:>3}", tokens.available, tokens.debt);
        Ok::<_, Box<dyn std::error::Error>>(())
    };
    show("at first")?;

    let mut held = limits.try_acquire([("tokens", 600)])?;
    show("600 acquired")?;
    held.update("tokens", 250)?; // used less: the rest is refunded at once, for all processes
    show("update: only 250 used")?;
    held.adjust("tokens", 50)?; // used 50 more than reported so far
    show("adjust: 50 more")?;
    held.settle("tokens", 1_200)?; // the final use: more than was available
    show("settle: 1200 in the end")?;
    held.release()?;

    // New tokens pay the debt first; until then nothing is admitted.
    match limits.try_acquire([("tokens", 1)]) {
        Ok(_) => return Err("admitted in debt".into()),
        Err(refusal) => println!("{refusal}"),
    }
    limits.advance(Duration::from_secs(30))?;
    show("half a minute later")?;

    limits.try_acquire([("tokens", 100)])?.cancel()?; // as if it had never been acquired
    show("100 acquired and cancelled")?;

    // A release without a report returns an error, and releases the permits nevertheless.
    match limits.try_acquire([("tokens", 100)])?.release() {
        Err(UsageError::Unreported { keys }) => println!("not reported: {}", keys.join(", ")),
        other => other?,
    }
    Ok(())
}
