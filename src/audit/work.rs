//! Items of work: every item is in one place, the lists are whole, and the counts are right.

use super::picture::Picture;
use super::segment::holder;
use super::{Audit, AuditCheck};
use crate::engine::Table;
use crate::engine::items::{DELAYED, FREE, LEASED};
use crate::layout::work::{ItemWord, List, WorkWord};
use crate::segment::View;

/// States of an item; `engine::items` has the table.
const STATES: [&str; 9] = [
    "free",
    "ready",
    "parked",
    "delayed",
    "leased",
    "done",
    "dead",
    "collected from the results",
    "collected from the dead letters",
];
const COLLECTED: [u64; 2] = [7, 8];

/// The lists, and the state of what is in them.
const LISTS: [(List, &str, u64); 4] = [
    (List::Ready, "ready", 1),
    (List::Parked, "parked", 2),
    (List::Results, "results", 5),
    (List::DeadLetters, "dead letters", 6),
];

pub(super) fn check(view: &View, table: &Table, picture: &Picture, audit: &mut Audit) {
    let header = &view.checked.header;
    if header.items == 0 {
        return;
    }
    let check = audit.begin("work queue");
    let get = |word| picture.get(table.map.work(word));
    if get(WorkWord::Used) > u64::from(header.items) {
        let (used, most) = (get(WorkWord::Used), header.items);
        check.broken(format_args!("{used} items were ever used, there are {most}"));
    }
    if get(WorkWord::Closed) > 1 {
        check.broken(format_args!("whether it is closed is {}, it must be 0 or 1", get(WorkWord::Closed)));
    }
    // How often each item is in a list.
    let mut places = vec![0u32; picture.used_items()];
    for (list, name, state) in LISTS {
        let words = [WorkWord::First(list), WorkWord::Last(list), WorkWord::Length(list)].map(get);
        follow(picture, name, state, words, &mut places, check);
    }
    heap(picture, get(WorkWord::Delayed), &mut places, check);
    free_list(picture, get(WorkWord::Free), &mut places, check);
    items(view, table, picture, &places, check);
}

fn place(places: &mut [u32], item: usize) -> Option<&mut u32> {
    item.checked_sub(1).and_then(|index| places.get_mut(index))
}

/// Follows a list with ends and a length.
fn follow(
    picture: &Picture,
    name: &str,
    state: u64,
    [first, last, length]: [u64; 3],
    places: &mut [u32],
    check: &mut AuditCheck,
) {
    let (mut next, mut previous, mut found) = (first, 0, 0u64);
    while next != 0 {
        let item = usize::try_from(next).ok().filter(|item| *item <= places.len());
        let Some(item) = item.filter(|_| found < places.len() as u64) else {
            check.broken(format_args!("the {name} list leads to item {next}, or has no end"));
            return;
        };
        if let Some(count) = place(places, item) {
            *count += 1;
        }
        found += 1;
        let says = picture.item(item, ItemWord::Previous);
        if says != previous {
            check.broken(format_args!(
                "item {item} of the {name} list stands behind {previous}, and says {says}"
            ));
        }
        let its = picture.item(item, ItemWord::State);
        if its != state {
            check.broken(format_args!(
                "item {item} is in the {name} list, and its state is {}",
                state_name(its)
            ));
        }
        (previous, next) = (next, picture.item(item, ItemWord::Next));
    }
    if previous != last {
        check.broken(format_args!("the {name} list ends with item {previous}, and says {last}"));
    }
    if found != length {
        check.broken(format_args!("{found} items are in the {name} list, and it says {length}"));
    }
}

/// Looks at every cell of the heap of delayed items.
fn heap(picture: &Picture, length: u64, places: &mut [u32], check: &mut AuditCheck) {
    let most = places.len();
    let Some(length) = usize::try_from(length).ok().filter(|length| *length <= most) else {
        check.broken(format_args!("{length} items are delayed, and {most} were ever used"));
        return;
    };
    let in_cell = |cell: usize| picture.item(cell, ItemWord::HeapCell);
    let due = |item: usize| [ItemWord::NotBefore, ItemWord::Lease].map(|word| picture.item(item, word));
    for cell in 1..=length {
        let Some(item) = usize::try_from(in_cell(cell)).ok().filter(|item| (1..=most).contains(item)) else {
            check.broken(format_args!("cell {cell} of the delayed items leads to item {}", in_cell(cell)));
            continue;
        };
        if let Some(count) = place(places, item) {
            *count += 1;
        }
        let its = picture.item(item, ItemWord::State);
        if its != DELAYED {
            check.broken(format_args!(
                "item {item} is among the delayed ones, and its state is {}",
                state_name(its)
            ));
        }
        let above = usize::try_from(in_cell(cell / 2)).unwrap_or(0);
        if cell > 1 && due(item) < due(above) {
            check
                .broken(format_args!("item {item} comes due before item {above}, which is handed out first"));
        }
    }
}

fn free_list(picture: &Picture, first: u64, places: &mut [u32], check: &mut AuditCheck) {
    let (mut next, mut found) = (first, 0);
    while next != 0 {
        let item = usize::try_from(next).ok().filter(|item| *item <= places.len());
        let Some(item) = item.filter(|_| found < places.len()) else {
            check.broken(format_args!("the list of free items leads to {next}, or has no end"));
            return;
        };
        found += 1;
        if let Some(count) = place(places, item) {
            *count += 1;
        }
        let state = picture.item(item, ItemWord::State);
        if state != FREE {
            check.broken(format_args!(
                "item {item} is in the list of free ones, and its state is {}",
                state_name(state)
            ));
        }
        next = picture.item(item, ItemWord::Next);
    }
}

/// Every item that was ever used is in the place that its state says, and carries what it can carry.
fn items(view: &View, table: &Table, picture: &Picture, places: &[u32], check: &mut AuditCheck) {
    let header = &view.checked.header;
    let get = |word| picture.get(table.map.work(word));
    let (mut leased, mut collected) = (0, 0);
    for (index, places) in places.iter().enumerate() {
        let item = index + 1;
        check.looked_at += 1;
        let word = |word| picture.item(item, word);
        let state = word(ItemWord::State);
        if state >= STATES.len() as u64 {
            check.broken(format_args!("item {item} has state {state}, which there is not"));
            continue;
        }
        let is_with_somebody = state == LEASED || COLLECTED.contains(&state);
        if *places != u32::from(!is_with_somebody) {
            check.broken(format_args!("item {item} is {}, and is in {places} lists", state_name(state)));
        }
        leased += u64::from(state == LEASED);
        collected += u64::from(COLLECTED.contains(&state));
        if is_with_somebody {
            let who = picture.owner(word(ItemWord::Slot), word(ItemWord::Generation));
            holder(view, who, &format!("items of work (number {item})"), check);
            let (lease, next) = (word(ItemWord::Lease), get(WorkWord::NextLease));
            if lease >= next {
                check.broken(format_args!("item {item} has lease {lease}, the next one is {next}"));
            }
        }
        if state != FREE {
            let sizes = [
                ("bytes", word(ItemWord::PayloadBytes), header.payload_bytes),
                ("bytes of result", word(ItemWord::ResultBytes), header.result_bytes),
            ];
            for (what, found, most) in sizes {
                if found > u64::from(most) {
                    check.broken(format_args!("item {item} has {found} {what}, the most is {most}"));
                }
            }
        }
    }
    for (what, found, word) in
        [("at work", leased, WorkWord::Leased), ("with collectors", collected, WorkWord::Collected)]
    {
        if found != get(word) {
            check.broken(format_args!("{found} items are {what}, and the queue says {}", get(word)));
        }
    }
}

fn state_name(state: u64) -> String {
    let known = usize::try_from(state).ok().and_then(|state| STATES.get(state));
    known.map_or_else(|| state.to_string(), |name| (*name).to_owned())
}
