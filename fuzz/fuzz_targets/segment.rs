//! Any damage to the bytes of a segment, then everything a user can do with it: a typed error or an answer,
//! never a crash, never for ever.
//!
//! Run with `cargo +nightly fuzz run segment -- -max_total_time=600 -timeout=20`.
#![no_main]

#[path = "../../tests/support/forge.rs"]
mod forge;

use std::sync::OnceLock;
use std::time::Duration;

use forge::{Forged, MUTEX_REGION, SEMAPHORE_REGION, STATE_REGION};
use libfuzzer_sys::fuzz_target;
use limitset::{Algorithm, CallLimit, LimitSet, LimitSetBuilder, QueueOptions, RateLimit, ResourceLimit};
use limitset::{Segment, SegmentOptions};

const MOMENT: Duration = Duration::from_micros(100);

fn options() -> SegmentOptions {
    let shape = Segment::options().slots(3).waiters(2).mutex("jobs", 4).semaphore("db", 5);
    shape.words("mine", 2).patience(MOMENT).lock_slice(MOMENT / 10).doorbell_slice(MOMENT / 10)
}

fn set() -> LimitSetBuilder {
    LimitSet::builder()
        .limit(CallLimit::per_second(100))
        .limit(RateLimit::per_second("rows", 50).algorithm(Algorithm::SlidingWindow).resolution(2))
        .limit(RateLimit::per_second("tokens", 50).algorithm(Algorithm::Gcra))
        .limit(ResourceLimit::new("connections", 2))
        .config("region", "eu")
        .queue(QueueOptions::new(2, 8))
        .segment(options())
}

fn name() -> String {
    format!("fuzz-{}", std::process::id())
}

/// A segment in the middle of life: an update half done and a lock still held, in every block.
fn lived_in() -> &'static Forged {
    static BYTES: OnceLock<Forged> = OnceLock::new();
    BYTES.get_or_init(|| {
        let set = set().create(name()).unwrap();
        let held = set.try_acquire([("rows", 3), ("tokens", 2)]).unwrap();
        let segment = set.segment();
        let queue = set.queue().unwrap();
        queue.try_push(1, b"one").unwrap();
        let item = queue.try_take().unwrap().unwrap();
        let permit = segment.semaphore("db").unwrap().acquire(2).unwrap();
        let mut bytes = Forged::read(&Segment::path_of(name()).unwrap());
        drop((permit, held, item));
        segment.remove_here().unwrap();
        for block in [STATE_REGION, MUTEX_REGION, SEMAPHORE_REGION] {
            let at = bytes.region(block);
            bytes.set32(at, 2 | 1 << 12);
            bytes.set64(at + forge::CHANGE, 2);
            bytes.set64(at + forge::JOURNAL + 8, forge::description(1, 1));
        }
        bytes
    })
}

/// The input is a list of changes, ten bytes each: where, how wide, and what.
fn spoil(bytes: &mut Forged, input: &[u8]) {
    for change in input.chunks_exact(10) {
        let at = usize::from(u16::from_le_bytes([change[0], change[1]]));
        let value = u64::from_le_bytes(change[2..].try_into().unwrap());
        let at = at % (bytes.0.len() - 8);
        match value % 3 {
            0 => bytes.0[at] = change[9],
            1 => bytes.set32(at & !3, (value >> 2) as u32),
            _ => bytes.set64(at & !7, value >> 2),
        }
    }
    if input.len() % 2 == 0 {
        bytes.seal();
    }
}

fuzz_target!(|input: &[u8]| {
    let mut bytes = lived_in().clone();
    spoil(&mut bytes, input);
    let path = Segment::path_of(name()).unwrap();
    let _ = std::fs::remove_file(&path);
    std::fs::write(&path, &bytes.0).unwrap();
    if let Ok(observer) = options().observe(name()) {
        let _ = (observer.mutex("jobs"), observer.semaphore("db"), observer.participants(), observer.info());
    }
    if let Ok(set) = set().attach(name()) {
        // Once more behind the clean-up of the first to attach.
        let (start, end) = (bytes.region(STATE_REGION), bytes.0.len());
        if let Ok(file) = std::fs::OpenOptions::new().write(true).open(&path)
            && let Some(words) = bytes.0.get(start..end)
        {
            let _ = std::os::unix::fs::FileExt::write_all_at(&file, words, start as u64);
        }
        let _ = (set.check([("rows", 1)]), set.stats().is_ok(), set.reap());
        if let Ok(mut held) = set.try_acquire([("rows", 1), ("tokens", 1)]) {
            let _ = (held.update("tokens", 0), held.adjust("rows", 9), held.acquire_more([("connections", 1)]));
            let _ = held.cancel();
        }
        let _ = set.acquire_timeout([("tokens", 40), ("connections", 2)], MOMENT).map(drop);
        let _ = (set.reconfigure([ResourceLimit::new("connections", 3)]), set.reset());
        if let Ok(queue) = set.queue() {
            let _ = (queue.try_push(2, b"two"), queue.stats().map(|stats| stats.unfinished()));
            if let (Ok(Some(mut item)), Ok(held)) = (queue.try_take(), set.try_acquire([("rows", 1), ("tokens", 1)])) {
                let _ = item.rate_limited(held, Some(MOMENT));
            }
            let _ = (set.pause(MOMENT), set.resume());
            let _ = queue.take_timeout(MOMENT).map(|item| item.map(|mut item| item.done_with(b"done")));
            let _ = queue.try_collect().map(|result| result.map(|mut result| result.forget()));
            let _ = queue.collect_dead().map(|dead| dead.map(|mut dead| dead.revive()));
        }
        let segment = set.segment();
        if let Ok(jobs) = segment.mutex("jobs")
            && let Ok(locked) = jobs.lock_timeout(MOMENT)
        {
            let mut held = locked.guard();
            let _ = held.update(|words| (0..4).try_for_each(|index| words.set(index, 1)));
        }
        if let Ok(db) = segment.semaphore("db") {
            let _ = (db.try_acquire(1), db.acquire_timeout(3, MOMENT), db.reap(), db.state());
        }
        let _ = segment.remove_here();
    }
    let _ = std::fs::remove_file(&path);
});
