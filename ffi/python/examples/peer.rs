//! A Rust process beside Python ones, for the tests: acquires from a set until its calls are used up, and says how many
//! it got. `peer NAME`

use std::error::Error;

use limitset::{AcquireError, LimitSet};

fn main() -> Result<(), Box<dyn Error>> {
    let name = std::env::args_os().nth(1).ok_or("usage: peer NAME")?;
    let limits = LimitSet::attach(name)?;
    let mut granted = 0_u64;
    loop {
        match limits.try_acquire(()) {
            Ok(held) => {
                granted += 1;
                held.release()?;
            }
            Err(AcquireError::Denied(no)) if no.bottleneck().is_some_and(|it| it.key == "call_count") => {
                break;
            }
            Err(AcquireError::Denied(_) | AcquireError::Queued { .. }) => std::thread::yield_now(),
            Err(other) => return Err(other.into()),
        }
    }
    println!("{granted}");
    Ok(())
}
