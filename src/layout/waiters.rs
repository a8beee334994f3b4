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
    /// What the waiter sleeps on.
    pub(crate) doorbell: u32,
    pub(crate) reserved_a: u32,
    /// Which limits are wanted.
    pub(crate) mask: u64,
    pub(crate) deadline: u64,
    pub(crate) reserved_b: [u64; 13],
}

impl WaiterHead {
    pub(crate) const FIELDS: &[Field] =
        fields!(WaiterHead { doorbell, reserved_a, mask, deadline, reserved_b });
}

const _: () = assert!(size_of::<WaiterHead>() == LINE_PAIR as usize);

/// Bytes from one entry to the next.
pub(crate) const fn stride(limits: u32) -> u64 {
    let amounts = limits as u64 * 8;
    LINE_PAIR as u64 + amounts.next_multiple_of(LINE_PAIR as u64)
}

pub(crate) const fn region_bytes(waiters: u32, limits: u32) -> u64 {
    waiters as u64 * stride(limits)
}
