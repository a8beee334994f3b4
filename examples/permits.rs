//! Permits that are held and returned: connections, slots, licences. Dropping an acquisition releases them.
//!
//! Run with `cargo run --example permits`.

use limitset::{LimitSet, ResourceLimit};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let limits = LimitSet::builder()
        .limit(ResourceLimit::new("connections", 3))
        .limit(ResourceLimit::new("licences", 1))
        .in_memory()?;
    let in_use = |key: &str| {
        let stats = limits.stats()?;
        let limit = stats.limit(key).ok_or("there is no such limit")?;
        Ok::<_, Box<dyn std::error::Error>>(format!("{} of {} {key} in use", limit.in_use, limit.capacity))
    };

    {
        let mut held = limits.try_acquire(())?; // one of each
        println!("{held:?}: {}", in_use("connections")?);

        held.acquire_more([("connections", 2)])?; // granted at once or not at all: it never waits
        println!("{held:?}: {}", in_use("connections")?);

        // Other callers hold the permits, so the time of their release is unknown.
        match limits.try_acquire([("connections", 1), ("licences", 0)]) {
            Ok(_) => return Err("a fourth connection".into()),
            Err(refusal) => println!("refused: {refusal} (retry after: {:?})", refusal.retry_after()),
        }

        held.update("connections", 1)?; // returns two of them early
        println!("{held:?}: {}", in_use("connections")?);
    } // dropped here

    println!("dropped: {}, {}", in_use("connections")?, in_use("licences")?);
    Ok(())
}
