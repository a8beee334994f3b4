//! Work that survives its worker: one of three forked workers is killed while it works on an item, and
//! another worker finishes the item. Run with `cargo run --example work_queue`.

use std::time::Duration;

use limitset::{LimitSet, Prefork, QueueError, QueueOptions, ResourceLimit, Worker};
use nix::sys::signal::{Signal, raise};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Outcome<()> {
    let limits = LimitSet::builder()
        .limit(ResourceLimit::new("connections", 2))
        .queue(QueueOptions::new(50, 32))
        .open_anonymous()?;
    let queue = limits.queue()?;
    for id in 1..=9 {
        queue.push(id, format!("image {id}").as_bytes())?;
    }
    queue.close()?;

    let shared = limits.clone();
    let mut workers = Prefork::new(3).start(move |worker| work(worker, &shared))?;
    while !workers.is_over() {
        for exit in workers.step()?.0 {
            println!("{exit}");
        }
        match queue.collect_timeout(Duration::from_millis(10)) {
            Ok(Some(mut done)) => {
                println!(
                    "{}: {} (attempt {})",
                    done.id(),
                    String::from_utf8_lossy(done.result()),
                    done.attempts()
                );
                done.forget()?;
            }
            Ok(None) | Err(QueueError::TimedOut) => {}
            Err(error) => return Err(error.into()),
        }
    }
    while let Some(mut dead) = queue.collect_dead()? {
        println!("given up: {dead:?}: {}", String::from_utf8_lossy(dead.result()));
        dead.forget()?;
    }
    let stats = queue.stats()?;
    println!("{} of {} done, {} returned from dead workers", stats.done, stats.pushed, stats.returned);
    assert_eq!((stats.done, stats.dead_lettered, stats.returned), (8, 1, 1));
    Ok(())
}

fn work(worker: &Worker, limits: &LimitSet) -> Outcome<()> {
    while let Some(mut item) = limits.queue()?.take()? {
        let held = limits.acquire(())?;
        match (item.id(), item.attempts()) {
            (4, 1) => raise(Signal::SIGKILL)?, // the first worker that takes item 4
            (7, _) => item.dead_letter(b"not an image")?,
            _ => item.done_with(
                format!("{} pixels by worker {}", item.payload().len(), worker.index()).as_bytes(),
            )?,
        }
        held.release()?;
    }
    Ok(())
}
