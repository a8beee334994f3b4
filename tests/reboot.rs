//! After a reboot or a crash of everybody: a segment in a file is found as it was left, and nobody gains by it.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

#[path = "support/forge.rs"]
mod forge;
#[path = "support/mod.rs"]
mod support;

use std::sync::atomic::Ordering::Relaxed;

use forge::{Forged, SEMAPHORE_REGION, STATE_REGION};
use limitset::protocol::NEVER;
use limitset::{Segment, SegmentOptions};
use support::TempName;

const HOUR: u64 = 3_600_000_000_000;
/// First word of the first limit, and words from limit to limit.
const LIMIT_WORDS: usize = 32;
const LIMIT_STRIDE: usize = 8;
const CONSUMED: usize = 3;

fn options() -> SegmentOptions {
    Segment::options().slots(3).waiters(2).limits(3).semaphore("db", 9)
}

fn monotonic() -> u64 {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).unwrap();
    u64::try_from(now.tv_sec()).unwrap() * 1_000_000_000 + u64::try_from(now.tv_nsec()).unwrap()
}

/// Attaches, takes permits of all limits and of the semaphore, and vanishes without giving any back.
fn leave_with_permits(name: &TempName) {
    let segment = options().create(name).unwrap();
    let (block, holdings) = segment.state_block().unwrap();
    let me = segment.participant().unwrap();
    let mut guard = block.lock(me, NEVER).unwrap().guard();
    holdings.adopt(&mut guard).unwrap();
    let mut change = guard.begin();
    for limit in 0..3 {
        holdings.take(&mut change, me, limit, 5 + limit as u64).unwrap();
        change.set(LIMIT_WORDS + limit * LIMIT_STRIDE + CONSUMED, 100).unwrap();
    }
    change.commit();
    drop(guard);
    std::mem::forget(segment.semaphore("db").unwrap().acquire(9).unwrap());
}

/// Half an update: two words are changed, the journal knows what they were, the lock is held by the dead.
fn half_an_update(bytes: &mut Forged, kind: u32, words: [(usize, u64); 2]) {
    let block = bytes.region(kind);
    bytes.set32(block, 1 | 1 << 12);
    bytes.set64(block + forge::CHANGE, 9 << 16 | 4);
    for (entry, (index, value)) in words.into_iter().enumerate() {
        let at = bytes.word(kind, index);
        let journal = block + forge::JOURNAL + 16 * entry;
        bytes.set64(journal, bytes.get64(at));
        bytes.set64(journal + 8, forge::description(index, 1));
        bytes.set64(at, value);
    }
}

/// Words of the state block.
fn state(segment: &Segment) -> Vec<u64> {
    segment.state_block().unwrap().0.words.iter().map(|word| word.load(Relaxed)).collect()
}

#[test]
fn after_a_reboot_half_an_update_is_undone_permits_are_free_and_time_goes_on_where_it_stopped() {
    // The clock of the last boot was far ahead, or far behind: either way nobody gains.
    for last_now in [monotonic() + 100 * HOUR, 1] {
        let name = TempName::new();
        leave_with_permits(&name);
        let mut bytes = Forged::read(&name.path());
        half_an_update(&mut bytes, STATE_REGION, [(LIMIT_WORDS + CONSUMED, 777), (LIMIT_WORDS + 7, 777)]);
        half_an_update(&mut bytes, SEMAPHORE_REGION, [(1, 8), (3, 8)]);
        let boot = bytes.word(STATE_REGION, forge::BOOT_ID);
        bytes.set64(boot, 42);
        let at = bytes.word(STATE_REGION, forge::LAST_NOW);
        bytes.set64(at, last_now);
        std::fs::remove_file(name.path()).unwrap();
        std::fs::write(name.path(), &bytes.0).unwrap();

        let before = monotonic();
        let segment = options().open(&name).unwrap();
        let after = monotonic();
        let words = state(&segment);
        for limit in 0..3 {
            let at = LIMIT_WORDS + limit * LIMIT_STRIDE;
            assert_eq!((words[at], words[at + CONSUMED]), (0, 100), "permits return, charges stay");
        }
        assert_eq!(segment.semaphore("db").unwrap().available().unwrap(), 9);
        assert_ne!(words[forge::BOOT_ID], 42);
        // Set time at some instant between `before` and `after` was exactly `last_now`.
        let offset = words[forge::CLOCK_OFFSET];
        assert!(before.wrapping_add(offset).wrapping_sub(last_now).cast_signed() <= 0);
        assert!(after.wrapping_add(offset).wrapping_sub(last_now).cast_signed() >= 0);
        drop(segment);
        let again = options().open(&name).unwrap();
        assert_eq!(state(&again)[forge::CLOCK_OFFSET], offset, "taken over once");
    }
}

#[test]
fn without_a_reboot_the_clock_is_left_alone() {
    let name = TempName::new();
    leave_with_permits(&name);
    let segment = options().open(&name).unwrap();
    assert_eq!(state(&segment)[forge::CLOCK_OFFSET], 0);
}

#[test]
fn a_semaphore_whose_total_was_damaged_is_counted_anew_when_nobody_is_there() {
    let name = TempName::new();
    drop(options().create(&name).unwrap());
    let mut bytes = Forged::read(&name.path());
    let at = bytes.word(SEMAPHORE_REGION, 1);
    bytes.set64(at, 1_000);
    bytes.write(&name.path());
    let segment = options().open(&name).unwrap();
    assert_eq!(segment.semaphore("db").unwrap().available().unwrap(), 9);
}

#[test]
fn what_the_dead_held_in_any_slot_is_free_for_the_first_to_attach() {
    let name = TempName::new();
    let first = options().create(&name).unwrap();
    let second = options().open(&name).unwrap();
    let (block, holdings) = second.state_block().unwrap();
    let me = second.participant().unwrap();
    let mut guard = block.lock(me, NEVER).unwrap().guard();
    holdings.adopt(&mut guard).unwrap();
    let mut change = guard.begin();
    holdings.take(&mut change, me, 1, 7).unwrap();
    change.commit();
    guard.unlock().unwrap();
    assert_eq!((me.slot, state(&first)[LIMIT_WORDS + LIMIT_STRIDE]), (2, 7));
    drop((first, second));
    let next = options().open(&name).unwrap();
    assert_eq!(next.participant().unwrap().slot, 1, "another slot than the one that held them");
    assert_eq!(state(&next)[LIMIT_WORDS + LIMIT_STRIDE], 0);
}

#[test]
fn either_half_of_the_boot_id_tells_another_boot() {
    for half in 0..2 {
        let name = TempName::new();
        drop(options().create(&name).unwrap());
        let mut bytes = Forged::read(&name.path());
        let at = bytes.word(STATE_REGION, forge::BOOT_ID + half);
        let boot = bytes.get64(at);
        bytes.set64(at, boot ^ 1);
        bytes.write(&name.path());
        let words = state(&options().open(&name).unwrap());
        assert_eq!(words[forge::BOOT_ID + half], boot);
        assert_ne!(words[forge::CLOCK_OFFSET], 0, "taken over");
    }
}

#[test]
fn a_clock_in_use_is_left_alone_though_its_namespace_is_not_known() {
    let name = TempName::new();
    let first = options().create(&name).unwrap();
    let (block, _) = first.state_block().unwrap();
    block.words[forge::TIME_NAMESPACE].store(0, Relaxed);
    let second = options().open(&name).unwrap();
    let words = state(&second);
    assert_eq!((words[forge::TIME_NAMESPACE], words[forge::CLOCK_OFFSET]), (0, 0));
}
