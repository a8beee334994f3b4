//! Parameters of a set change while it is in use, for every process at its next request.
//!
//! Run with `cargo run --example live_change`.

use limitset::{CallLimit, LimitSet, OnDifference, ResourceLimit};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let name = format!("example-live-change-{}", std::process::id());
    let declared =
        LimitSet::builder().limit(CallLimit::per_minute(500)).limit(ResourceLimit::new("connections", 8));
    let server = declared.open(&name)?;
    let busy = server.try_acquire([("connections", 6)])?;
    show("as declared", &server)?;

    // Another process, say a command of the operator. It needs no definition: it reads that of the set.
    let operator = LimitSet::attach(&name)?;
    operator.reconfigure([ResourceLimit::new("connections", 4)])?;
    operator.reconfigure([CallLimit::per_minute(100)])?;
    show("reconfigured by another", &server)?; // 6 of 4: permits above the new capacity stay until released
    busy.release()?;
    show("connections released", &server)?;

    // A process that opens the set as declared accepts live changes...
    declared.open(&name)?;
    show("opened once more", &server)?;
    // ...unless it asks for its own parameters.
    declared.clone().on_difference(OnDifference::Reconfigure).open(&name)?;
    show("declared parameters again", &server)?;

    // Keys, kinds and algorithms never change.
    match operator.reconfigure([CallLimit::per_minute(100).key("connections")]) {
        Ok(()) => return Err("a resource became a call limit".into()),
        Err(refusal) => println!("refused: {refusal}"),
    }
    server.remove()?;
    Ok(())
}

fn show(when: &str, set: &LimitSet) -> Result<(), Box<dyn std::error::Error>> {
    print!("{when:<24}");
    for limit in set.stats()?.limits {
        print!("  {}: {} of {} in use", limit.key, limit.in_use, limit.capacity);
    }
    println!();
    Ok(())
}
