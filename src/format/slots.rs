//! Participant slots: the attached processes.
//!
//! A slot belongs to the process that holds its byte lock (see `sys::liveness`); only that process writes the
//! slot. The generation counts the slot's owners, so "slot 3, generation 7" names one participant forever.

use super::{Field, LINE_PAIR, fields};

/// Slots are numbered from 1; 12 bits of the lock word hold the number.
pub(crate) const MAX_SLOTS: u32 = 4095;
/// The number of slots unless set.
pub(crate) const DEFAULT_SLOTS: u32 = 256;

/// One slot, in a line pair of its own. Every field is one atomic word, or two.
#[repr(C)]
pub(crate) struct SlotIdentity {
    pub(crate) generation: u64,
    /// The process id in the process's own PID namespace; may repeat across namespaces. 0: the participant
    /// detached.
    pub(crate) pid: u64,
    pub(crate) pid_namespace: u64,
    pub(crate) uid: u64,
    pub(crate) enrolled_unix_nanos: u64,
    /// First 16 bytes of the thread name at enrolment.
    pub(crate) command: [u64; 2],
    /// Rung by a lock holder that grants the demand of a waiter that shares it. The participant's helper
    /// thread sleeps on it.
    pub(crate) doorbell: u32,
    pub(crate) reserved_a: u32,
    pub(crate) reserved_b: [u64; 8],
}

impl SlotIdentity {
    pub(crate) const FIELDS: &[Field] = fields!(SlotIdentity {
        generation,
        pid,
        pid_namespace,
        uid,
        enrolled_unix_nanos,
        command,
        doorbell,
        reserved_a,
        reserved_b
    });
}

/// The number of words from one slot's generation to the next one's.
pub(crate) const SLOT_WORDS: usize = size_of::<SlotIdentity>() / 8;

const _: () = {
    assert!(size_of::<SlotIdentity>() == LINE_PAIR as usize);
    assert!(std::mem::offset_of!(SlotIdentity, generation) == 0);
};

pub(crate) const fn region_bytes(slots: u32) -> u64 {
    slots as u64 * LINE_PAIR as u64
}
