//! Words of the state block: everything about a set that changes under its lock.
//!
//! Order is by heat. What one acquire writes (the first line of [`SetWords`] and the [`LimitWords`] of the
//! limits it asks for) stands directly behind the journal; what it only reads follows; holdings and queue
//! links, of which it touches one row, come last.
//!
//! All instants are in set time: the clock named in the header plus `clock_offset`. After a reboot or in
//! another time namespace the offset alone changes, so set time goes on where it stopped.

use super::{Field, fields};

/// Most limits of one set: requests carry a 64-bit mask of limits.
pub(crate) const MAX_LIMITS: u32 = 64;
/// Most window cells of one set, over all limits.
pub(crate) const MAX_CELLS: u32 = 1 << 16;

/// Words of the set as a whole; the first eight are the hot ones.
#[repr(C)]
pub(crate) struct SetWords {
    /// The latest set time any decision used: decisions never go back behind it.
    pub(crate) last_now: u64,
    pub(crate) clock_offset: u64,
    pub(crate) cooldown_until: u64,
    pub(crate) cooldown_generation: u64,
    pub(crate) next_ticket: u64,
    /// Waiters are numbered from 1; 0 ends the list.
    pub(crate) queue_head: u64,
    pub(crate) queue_tail: u64,
    pub(crate) queue_length: u64,
    pub(crate) cooldown_count: u64,
    /// Slow start after a cooldown: no admission before this instant.
    pub(crate) next_admission: u64,
    pub(crate) slow_admissions_left: u64,
    pub(crate) free_waiters: u64,
    /// Boot and time namespace that `clock_offset` belongs to.
    pub(crate) boot_id: [u64; 2],
    pub(crate) time_namespace: u64,
    pub(crate) reserved: u64,
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
}

/// Current numbers of one limit; changed by reconfiguring only.
#[repr(C)]
pub(crate) struct LimitRule {
    pub(crate) capacity: u64,
    pub(crate) window_nanos: u64,
    pub(crate) burst: u64,
    /// How often this limit was reconfigured.
    pub(crate) revision: u64,
}

/// Place of one waiter in the queue; its wish and doorbell are in the waiters region.
#[repr(C)]
pub(crate) struct WaiterLink {
    /// Free, waiting, granted or refused, with the slot of its participant.
    pub(crate) state: u64,
    pub(crate) generation: u64,
    pub(crate) ticket: u64,
    pub(crate) next: u64,
}

impl SetWords {
    pub(crate) const FIELDS: &[Field] = fields!(SetWords {
        last_now,
        clock_offset,
        cooldown_until,
        cooldown_generation,
        next_ticket,
        queue_head,
        queue_tail,
        queue_length,
        cooldown_count,
        next_admission,
        slow_admissions_left,
        free_waiters,
        boot_id,
        time_namespace,
        reserved,
    });
}

impl LimitWords {
    pub(crate) const FIELDS: &[Field] = fields!(LimitWords { level, at, remainder, consumed });
}

impl LimitRule {
    pub(crate) const FIELDS: &[Field] = fields!(LimitRule { capacity, window_nanos, burst, revision });
}

impl WaiterLink {
    pub(crate) const FIELDS: &[Field] = fields!(WaiterLink { state, generation, ticket, next });
}

const SET_WORDS: u32 = 16;
const LIMIT_WORDS: u32 = 4;
const RULE_WORDS: u32 = 4;
const LINK_WORDS: u32 = 4;

const _: () = {
    assert!(size_of::<SetWords>() == 8 * SET_WORDS as usize);
    assert!(size_of::<LimitWords>() == 8 * LIMIT_WORDS as usize);
    assert!(size_of::<LimitRule>() == 8 * RULE_WORDS as usize);
    assert!(size_of::<WaiterLink>() == 8 * LINK_WORDS as usize);
    // One acquire of 64 limits fits the journal, whatever the algorithms.
    assert!(journal_entries(MAX_LIMITS) == 64 * 5 + 16);
};

/// Entries of the state block's journal. Per limit and operation: at most three words of state (level and
/// instant, or a window cell), `consumed`, and what the slot holds. Besides: eight words of the set and two
/// queue links. A multiple of four, so that the words behind the journal start a line.
pub(crate) const fn journal_entries(limits: u32) -> u32 {
    (limits * 5 + 16).next_multiple_of(4)
}

/// Finds words of the state block by meaning. Indices count 64-bit words from the start of the words.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StateMap {
    pub(crate) limits: u32,
    pub(crate) cells: u32,
    pub(crate) slots: u32,
    pub(crate) waiters: u32,
}

impl StateMap {
    pub(crate) const LAST_NOW: usize = std::mem::offset_of!(SetWords, last_now) / 8;
    pub(crate) const CLOCK_OFFSET: usize = std::mem::offset_of!(SetWords, clock_offset) / 8;
    pub(crate) const BOOT_ID: usize = std::mem::offset_of!(SetWords, boot_id) / 8;
    pub(crate) const TIME_NAMESPACE: usize = std::mem::offset_of!(SetWords, time_namespace) / 8;

    /// First word of the first limit's [`LimitWords`].
    pub(crate) const fn limit_words(self) -> usize {
        SET_WORDS as usize
    }

    /// Words from one limit to the next.
    pub(crate) const fn limit_stride(self) -> usize {
        LIMIT_WORDS as usize
    }

    /// First word of the rows that say what each slot holds: generation, then one word per limit.
    pub(crate) const fn holding_rows(self) -> usize {
        self.words_before_rows() as usize
    }

    const fn words_before_rows(self) -> u32 {
        SET_WORDS + self.limits * (LIMIT_WORDS + RULE_WORDS) + self.cells
    }

    /// All words of the state block.
    pub(crate) const fn words(self) -> u32 {
        let rows = self.slots * (1 + self.limits);
        self.words_before_rows() + rows + self.waiters * LINK_WORDS
    }
}
