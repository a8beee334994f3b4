//! The work queue: its words in the state block, and the items region with its doorbells and the bytes of each item.
//!
//! What decides about an item is in the state block, under the set's lock and journal. Its payload is written while
//! nobody can reach the item, and its result by whoever has it, before the transaction that says so.

use super::{Field, LINE_PAIR, fields};

/// Most items of one queue.
pub(crate) const MAX_ITEMS: u32 = 1 << 20;
/// Levels of the heap of delayed items when all of them are.
pub(crate) const HEAP_LEVELS: u32 = MAX_ITEMS.ilog2() + 1;
/// Most bytes of a payload, and of a result.
pub(crate) const MAX_ITEM_BYTES: u32 = 1 << 16;

/// Start of the items region: the doorbells of the queue. Bit 0 says that somebody may sleep on one; the rest counts
/// changes.
#[repr(C)]
pub(crate) struct WorkBells {
    /// Those who wait for an item.
    pub(crate) takers: u32,
    /// Those who wait for room.
    pub(crate) pushers: u32,
    /// Those who wait for a result.
    pub(crate) collectors: u32,
    /// Those who wait for the end of all work.
    pub(crate) drainers: u32,
    pub(crate) reserved: [u64; 14],
}

impl WorkBells {
    pub(crate) const FIELDS: &[Field] =
        fields!(WorkBells { takers, pushers, collectors, drainers, reserved });
    /// How many there are.
    pub(crate) const COUNT: usize = std::mem::offset_of!(WorkBells, reserved) / 4;
}

const _: () = assert!(size_of::<WorkBells>() == LINE_PAIR as usize);

/// Items in one state, in order. Items are numbered from 1; 0 ends the list.
#[repr(C)]
pub(crate) struct ItemList {
    pub(crate) first: u64,
    pub(crate) last: u64,
    pub(crate) length: u64,
}

/// Words of the queue as a whole.
#[repr(C)]
pub(crate) struct WorkWords {
    pub(crate) ready: ItemList,
    /// Whose request was answered with "too many requests": until the pause is over.
    pub(crate) parked: ItemList,
    /// Done, with a result that nobody has collected.
    pub(crate) results: ItemList,
    pub(crate) dead_letters: ItemList,
    /// How many are to be tried again at an instant of their own: cells of the heap in use, see `engine::delayed`.
    pub(crate) delayed: u64,
    /// The instant at which a waiting taker looks by itself; 0: no taker does. Not journalled.
    pub(crate) alarm: u64,
    /// First of the items that were used and are free.
    pub(crate) free: u64,
    /// Items that were ever used; those behind them are on no list.
    pub(crate) used: u64,
    /// How many are at work.
    pub(crate) leased: u64,
    /// 1: nothing more is pushed.
    pub(crate) closed: u64,
    pub(crate) next_lease: u64,
    pub(crate) pushed: u64,
    pub(crate) taken: u64,
    pub(crate) done: u64,
    pub(crate) retried: u64,
    /// How often an item was parked.
    pub(crate) parkings: u64,
    /// How often one was handed out again after the pause.
    pub(crate) redistributed: u64,
    /// How often one came back from a dead worker.
    pub(crate) returned: u64,
    pub(crate) dead_lettered: u64,
    /// How many results and dead letters are with a collector.
    pub(crate) collected: u64,
    pub(crate) reserved: [u64; 4],
}

/// One item, and one cell of the heap of delayed items; an item's bytes are in the items region.
#[repr(C)]
pub(crate) struct ItemWords {
    /// See `engine::work`.
    pub(crate) state: u64,
    pub(crate) next: u64,
    pub(crate) previous: u64,
    /// The program's own number.
    pub(crate) id: u64,
    /// Who has it.
    pub(crate) slot: u64,
    pub(crate) generation: u64,
    /// Number of the hand-out. Delayed: the next number of the same count, which orders items that come due together.
    pub(crate) lease: u64,
    /// How often it was handed out, 429s apart.
    pub(crate) attempts: u64,
    /// How many hand-outs ended with a 429.
    pub(crate) rate_limits: u64,
    /// Delayed: when it may be handed out.
    pub(crate) not_before: u64,
    pub(crate) payload_bytes: u64,
    pub(crate) result_bytes: u64,
    /// Why it is a dead letter.
    pub(crate) reason: u64,
    /// Not of this item: the cell with its number in the heap of delayed items, which names one of them.
    pub(crate) heap_cell: u64,
}

impl ItemList {
    pub(crate) const FIELDS: &[Field] = fields!(ItemList { first, last, length });
}

impl WorkWords {
    pub(crate) const FIELDS: &[Field] = fields!(WorkWords {
        ready,
        parked,
        results,
        dead_letters,
        delayed,
        alarm,
        free,
        used,
        leased,
        closed,
        next_lease,
        pushed,
        taken,
        done,
        retried,
        parkings,
        redistributed,
        returned,
        dead_lettered,
        collected,
        reserved,
    });
}

impl ItemWords {
    pub(crate) const FIELDS: &[Field] = fields!(ItemWords {
        state,
        next,
        previous,
        id,
        slot,
        generation,
        lease,
        attempts,
        rate_limits,
        not_before,
        payload_bytes,
        result_bytes,
        reason,
        heap_cell,
    });
}

pub(crate) const WORK_WORDS: u32 = 32;
pub(crate) const ITEM_WORDS: u32 = 14;

const _: () = {
    assert!(size_of::<WorkWords>() == 8 * WORK_WORDS as usize);
    assert!(size_of::<ItemWords>() == 8 * ITEM_WORDS as usize);
    assert!(ItemWord::HeapCell as usize == std::mem::offset_of!(ItemWords, heap_cell) / 8);
    assert!(List::DeadLetters.place() == std::mem::offset_of!(WorkWords, dead_letters) / 8);
};

/// One of the lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum List {
    Ready,
    Parked,
    Results,
    DeadLetters,
}

impl List {
    const fn place(self) -> usize {
        self as usize * (size_of::<ItemList>() / 8)
    }
}

/// A word of [`WorkWords`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkWord {
    First(List),
    Last(List),
    Length(List),
    Delayed,
    Alarm,
    Free,
    Used,
    Leased,
    Closed,
    NextLease,
    Pushed,
    Taken,
    Done,
    Retried,
    Parkings,
    Redistributed,
    Returned,
    DeadLettered,
    Collected,
}

impl WorkWord {
    /// Words from the start of the queue's.
    pub(crate) const fn place(self) -> usize {
        macro_rules! at {
            ($field:ident) => {
                std::mem::offset_of!(WorkWords, $field) / 8
            };
        }
        match self {
            Self::First(list) => list.place(),
            Self::Last(list) => list.place() + 1,
            Self::Length(list) => list.place() + 2,
            Self::Delayed => at!(delayed),
            Self::Alarm => at!(alarm),
            Self::Free => at!(free),
            Self::Used => at!(used),
            Self::Leased => at!(leased),
            Self::Closed => at!(closed),
            Self::NextLease => at!(next_lease),
            Self::Pushed => at!(pushed),
            Self::Taken => at!(taken),
            Self::Done => at!(done),
            Self::Retried => at!(retried),
            Self::Parkings => at!(parkings),
            Self::Redistributed => at!(redistributed),
            Self::Returned => at!(returned),
            Self::DeadLettered => at!(dead_lettered),
            Self::Collected => at!(collected),
        }
    }
}

/// A word of one item's [`ItemWords`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ItemWord {
    State = 0,
    Next = 1,
    Previous = 2,
    Id = 3,
    Slot = 4,
    Generation = 5,
    Lease = 6,
    Attempts = 7,
    RateLimits = 8,
    NotBefore = 9,
    PayloadBytes = 10,
    ResultBytes = 11,
    Reason = 12,
    HeapCell = 13,
}

/// Bytes from one item to the next in the items region: payload, then result, each of whole words, in lines of their
/// own because different processes write them.
pub(crate) const fn stride(payload_bytes: u32, result_bytes: u32) -> u64 {
    let words = words(payload_bytes) + words(result_bytes);
    (words * 8).next_multiple_of(64)
}

/// Words that so many bytes need.
pub(crate) const fn words(bytes: u32) -> u64 {
    (bytes as u64).div_ceil(8)
}

pub(crate) const fn region_bytes(items: u32, payload_bytes: u32, result_bytes: u32) -> u64 {
    size_of::<WorkBells>() as u64 + items as u64 * stride(payload_bytes, result_bytes)
}
