//! A repeated request is resolved once: then it allocates nothing and compares no strings.
//!
//! Run with `cargo run --release --example hot_path`.

use std::time::{Duration, Instant};

use limitset::{CallLimit, LimitSet, RateLimit, Report, ResourceLimit};

const ROUNDS: u32 = 100_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let limits = LimitSet::builder()
        .limit(CallLimit::per_second(1_000_000_000))
        .limit(RateLimit::per_second("tokens", 1_000_000_000_000).report(Report::Optional))
        .limit(ResourceLimit::new("connections", 8))
        .in_memory()?;

    // A wrong key fails here, not on the hot path.
    let usual = limits.request().amount("tokens", 1_500).label("chat").build()?;

    let resolved = time(|| Ok(limits.try_acquire(&usual)?.release()?))?;
    let by_key = time(|| Ok(limits.try_acquire([("tokens", 1_500)])?.release()?))?;
    println!("acquire and release of three limits, resolved: {resolved:?}, by key: {by_key:?}");

    let stats = limits.stats()?;
    for limit in &stats.limits {
        println!("{}: {} granted, {} denied", limit.key, limit.granted, limit.denied);
    }
    Ok(())
}

/// Returns the time of one round.
fn time(
    mut round: impl FnMut() -> Result<(), Box<dyn std::error::Error>>,
) -> Result<Duration, Box<dyn std::error::Error>> {
    let start = Instant::now();
    for _ in 0..ROUNDS {
        round()?;
    }
    Ok(start.elapsed() / ROUNDS)
}
