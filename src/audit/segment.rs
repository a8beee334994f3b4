//! Checks of every segment: header, definition, blocks with a lock and a journal, semaphores.

use std::sync::atomic::Ordering::{Acquire, Relaxed};

use super::{Audit, AuditCheck};
use crate::format::header::{HEADER_BYTES, Header, RegionEntry};
use crate::limit::Definition;
use crate::protocol::journal::{Entries, journal_words};
use crate::protocol::owner::slot_of;
use crate::protocol::{Block, Fault, Participant};
use crate::segment::View;
use crate::segment::error::SyncError;
use crate::sys::machine::Machine;

/// How often a lock and its journal are read before the holder counts as alive and busy.
const TRIES: u32 = 1_000;

pub(super) fn check(view: &View, audit: &mut Audit) -> Result<(), SyncError> {
    header(view, audit.begin("header"));
    if view.definition.is_some() {
        definition(view, audit.begin("definition"));
    }
    let locks = audit.begin("locks and journals");
    for region in view.blocks() {
        locks.looked_at += 1;
        block(&name(region), &view.block(region)?, locks);
    }
    if !audit.is_sound() {
        return Ok(());
    }
    let mut semaphores = Vec::new();
    for (region, _) in view.semaphores() {
        semaphores.push((name(&region), view.semaphore_state(&region)?));
    }
    if semaphores.is_empty() {
        return Ok(());
    }
    let check = audit.begin("semaphores");
    for (label, state) in semaphores {
        check.looked_at += 1;
        let held: u128 = state.holders.iter().map(|(_, held)| u128::from(*held)).sum();
        if held != u128::from(state.taken) {
            check.broken(format_args!("{label}: {} permits are taken, its holders have {held}", state.taken));
        }
        if state.taken > state.capacity {
            check.broken(format_args!("{label}: {} permits are taken of {}", state.taken, state.capacity));
        }
        for (who, held) in &state.holders {
            holder(view, *who, &format!("{held} permits of {label}"), check);
        }
    }
    Ok(())
}

/// Checks that a participant that is recorded as a holder can exist. `what` names the things that it holds.
pub(super) fn holder(view: &View, who: Participant, what: &str, check: &mut AuditCheck) {
    let Participant { slot, generation } = who;
    let slots = view.slots();
    if slot == 0 || slot > slots.count() {
        check.broken(format_args!("{what} are with slot {slot}, there are {}", slots.count()));
    } else if generation == 0 {
        check.broken(format_args!("{what} are with slot {slot}, but have no owner"));
    } else if generation > slots.generation(slot) {
        let had = slots.generation(slot);
        check.broken(format_args!("{what} are with owner {generation} of slot {slot}, which has had {had}"));
    } else if slots.is_dead(who) {
        check.pending(format_args!("{what} are with owner {generation} of slot {slot}, which is dead"));
    }
}

/// Returns the name of a block for messages.
fn name(region: &RegionEntry) -> String {
    match region.label() {
        [] => "the set".to_owned(),
        label => format!("{:?}", String::from_utf8_lossy(label)),
    }
}

fn header(view: &View, check: &mut AuditCheck) {
    check.looked_at = 1;
    let bytes = bytes(view, 0, HEADER_BYTES.into());
    if let Err(error) = Header::check(&bytes, view.checked.header.total_bytes) {
        check.broken(error);
    } else if bytes.get(..size_of::<Header>()) != Some(bytemuck::bytes_of(&view.checked.header)) {
        check.broken("the header has changed since the segment was opened; it never does");
    }
}

fn definition(view: &View, check: &mut AuditCheck) {
    let (Some(region), Some(opened)) = (&view.checked.definition, &view.definition) else { return };
    check.looked_at = opened.limits.len() as u64;
    match Definition::decode(&bytes(view, region.offset, region.length)) {
        Err(what) => check.broken(format_args!("the definition of limits {what}")),
        Ok(now) if now != **opened => {
            check.broken("the definition of limits has changed since the segment was opened; it never does");
        }
        Ok(_) => {}
    }
}

/// Returns a copy of bytes that never change.
fn bytes(view: &View, offset: u64, length: u64) -> Vec<u8> {
    let words = view.map.words64(offset, usize::try_from(length / 8).unwrap_or(0));
    words.iter().flat_map(|word| word.load(Relaxed).to_ne_bytes()).collect()
}

/// Checks the lock and the journal of a block, unless a living participant holds the lock.
fn block(label: &str, block: &Block<'_, Machine>, check: &mut AuditCheck) {
    let deposed = block.deposed.load(Relaxed);
    if deposed != 0 {
        check.broken(format_args!("{label}: {deposed} unlocks found another owner in the lock"));
    }
    if block.closed.load(Relaxed) != 0 {
        check.pending(format_args!("{label}: was removed, or is being removed"));
    }
    for _ in 0..TRIES {
        let change = block.change.load(Acquire);
        let lock = block.lock.load(Acquire);
        if block.change.load(Relaxed) != change || block.lock.load(Relaxed) != lock {
            continue;
        }
        let slot = slot_of(lock);
        let length = journal_words(change);
        if slot != 0 && block.slots.is_word_dead(lock) {
            if slot > block.slots.count() {
                let slots = block.slots.count();
                check.broken(format_args!("{label}: its lock names slot {slot}, there are {slots}"));
            } else {
                check.pending(format_args!(
                    "{label}: slot {slot} died with its lock: the next participant takes it over"
                ));
            }
        } else if slot != 0 {
            // The holder is alive and may be changing words now.
            return;
        }
        match length {
            0 => {}
            _ if slot == 0 => check
                .broken(format_args!("{label}: was left in the middle of a change, but its lock is free")),
            length => journal(label, block, length, check),
        }
        return;
    }
}

/// Checks a journal that the next lock holder will roll back.
fn journal(label: &str, block: &Block<'_, Machine>, length: u64, check: &mut AuditCheck) {
    let entries = Entries { length, room: block.journal.len(), words: block.words.len() };
    let read = |place: usize| block.journal.get(place).map_or(0, |word| word.load(Relaxed));
    match entries.each(read, |_, _| ()) {
        Err(Fault::DamagedJournal { found, most }) => check.broken(format_args!(
            "{label}: its journal says {found}, the maximum is {most}: it cannot be rolled back"
        )),
        _ => check.pending(format_args!("{label}: a change was left half done, and will be rolled back")),
    }
}
