//! Checks of the wait queue: every entry is in one place, the queue is in order, and the demands add up.

use std::collections::BTreeMap;

use super::segment::holder;
use super::snapshot::Picture;
use super::{Audit, AuditCheck};
use crate::engine::Table;
use crate::engine::waiters::list::{FREE, GRANTED, WAITING};
use crate::format::state::{LinkWord, RuleWord, StateMap};
use crate::segment::View;

/// The states of an entry; `engine::waiters::list` has the table.
const STATES: [&str; 4] = ["free", "waiting", "granted", "refused"];

pub(super) fn check(view: &View, table: &Table, picture: &Picture, audit: &mut Audit) {
    let check = audit.begin("queue");
    let (used, most) = (picture.get(StateMap::USED_WAITERS), u64::from(view.checked.header.waiters));
    if used > most {
        check.broken(format_args!("{used} entries were ever used, the maximum is {most}"));
    }
    let waiting = in_queue(picture, check);
    let free = free_list(picture, check);
    entries(view, table, picture, &waiting, &free, check);
    waited_for(view, table, picture, &waiting, check);
    granted(table, view, picture, check);
}

/// Follows the queue and returns its entries in order, up to the first broken link.
fn in_queue(picture: &Picture, check: &mut AuditCheck) -> Vec<usize> {
    let (used, length) = (picture.used_waiters(), picture.get(StateMap::QUEUE_LENGTH));
    let mut queue: Vec<usize> = Vec::new();
    let (mut next, mut previous, mut ticket) = (picture.get(StateMap::QUEUE_HEAD), 0, None);
    while next != 0 {
        let Some(waiter) = usize::try_from(next).ok().filter(|waiter| *waiter <= used) else {
            check.broken(format_args!("the queue leads to entry {next}, only {used} were ever used"));
            return queue;
        };
        if queue.len() >= used {
            check.broken("the queue has no end");
            return queue;
        }
        let (found, state) =
            (picture.link(waiter, LinkWord::Previous), picture.link(waiter, LinkWord::State));
        if found != previous {
            check.broken(format_args!(
                "entry {waiter} of the queue follows entry {previous}, but its link names {found}"
            ));
        }
        if state != WAITING {
            check.broken(format_args!("entry {waiter} is in the queue, but its state is {}", name(state)));
        }
        let its = picture.link(waiter, LinkWord::Ticket);
        if ticket.is_some_and(|before| its <= before) {
            check.broken(format_args!("entry {waiter} of the queue follows an entry that arrived later"));
        }
        ticket = Some(its);
        queue.push(waiter);
        (previous, next) = (next, picture.link(waiter, LinkWord::Next));
    }
    if previous != picture.get(StateMap::QUEUE_TAIL) {
        let tail = picture.get(StateMap::QUEUE_TAIL);
        check.broken(format_args!("the queue ends with entry {previous}, but its tail is {tail}"));
    }
    if queue.len() as u64 != length {
        check.broken(format_args!("the queue has {} entries, but its length is {length}", queue.len()));
    }
    queue
}

/// Follows the list of free entries and returns them, up to the first broken link.
fn free_list(picture: &Picture, check: &mut AuditCheck) -> Vec<usize> {
    let used = picture.used_waiters();
    let mut free: Vec<usize> = Vec::new();
    let mut next = picture.get(StateMap::FREE_WAITERS);
    while next != 0 {
        let waiter = usize::try_from(next).ok().filter(|waiter| *waiter <= used);
        let Some(waiter) = waiter.filter(|_| free.len() < used) else {
            check.broken(format_args!("the list of free entries leads to {next}, or has no end"));
            return free;
        };
        free.push(waiter);
        next = picture.link(waiter, LinkWord::Next);
    }
    free
}

/// Checks that every entry that was ever used is on the list that its state requires.
fn entries(
    view: &View,
    table: &Table,
    picture: &Picture,
    waiting: &[usize],
    free: &[usize],
    check: &mut AuditCheck,
) {
    let mut places = vec![(0u32, 0u32); picture.used_waiters()];
    let mut count = |list: &[usize], is_queue: bool| {
        for waiter in list {
            if let Some(place) = waiter.checked_sub(1).and_then(|place| places.get_mut(place)) {
                if is_queue { place.0 += 1 } else { place.1 += 1 }
            }
        }
    };
    count(waiting, true);
    count(free, false);
    let next_ticket = picture.get(StateMap::NEXT_TICKET);
    for (index, (in_queue, in_free)) in places.into_iter().enumerate() {
        let waiter = index + 1;
        check.looked_at += 1;
        let state = picture.link(waiter, LinkWord::State);
        let expected = (u32::from(state == WAITING), u32::from(state == FREE));
        if state >= STATES.len() as u64 {
            check.broken(format_args!("entry {waiter} has unknown state {state}"));
        } else if (in_queue, in_free) != expected {
            check.broken(format_args!(
                "entry {waiter} is {}, but is {in_queue} times in the queue and {in_free} times in the free list",
                name(state)
            ));
        }
        if state == FREE {
            continue;
        }
        let who =
            picture.owner(picture.link(waiter, LinkWord::Slot), picture.link(waiter, LinkWord::Generation));
        holder(view, who, &format!("places in the queue ({waiter}, {})", name(state)), check);
        let ticket = picture.link(waiter, LinkWord::Ticket);
        if ticket >= next_ticket {
            check.broken(format_args!("entry {waiter} has ticket {ticket}, the next one is {next_ticket}"));
        }
        let (mask, all) = (picture.wants(waiter).0, table.all());
        if mask & !all != 0 {
            check.broken(format_args!("entry {waiter} wants limits {mask:#b}, there are {all:#b}"));
        }
    }
}

/// Checks that the units that joined the queue and did not leave it are the demands of its waiters.
fn waited_for(view: &View, table: &Table, picture: &Picture, waiting: &[usize], check: &mut AuditCheck) {
    let limits = view.definition.iter().flat_map(|definition| &definition.limits);
    for (index, limit) in limits.enumerate() {
        let number = |word| picture.get(table.map.rule(index, word));
        let waited = number(RuleWord::Enqueued).wrapping_sub(number(RuleWord::Dequeued));
        let wanted = waiting.iter().map(|waiter| picture.wants(*waiter));
        let wanted = wanted.filter(|(mask, _)| mask >> index & 1 != 0);
        let wanted =
            wanted.fold(0u64, |sum, (_, amounts)| sum.wrapping_add(amounts.get(index).copied().unwrap_or(0)));
        if waited != wanted {
            let name = limit.name();
            check.broken(format_args!(
                "{waited} of {name:?} are waited for, but the waiters in the queue want {wanted}"
            ));
        }
    }
}

/// Checks that every participant holds at least the permits that its granted waiters have.
fn granted(table: &Table, view: &View, picture: &Picture, check: &mut AuditCheck) {
    let mut sums = BTreeMap::<(u64, u64, usize), u128>::new();
    for waiter in 1..=picture.used_waiters() {
        if picture.link(waiter, LinkWord::State) != GRANTED {
            continue;
        }
        let who = (picture.link(waiter, LinkWord::Slot), picture.link(waiter, LinkWord::Generation));
        let (mask, amounts) = picture.wants(waiter);
        for (limit, amount) in amounts.iter().enumerate() {
            if mask >> limit & 1 != 0 && table.is_permit(limit) {
                *sums.entry((who.0, who.1, limit)).or_default() += u128::from(*amount);
            }
        }
    }
    for ((slot, generation, limit), granted) in sums {
        let who = picture.owner(slot, generation);
        let row = table.holdings().row(who.slot);
        let is_known =
            who.slot != 0 && who.slot <= view.checked.header.slots && picture.get(row) == generation;
        let held = if is_known { picture.get(row + 1 + limit) } else { 0 };
        if granted > u128::from(held) {
            check.broken(format_args!("slot {slot} was granted {granted} permits, but holds {held}"));
        }
    }
}

fn name(state: u64) -> String {
    let known = usize::try_from(state).ok().and_then(|state| STATES.get(state));
    known.map_or_else(|| state.to_string(), |name| (*name).to_owned())
}
