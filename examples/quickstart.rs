//! Three limits, acquired together, shared by every process that opens the name.
//!
//! Run with `cargo run --example quickstart`.

use limitset::{Algorithm, CallLimit, LimitSet, RateLimit, ResourceLimit};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // A program would say "openai". Examples may run beside each other, so this one adds its process number.
    let name = format!("example-quickstart-{}", std::process::id());

    let limits = LimitSet::builder()
        .limit(CallLimit::per_minute(500))
        .limit(RateLimit::per_minute("tokens", 200_000).algorithm(Algorithm::Gcra))
        .limit(ResourceLimit::new("connections", 8))
        .config("region", "us-east-1")
        .open(&name)?; // every process that opens this name shares it

    let mut held = limits.try_acquire([("tokens", 1_500)])?; // one call and one connection come along
    println!("acquired {held:?} for {}", held.config()["region"]);
    println!("{} tokens back", held.update("tokens", 900)?);
    held.release()?; // or drop

    // A refusal is an answer too: what is in the way, and until when.
    match limits.try_acquire([("tokens", 200_000)]) {
        Ok(_) => println!("all tokens of a minute at once"),
        Err(refusal) => println!("refused: {refusal}"),
    }

    limits.remove()?; // sets stay until somebody removes them
    Ok(())
}
