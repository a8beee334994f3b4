//! Three limits, acquired together, shared by every process that opens the name.
//!
//! Run with `cargo run --example quickstart`.

use limitset::{Algorithm, CallLimit, LimitSet, RateLimit, ResourceLimit};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // A program would use a name such as "openai". Examples may run at the same time, so this one adds its
    // PID.
    let name = format!("example-quickstart-{}", std::process::id());

    let limits = LimitSet::builder()
        .limit(CallLimit::per_minute(500))
        .limit(RateLimit::per_minute("tokens", 200_000).algorithm(Algorithm::Gcra))
        .limit(ResourceLimit::new("connections", 8))
        .config("region", "us-east-1")
        .open(&name)?; // every process that opens this name shares it

    let mut held = limits.try_acquire([("tokens", 1_500)])?; // also takes one call and one connection
    println!("acquired {held:?} for {}", held.config()["region"]);
    println!("{} tokens back", held.update("tokens", 900)?);
    held.release()?; // or drop

    // A denial tells which limit is exhausted, and until when.
    match limits.try_acquire([("tokens", 200_000)]) {
        Ok(_) => println!("all tokens of a minute at once"),
        Err(refusal) => println!("refused: {refusal}"),
    }

    limits.remove()?; // a set stays until it is removed
    Ok(())
}
