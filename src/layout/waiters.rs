//! The waiters region: one entry per blocked acquirer.
//!
//! An entry is written by its waiter while nobody can reach it, then linked into the queue by a transaction
//! on the state block. Doorbells are a line pair apart, because different processes sleep on them.

use super::{Field, LINE_PAIR, fields};

/// Most waiters of one set.
pub(crate) const MAX_WAITERS: u32 = 1 << 16;
/// Room for this many blocked acquirers unless asked otherwise.
pub(crate) const DEFAULT_WAITERS: u32 = 1024;

/// Start of an entry; the amounts wanted, one word per limit, follow in the next line pair.
#[repr(C)]
pub(crate) struct WaiterHead {
    /// What the waiter sleeps on; counts rings.
    pub(crate) doorbell: u32,
    pub(crate) reserved_a: u32,
    /// Which limits are wanted.
    pub(crate) mask: u64,
    /// When the waiter gives up, by the monotonic clock; for people to read.
    pub(crate) deadline: u64,
    /// When the waiter looks for itself, in set time.
    pub(crate) wakes_at: u64,
    /// 1: ring the doorbell of the participant too, behind which many waiters sleep as one.
    pub(crate) shares_doorbell: u64,
    /// Of which limits a report comes to be owed.
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
    /// Words from the start of the entry.
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

/// Bytes from one entry to the next.
pub(crate) const fn stride(limits: u32) -> u64 {
    let amounts = limits as u64 * 8;
    LINE_PAIR as u64 + amounts.next_multiple_of(LINE_PAIR as u64)
}

pub(crate) const fn region_bytes(waiters: u32, limits: u32) -> u64 {
    waiters as u64 * stride(limits)
}
