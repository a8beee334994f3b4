//! Tokens are charged before the work, and corrected when it is known what the work took.
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
    held.update("tokens", 250)?; // used less: the rest returns at once, for everybody
    show("update: only 250 used")?;
    held.adjust("tokens", 50)?; // 50 more than so far
    show("adjust: 50 more")?;
    held.settle("tokens", 1_200)?; // the bill: more than there was
    show("settle: 1200 in the end")?;
    held.release()?;

    // Debt is paid by the flow of new tokens; until then nothing is admitted.
    match limits.try_acquire([("tokens", 1)]) {
        Ok(_) => return Err("admitted in debt".into()),
        Err(refusal) => println!("{refusal}"),
    }
    limits.advance(Duration::from_secs(30))?;
    show("half a minute later")?;

    limits.try_acquire([("tokens", 100)])?.cancel()?; // as if it had not been
    show("100 acquired and cancelled")?;

    // Whoever forgets to report is told, and is released all the same.
    match limits.try_acquire([("tokens", 100)])?.release() {
        Err(UsageError::Unreported { keys }) => println!("not reported: {}", keys.join(", ")),
        other => other?,
    }
    Ok(())
}
