//! The waiters region: one entry per waiter.
//!
//! A waiter writes its entry before any other process can reach it, and then links it into the wait queue
//! with a transaction on the state block. Doorbells are a line pair apart, because different processes sleep
//! on them.

use super::{Field, LINE_PAIR, fields};

/// The largest number of waiters of one set.
pub(crate) const MAX_WAITERS: u32 = 1 << 16;
/// The number of waiter entries unless set.
pub(crate) const DEFAULT_WAITERS: u32 = 1024;

/// The start of an entry; the requested amounts, one word per limit, follow in the next line pair.
#[repr(C)]
pub(crate) struct WaiterHead {
    /// The word that the waiter sleeps on; counts rings.
    pub(crate) doorbell: u32,
    pub(crate) reserved_a: u32,
    /// A mask of the requested limits.
    pub(crate) mask: u64,
    /// The instant at which the waiter gives up, by the monotonic clock; for display only.
    pub(crate) deadline: u64,
    /// The alarm: the instant at which the waiter polls without having been woken, in set time.
    pub(crate) wakes_at: u64,
    /// 1: ring the participant's doorbell too, on which one helper thread sleeps for many waiters.
    pub(crate) shares_doorbell: u64,
    /// A mask of the limits of which a report will be due.
    pub(crate) owing: u64,
    /// What the doorbell said when the waiter last looked: a ring is pending while it says something else.
    pub(crate) seen: u64,
    /// 1: another waiter of its process may rely on its alarm, and has to be looked after when this one leaves.
    pub(crate) passes_on: u64,
    pub(crate) reserved_b: [u64; 8],
}

impl WaiterHead {
    pub(crate) const FIELDS: &[Field] = fields!(WaiterHead {
        doorbell,
        reserved_a,
        mask,
        deadline,
        wakes_at,
        shares_doorbell,
        owing,
        seen,
        passes_on,
        reserved_b
    });
}

const _: () = assert!(size_of::<WaiterHead>() == LINE_PAIR as usize);

/// A 64-bit word of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaiterWord {
    Mask,
    Deadline,
    WakesAt,
    SharesDoorbell,
    Owing,
    Seen,
    PassesOn,
    /// What is wanted of a limit.
    Amount(usize),
}

impl WaiterWord {
    /// Returns the word's offset from the start of the entry, in words.
    pub(crate) const fn place(self) -> usize {
        match self {
            Self::Mask => std::mem::offset_of!(WaiterHead, mask) / 8,
            Self::Deadline => std::mem::offset_of!(WaiterHead, deadline) / 8,
            Self::WakesAt => std::mem::offset_of!(WaiterHead, wakes_at) / 8,
            Self::SharesDoorbell => std::mem::offset_of!(WaiterHead, shares_doorbell) / 8,
            Self::Owing => std::mem::offset_of!(WaiterHead, owing) / 8,
            Self::Seen => std::mem::offset_of!(WaiterHead, seen) / 8,
            Self::PassesOn => std::mem::offset_of!(WaiterHead, passes_on) / 8,
            Self::Amount(limit) => LINE_PAIR as usize / 8 + limit,
        }
    }
}

/// Returns the bytes from one entry to the next.
pub(crate) const fn stride(limits: u32) -> u64 {
    let amounts = limits as u64 * 8;
    LINE_PAIR as u64 + amounts.next_multiple_of(LINE_PAIR as u64)
}

pub(crate) const fn region_bytes(waiters: u32, limits: u32) -> u64 {
    waiters as u64 * stride(limits)
}
