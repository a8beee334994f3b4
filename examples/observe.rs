//! Observes a set without participating: it takes no slot, writes nothing, and waits for no lock.
//!
//! Run with `cargo run --example observe`. To look at a set of your own: `cargo run --example observe NAME`.

use limitset::{CallLimit, LimitSet, RateLimit, ResourceLimit, SetObserver};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    if let Some(name) = std::env::args_os().nth(1) {
        return print(&LimitSet::observe(name)?);
    }
    let name = format!("example-observe-{}", std::process::id());
    let limits = LimitSet::builder()
        .limit(CallLimit::per_minute(3))
        .limit(RateLimit::per_minute("tokens", 1_000))
        .limit(ResourceLimit::new("connections", 8))
        .open(&name)?;
    let mut held = limits.try_acquire([("tokens", 300), ("connections", 2)])?;
    held.settle("tokens", 120)?;
    let _unreported = limits.try_acquire([("tokens", 50)])?;
    let refused = limits.try_acquire([("tokens", 990)]).is_err();

    print(&LimitSet::observe(&name)?)?;
    limits.remove()?;
    if refused { Ok(()) } else { Err("990 of 830 tokens were granted".into()) }
}

fn print(observer: &SetObserver) -> Result<(), Box<dyn std::error::Error>> {
    let stats = observer.stats()?;
    println!("limit        capacity  available  in use  granted  denied  refunded  consumed");
    for it in &stats.limits {
        let numbers = format!("{:>8} {:>10} {:>7}", it.capacity, it.available, it.in_use);
        let counts = format!("{:>8} {:>7} {:>9} {:>9}", it.granted, it.denied, it.refunded, it.consumed);
        println!("{:<12} {numbers} {counts}", it.key);
    }
    for it in &stats.participants {
        let who = it.info.as_ref().map_or("dead".to_owned(), |info| format!("{} {}", info.command, info.pid));
        println!(
            "slot {} ({who}) holds {:?}, owes reports {:?}",
            it.participant.slot, it.holds, it.owes_reports
        );
    }
    println!("{} steals, {} recoveries, {} sweeps", stats.steals, stats.recoveries, stats.sweeps);
    Ok(())
}
