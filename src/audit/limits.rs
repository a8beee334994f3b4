//! Checks of the limits of a set: parameters, holders and rates; its clock and its cooldown.

use super::segment::holder;
use super::snapshot::Picture;
use super::{Audit, AuditCheck};
use crate::engine::Table;
use crate::format::state::{LimitWord, RuleWord, StateMap};
use crate::limit::Clock;
use crate::limit::{Algorithm, Limit, MAX_CAPACITY, MAX_WINDOW};
use crate::protocol::Participant;
use crate::segment::View;
use crate::sys::clock;

pub(super) fn check(view: &View, table: &Table, picture: &Picture, audit: &mut Audit) {
    let Some(definition) = &view.definition else { return };
    let limits = definition.limits.as_slice();
    numbers(table, limits, picture, audit.begin("numbers"));
    totals(view, table, limits, picture, audit.begin("totals"));
    rows(view, table, limits, picture, audit.begin("holders"));
    rates(table, limits, picture, audit.begin("rates"));
    time(view, picture, audit.begin("clock"));
    cooldown(table, picture, audit.begin("cooldown"));
}

/// Checks that the parameters are the declared ones, or valid ones if they were changed live.
fn numbers(table: &Table, limits: &[Limit], picture: &Picture, check: &mut AuditCheck) {
    for (index, limit) in limits.iter().enumerate() {
        check.looked_at += 1;
        let number = |word| picture.get(table.map.rule(index, word));
        let (name, rule) = (limit.name(), limit.rule(0));
        let declared = [
            ("capacity", RuleWord::Capacity, limit.capacity(), MAX_CAPACITY),
            (
                "window",
                RuleWord::WindowNanos,
                rule.map_or(0, |rule| rule.window_nanos()),
                clock::nanos(MAX_WINDOW),
            ),
            ("burst", RuleWord::Burst, rule.map_or(0, |rule| rule.burst()), MAX_CAPACITY),
        ];
        let is_changed = number(RuleWord::Revision) != 0;
        for (what, word, expected, most) in declared {
            let (found, is_rate) = (number(word), rule.is_some());
            if word != RuleWord::Capacity && !is_rate {
                continue;
            }
            if !is_changed && found != expected {
                check.broken(format_args!("the {what} of {name:?} is {found}, {expected} was declared"));
            } else if found == 0 || found > most {
                check.broken(format_args!("the {what} of {name:?} is {found}; it must be 1 to {most}"));
            }
        }
    }
}

/// Checks for each limit with permits that the permits taken are the sum of those that its holders have.
fn totals(view: &View, table: &Table, limits: &[Limit], picture: &Picture, check: &mut AuditCheck) {
    let holdings = table.holdings();
    for (index, limit) in limits.iter().enumerate().filter(|(index, _)| table.is_permit(*index)) {
        check.looked_at += 1;
        let name = limit.name();
        let total = picture.get(table.map.limit(index, LimitWord::Level));
        let slots = 1..=view.checked.header.slots;
        let held: u128 = slots.map(|slot| u128::from(picture.get(holdings.row(slot) + 1 + index))).sum();
        if u128::from(total) != held {
            check.broken(format_args!("{total} of {name:?} are taken, its holders have {held}"));
        }
        let number = |word| picture.get(table.map.rule(index, word));
        let capacity = number(RuleWord::Capacity);
        // After a live change to a lower capacity, more may be taken until permits are released.
        if total > capacity && number(RuleWord::Revision) == 0 {
            check.broken(format_args!("{total} of {name:?} are taken, there are {capacity}"));
        }
    }
}

/// Checks that every row with permits or reports due belongs to a possible participant.
fn rows(view: &View, table: &Table, limits: &[Limit], picture: &Picture, check: &mut AuditCheck) {
    let holdings = table.holdings();
    for slot in 1..=view.checked.header.slots {
        let row = holdings.row(slot);
        let who = Participant { slot, generation: picture.get(row) };
        check.looked_at += u64::from(who.generation != 0);
        for (index, limit) in limits.iter().enumerate() {
            let amount = picture.get(row + 1 + index);
            if amount == 0 {
                continue;
            }
            let is_permit = table.is_permit(index);
            let what = if is_permit { "permits" } else { "reports due" };
            holder(view, who, &format!("{amount} {what} of {:?}", limit.name()), check);
            if !is_permit && !table.must_report(index) {
                check.broken(format_args!(
                    "slot {slot} has reports due of {:?}, which needs no reports",
                    limit.name()
                ));
            }
        }
    }
}

/// Checks that no rate has a decision time in the future or more units than it can have.
fn rates(table: &Table, limits: &[Limit], picture: &Picture, check: &mut AuditCheck) {
    let now = picture.get(StateMap::LAST_NOW);
    let get = |index: usize| picture.get(index);
    for (index, limit) in limits.iter().enumerate() {
        let Some(rule) = table.rule(index, get) else { continue };
        check.looked_at += 1;
        let name = limit.name();
        let until = rule.decided_until(&table.state(index, get));
        if until > now {
            let nanos = until - now;
            check.broken(format_args!(
                "the state of {name:?} is {nanos} ns later than the set's latest decision"
            ));
        }
        let word = |word| picture.get(table.map.limit(index, word));
        if rule.algorithm() == Algorithm::TokenBucket {
            let (tokens, burst) = (word(LimitWord::Level).cast_signed(), rule.burst());
            if tokens > 0 && tokens.unsigned_abs() > burst {
                check.broken(format_args!("{name:?} has {tokens} tokens, the maximum is {burst}"));
            }
            let (part, window) = (word(LimitWord::Remainder), rule.window_nanos());
            if part >= window {
                check.broken(format_args!("{name:?} has {part} of {window} parts of its next token"));
            }
        }
    }
}

/// Checks that the latest decision is not in the future.
fn time(view: &View, picture: &Picture, check: &mut AuditCheck) {
    check.looked_at = 1;
    let reading = match view.checked.clock {
        Clock::Monotonic => clock::monotonic(),
        Clock::Coarse => clock::coarse(),
        Clock::Manual => picture.get(StateMap::MANUAL_NOW),
    };
    let here = [clock::boot_id()[0], clock::boot_id()[1], clock::time_namespace()];
    let there =
        [StateMap::BOOT_ID, StateMap::BOOT_ID + 1, StateMap::TIME_NAMESPACE].map(|word| picture.get(word));
    if view.checked.clock != Clock::Manual && here != there {
        check.pending(
            "it was last used in another boot or time namespace: the next process to attach adjusts its clock",
        );
        return;
    }
    let now = reading.wrapping_add(picture.get(StateMap::CLOCK_OFFSET));
    let last = picture.get(StateMap::LAST_NOW);
    if last > now {
        let nanos = last - now;
        check.broken(format_args!(
            "the latest decision is {nanos} ns in the future: rates do not refill until then"
        ));
    }
}

/// Checks that no gap or pause is longer than the set allows, and that tickets are in order.
fn cooldown(table: &Table, picture: &Picture, check: &mut AuditCheck) {
    check.looked_at = 1;
    let now = picture.get(StateMap::LAST_NOW);
    let latest = now.saturating_add(table.cooldown.longest_gap()).max(picture.get(StateMap::COOLDOWN_UNTIL));
    let next = picture.get(StateMap::NEXT_ADMISSION);
    if next > latest {
        check.broken(format_args!("the next admission is {} ns after any gap or pause ends", next - latest));
    }
    let (left, most) = (picture.get(StateMap::SLOW_ADMISSIONS_LEFT), table.cooldown.slow_admissions());
    if left > most {
        check.broken(format_args!("{left} admissions are left to be spaced, a slow start has {most}"));
    }
    let (reset, ticket) = (picture.get(StateMap::RESET_TICKET), picture.get(StateMap::NEXT_TICKET));
    if reset > ticket {
        check.broken(format_args!("the last reset was at ticket {reset}, the next one is {ticket}"));
    }
}
