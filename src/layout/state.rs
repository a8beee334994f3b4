//! Words of the state block: everything about a set that changes under its lock.
//!
//! Order is by heat. What one acquire writes (the first line of [`SetWords`] and the [`LimitWords`] of the
//! limits it asks for) stands directly behind the journal; what it only reads follows; holdings, of
//! which it touches one row, come next, then the work queue, where there is one (see [`work`](super::work)), and last the
//! links of waiters and the items of work, with the heap of those that are delayed.
//!
//! All instants are in set time: the clock named in the header plus `clock_offset`. After a reboot or in
//! another time namespace the offset alone changes, so set time goes on where it stopped.

use super::work::{HEAP_LEVELS, ITEM_WORDS, ItemWord, WORK_WORDS, WorkWord};
use super::{Field, fields};
use crate::math::Word;

/// Most limits of one set: requests carry a 64-bit mask of limits.
pub(crate) const MAX_LIMITS: u32 = 64;
/// Most window cells of one set, over all limits.
pub(crate) const MAX_CELLS: u32 = 1 << 16;

/// Words of the set as a whole; the first eight are the hot ones.
#[repr(C)]
pub(crate) struct SetWords {
    /// The latest set time any decision used: decisions never go back behind it.
    pub(crate) last_now: u64,
    pub(crate) next_ticket: u64,
    /// Nobody is admitted before this instant: the end of a pause, or of a gap of the slow start after it. 0: neither
    /// is on, unless admissions are left to be spaced.
    pub(crate) next_admission: u64,
    /// How many pauses there have been.
    pub(crate) cooldown_generation: u64,
    pub(crate) clock_offset: u64,
    /// Waiters are numbered from 1; 0 ends the list.
    pub(crate) queue_head: u64,
    pub(crate) queue_tail: u64,
    pub(crate) queue_length: u64,
    /// When the last pause ends, or ended.
    pub(crate) cooldown_until: u64,
    /// Pauses since something last went well.
    pub(crate) cooldown_count: u64,
    /// How many more admissions are spaced.
    pub(crate) slow_admissions_left: u64,
    pub(crate) free_waiters: u64,
    /// Boot and time namespace that `clock_offset` belongs to.
    pub(crate) boot_id: [u64; 2],
    pub(crate) time_namespace: u64,
    /// Unix time minus set time: fixed windows are aligned by it.
    pub(crate) wall_offset: u64,
    /// What the clock reads, where the program itself moves it.
    pub(crate) manual_now: u64,
    /// Waiter entries that were ever used; those behind them are on no list.
    pub(crate) used_waiters: u64,
    /// Statistics, not journalled, up to `unenforced`.
    pub(crate) sweeps: u64,
    pub(crate) reaped_participants: u64,
    pub(crate) reaped_units: u64,
    /// Acquisitions that were let through because the set could not be asked.
    pub(crate) unenforced: u64,
    /// The next ticket at the last reset: what was charged to earlier ones is forgotten, and cannot be given back.
    /// Journalled.
    pub(crate) reset_ticket: u64,
    /// How many were told to slow down, and said so, by the pause of this generation.
    pub(crate) cooldown_reports: u64,
    /// How many such reports began no pause, of all generations.
    pub(crate) cooldown_absorbed: u64,
    pub(crate) reserved: [u64; 7],
}

/// What changes in one limit. Which word means what is the algorithm's business.
#[repr(C)]
pub(crate) struct LimitWords {
    /// Tokens (may be negative: debt), level, count, permits in use, or theoretical arrival time.
    pub(crate) level: u64,
    /// Instant the level belongs to, or number of the window.
    pub(crate) at: u64,
    /// Remainder carried by integer refill, or count of the window before.
    pub(crate) remainder: u64,
    /// Net units consumed since creation, independent of refill.
    pub(crate) consumed: u64,
    /// How many acquisitions took from it.
    pub(crate) granted: u64,
    /// How many were refused because of it. Not journalled.
    pub(crate) denied: u64,
    /// Units given back.
    pub(crate) refunded: u64,
    /// Acquisitions that ended without the report they owed.
    pub(crate) unreported: u64,
}

/// Current numbers of one limit; changed by reconfiguring only.
#[repr(C)]
pub(crate) struct LimitRule {
    pub(crate) capacity: u64,
    pub(crate) window_nanos: u64,
    pub(crate) burst: u64,
    /// How often this limit was reconfigured.
    pub(crate) revision: u64,
    /// Units that ever joined the queue.
    pub(crate) enqueued: u64,
    /// Units that left it again, granted or not.
    pub(crate) dequeued: u64,
    pub(crate) reserved: [u64; 2],
}

/// Place of one waiter in the queue; its wish and doorbell are in the waiters region.
#[repr(C)]
pub(crate) struct WaiterLink {
    /// 0 free, 1 waiting, 2 granted, 3 refused for good.
    pub(crate) state: u64,
    /// Who waits.
    pub(crate) slot: u64,
    pub(crate) generation: u64,
    pub(crate) ticket: u64,
    /// In the queue, or in the list of free entries.
    pub(crate) next: u64,
    pub(crate) previous: u64,
    /// Generation of the pauses when it was granted.
    pub(crate) pause: u64,
    pub(crate) reserved: u64,
}

impl SetWords {
    pub(crate) const FIELDS: &[Field] = fields!(SetWords {
        last_now,
        next_ticket,
        next_admission,
        cooldown_generation,
        clock_offset,
        queue_head,
        queue_tail,
        queue_length,
        cooldown_until,
        cooldown_count,
        slow_admissions_left,
        free_waiters,
        boot_id,
        time_namespace,
        wall_offset,
        manual_now,
        used_waiters,
        sweeps,
        reaped_participants,
        reaped_units,
        unenforced,
        reset_ticket,
        cooldown_reports,
        cooldown_absorbed,
        reserved,
    });
}

impl LimitWords {
    pub(crate) const FIELDS: &[Field] =
        fields!(LimitWords { level, at, remainder, consumed, granted, denied, refunded, unreported });
}

impl LimitRule {
    pub(crate) const FIELDS: &[Field] =
        fields!(LimitRule { capacity, window_nanos, burst, revision, enqueued, dequeued, reserved });
}

impl WaiterLink {
    pub(crate) const FIELDS: &[Field] =
        fields!(WaiterLink { state, slot, generation, ticket, next, previous, pause, reserved });
}

const SET_WORDS: u32 = 32;
const LIMIT_WORDS: u32 = 8;
const RULE_WORDS: u32 = 8;
const LINK_WORDS: u32 = 8;

const _: () = {
    assert!(size_of::<SetWords>() == 8 * SET_WORDS as usize);
    assert!(size_of::<LimitWords>() == 8 * LIMIT_WORDS as usize);
    assert!(size_of::<LimitRule>() == 8 * RULE_WORDS as usize);
    assert!(size_of::<WaiterLink>() == 8 * LINK_WORDS as usize);
    // Any operation on 64 limits fits the journal, whatever the algorithms.
    assert!(journal_entries(MAX_LIMITS) == 64 * 10 + 48);
    // So does putting off or handing out a delayed item: the cells from a leaf to the root of the heap, and 14 other words.
    assert!(journal_entries(0) >= HEAP_LEVELS + 14);
};

/// Entries of the state block's journal. Per limit and operation: at most six words of state and four of its
/// rule (reconfiguring), or three words of state, `consumed`, what the slot holds and what is queued (granting).
/// Besides: words of the set, queue links, an item of work and one path through the heap of delayed items. A multiple of four, so that the words behind it start a
/// line.
pub(crate) const fn journal_entries(limits: u32) -> u32 {
    (limits * 10 + 48).next_multiple_of(4)
}

/// Finds words of the state block by meaning. Indices count 64-bit words from the start of the words.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StateMap {
    pub(crate) limits: u32,
    pub(crate) cells: u32,
    pub(crate) slots: u32,
    pub(crate) waiters: u32,
    /// Items of the work queue; 0: there is none.
    pub(crate) items: u32,
}

/// The index of a field of [`SetWords`].
macro_rules! set_word {
    ($($name:ident = $field:ident),+ $(,)?) => {
        $(pub(crate) const $name: usize = std::mem::offset_of!(SetWords, $field) / 8;)+
    };
}

/// A field of one limit's [`LimitWords`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LimitWord {
    Level = 0,
    At = 1,
    Remainder = 2,
    Consumed = 3,
    Granted = 4,
    Denied = 5,
    Refunded = 6,
    Unreported = 7,
}

/// A field of one limit's [`LimitRule`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RuleWord {
    Capacity = 0,
    WindowNanos = 1,
    Burst = 2,
    Revision = 3,
    Enqueued = 4,
    Dequeued = 5,
}

/// A field of one waiter's [`WaiterLink`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkWord {
    State = 0,
    Slot = 1,
    Generation = 2,
    Ticket = 3,
    Next = 4,
    Previous = 5,
    Pause = 6,
}

const _: () = {
    assert!(LinkWord::Pause as usize == std::mem::offset_of!(WaiterLink, pause) / 8);
    assert!(LimitWord::Unreported as usize == std::mem::offset_of!(LimitWords, unreported) / 8);
    assert!(RuleWord::Dequeued as usize == std::mem::offset_of!(LimitRule, dequeued) / 8);
    // What a decision reads and writes stands side by side.
    assert!(StateMap::NEXT_TICKET == StateMap::LAST_NOW + 1);
    assert!(RuleWord::WindowNanos as usize == 1 && RuleWord::Burst as usize == 2);
};

impl StateMap {
    set_word! {
        LAST_NOW = last_now,
        CLOCK_OFFSET = clock_offset,
        BOOT_ID = boot_id,
        TIME_NAMESPACE = time_namespace,
        NEXT_TICKET = next_ticket,
        QUEUE_HEAD = queue_head,
        QUEUE_TAIL = queue_tail,
        QUEUE_LENGTH = queue_length,
        FREE_WAITERS = free_waiters,
        USED_WAITERS = used_waiters,
        WALL_OFFSET = wall_offset,
        MANUAL_NOW = manual_now,
        SWEEPS = sweeps,
        REAPED_PARTICIPANTS = reaped_participants,
        REAPED_UNITS = reaped_units,
        UNENFORCED = unenforced,
        RESET_TICKET = reset_ticket,
        NEXT_ADMISSION = next_admission,
        COOLDOWN_GENERATION = cooldown_generation,
        COOLDOWN_UNTIL = cooldown_until,
        COOLDOWN_COUNT = cooldown_count,
        SLOW_ADMISSIONS_LEFT = slow_admissions_left,
        COOLDOWN_REPORTS = cooldown_reports,
        COOLDOWN_ABSORBED = cooldown_absorbed,
    }

    /// First word of the first limit's [`LimitWords`].
    pub(crate) const fn limit_words(self) -> usize {
        SET_WORDS as usize
    }

    /// Words from one limit to the next.
    pub(crate) const fn limit_stride(self) -> usize {
        LIMIT_WORDS as usize
    }

    /// A word of what changes in a limit.
    pub(crate) const fn limit(self, limit: usize, word: LimitWord) -> usize {
        SET_WORDS as usize + limit * LIMIT_WORDS as usize + word as usize
    }

    /// A word of the numbers of a limit.
    pub(crate) const fn rule(self, limit: usize, word: RuleWord) -> usize {
        SET_WORDS as usize
            + self.limits as usize * LIMIT_WORDS as usize
            + limit * RULE_WORDS as usize
            + word as usize
    }

    /// The word that an algorithm means, of a limit whose words and cells begin there.
    pub(crate) const fn state_word(first_word: usize, first_cell: usize, word: Word) -> usize {
        match word {
            Word::Level => first_word + LimitWord::Level as usize,
            Word::At => first_word + LimitWord::At as usize,
            Word::Remainder => first_word + LimitWord::Remainder as usize,
            Word::Cell(cell) => first_cell + cell as usize,
        }
    }

    /// The first window cell of all.
    pub(crate) const fn first_cell(self) -> usize {
        SET_WORDS as usize + self.limits as usize * (LIMIT_WORDS + RULE_WORDS) as usize
    }

    /// First word of the rows that say what each slot holds: generation, then one word per limit.
    pub(crate) const fn holding_rows(self) -> usize {
        self.words_before_rows() as usize
    }

    /// A word of the link of a waiter, who are numbered from 1.
    pub(crate) const fn link(self, waiter: usize, word: LinkWord) -> usize {
        let links = self.words_before_links() as usize;
        links + waiter.saturating_sub(1) * LINK_WORDS as usize + word as usize
    }

    /// A word of the work queue as a whole.
    pub(crate) const fn work(self, word: WorkWord) -> usize {
        self.words_before_work() as usize + word.place()
    }

    /// A word of an item of work, which are numbered from 1.
    pub(crate) const fn item(self, item: usize, word: ItemWord) -> usize {
        let items = self.words_before_items() as usize;
        items + item.saturating_sub(1) * ITEM_WORDS as usize + word as usize
    }

    const fn words_before_rows(self) -> u32 {
        SET_WORDS + self.limits * (LIMIT_WORDS + RULE_WORDS) + self.cells
    }

    const fn words_before_work(self) -> u32 {
        self.words_before_rows() + self.slots * (1 + self.limits)
    }

    /// Everything but links and items: what tells how the set stands.
    pub(crate) const fn words_before_links(self) -> u32 {
        self.words_before_work() + if self.items == 0 { 0 } else { WORK_WORDS }
    }

    const fn words_before_items(self) -> u32 {
        self.words_before_links() + self.waiters * LINK_WORDS
    }

    /// All words of the state block.
    pub(crate) const fn words(self) -> u32 {
        self.words_before_items() + self.items * ITEM_WORDS
    }
}
