//! Random damage: whatever stands in a segment's bytes, attaching and using it is a typed error or works. It
//! never crashes, and never goes on for ever.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

#[path = "support/forge.rs"]
mod forge;
#[path = "support/mod.rs"]
mod support;

use std::time::Duration;

use forge::{Forged, MUTEX_REGION, SEMAPHORE_REGION, STATE_REGION};
use limitset::{Segment, SegmentOptions};
use support::{Random, TempName};

const MOMENT: Duration = Duration::from_micros(500);

fn options() -> SegmentOptions {
    let shape = Segment::options().slots(3).waiters(2).limits(2).mutex("jobs", 4).semaphore("db", 5);
    shape.words("mine", 2).patience(MOMENT).lock_slice(MOMENT / 10).doorbell_slice(MOMENT / 10)
}

/// A segment in the middle of life: holders that died, an update half done, a lock still held.
fn lived_in() -> Forged {
    let name = TempName::new();
    let segment = options().create(&name).unwrap();
    std::mem::forget(segment.semaphore("db").unwrap().acquire(2).unwrap());
    let mut bytes = Forged::read(&name.path());
    for block in [STATE_REGION, MUTEX_REGION, SEMAPHORE_REGION] {
        let at = bytes.region(block);
        bytes.set32(at, 2 | 1 << 12);
        bytes.set64(at + forge::CHANGE, 7 << 16 | 4);
        bytes.set64(at + forge::JOURNAL, 40);
        bytes.set64(at + forge::JOURNAL + 8, forge::description(1, 1));
        bytes.set64(at + forge::JOURNAL + 16, 50);
        bytes.set64(at + forge::JOURNAL + 24, forge::description(2, 1));
    }
    bytes
}

/// Changes a few places, some of them to values that hurt more than random ones.
fn spoil(bytes: &mut Forged, random: &mut Random) {
    let length = bytes.0.len() as u64;
    let in_header = random.below(8) == 0;
    for _ in 0..1 + random.below(6) {
        // A header that fails its checksum is the dullest of cases: most damage goes behind it.
        let header = forge::HEADER_BYTES as u64;
        let (from, to) = if in_header { (0, header) } else { (header, length) };
        let at = usize::try_from(from + random.below(to - from - 8)).unwrap() & !3;
        let value = match random.below(8) {
            0 => 0,
            1 => 1,
            2 => u64::MAX,
            3 => random.below(64),
            4 => 1 << random.below(64),
            5 => bytes.get64(at).wrapping_add(1),
            6 => bytes.get64(at) ^ 1 << random.below(64),
            _ => random.next(),
        };
        if random.below(2) == 0 {
            bytes.set64(at, value)
        } else {
            bytes.set32(at, u32::try_from(value & 0xffff_ffff).unwrap())
        }
    }
    if in_header && random.below(4) != 0 {
        bytes.seal();
    }
}

/// Everything a user can do; the answers do not matter, that there is one does.
fn use_it(name: &TempName) -> bool {
    let observed = options().observe(name);
    if let Ok(observer) = &observed {
        let _ = (observer.mutex("jobs"), observer.semaphore("db"), observer.participants(), observer.info());
    }
    let Ok(segment) = options().attach(name) else { return false };
    if let Ok(jobs) = segment.mutex("jobs") {
        let _ = jobs.snapshot();
        if let Ok(locked) = jobs.lock_timeout(MOMENT) {
            let mut held = locked.guard();
            let _ = held.update(|words| (0..4).try_for_each(|index| words.set(index, 1)));
            let _ = held.unlock();
        }
        let _ = jobs.statistics();
    }
    if let Ok(db) = segment.semaphore("db") {
        let _ = (db.state(), db.available());
        let permit = db.try_acquire(1);
        let _ = (db.acquire_timeout(3, MOMENT), db.reap());
        let _ = permit.map(limitset::sync::Permit::release);
    }
    if let Ok((block, holdings)) = segment.state_block() {
        let me = segment.participant().unwrap();
        let _ = holdings.sweep(&block, me, limitset::protocol::AT_ONCE);
    }
    let _ = (segment.words("mine").map(<[_]>::len), segment.participants(), format!("{segment:?}"));
    let _ = segment.remove_here();
    true
}

#[test]
fn damaged_bytes_are_an_error_or_work_but_never_crash_or_hang() {
    let rounds = support::depth(2_000, 50_000);
    let clean = lived_in();
    let mut random = Random::new(1);
    let mut usable = 0;
    support::watched("random damage", || {
        for _ in 0..rounds {
            let name = TempName::new();
            let mut bytes = clean.clone();
            spoil(&mut bytes, &mut random);
            std::fs::write(name.path(), &bytes.0).unwrap();
            usable += u64::from(use_it(&name));
        }
    });
    let result = format!("{usable} usable, {} refused, no crash, no hang", rounds - usable);
    support::proof("6", &format!("{rounds} segments damaged at random, then used"), &result);
    assert!(usable > 0 && usable < rounds, "the damage reached neither side");
}

#[test]
fn the_segment_that_is_damaged_here_is_usable_when_it_is_not() {
    let name = TempName::new();
    std::fs::write(name.path(), &lived_in().0).unwrap();
    let segment = options().attach(&name).unwrap();
    assert_eq!(segment.mutex("jobs").unwrap().snapshot().unwrap(), [0, 40, 50, 0], "rolled back");
    assert_eq!(segment.semaphore("db").unwrap().statistics().unwrap().rollbacks, 1);
}
