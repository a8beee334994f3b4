//! Numbers of a set change while it is in use, for every process at its next request.
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

    // Another process, say a command of the operator. It needs no definition: the set brings its own.
    let operator = LimitSet::attach(&name)?;
    operator.reconfigure([ResourceLimit::new("connections", 4)])?;
    operator.reconfigure([CallLimit::per_minute(100)])?;
    show("reconfigured by another", &server)?; // 6 of 4: permits above the new capacity stay until they come back
    busy.release()?;
    show("connections released", &server)?;

    // What was changed live is no difference to those who open the set as it was declared...
    declared.open(&name)?;
    show("opened once more", &server)?;
    // ...unless they want their own numbers to hold.
    declared.clone().on_difference(OnDifference::Reconfigure).open(&name)?;
    show("declared numbers again", &server)?;

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
