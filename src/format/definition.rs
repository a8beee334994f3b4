//! The definition region: the declaration by the set's creator. Written once, covered by a checksum of its
//! own.
//!
//! ```text
//! head     128 bytes
//! limits   128 bytes each
//! config   per entry: length of the key, length of the value (u32 each), key, value
//! ```

use bytemuck::{Pod, Zeroable};

use super::{Field, fields};

#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(crate) struct DefinitionHead {
    /// The checksum of all bytes after this field.
    pub(crate) checksum: u64,
    pub(crate) limits: u32,
    pub(crate) config_entries: u32,
    pub(crate) config_bytes: u32,
    /// The order of grants; see `Order`.
    pub(crate) order: u32,
    /// The length of the first pause in a row, and the longest without Retry-After.
    pub(crate) pause_nanos: u64,
    pub(crate) longest_pause_nanos: u64,
    /// Gaps of the slow start: the first and the last.
    pub(crate) first_gap_nanos: u64,
    pub(crate) last_gap_nanos: u64,
    /// The number of admissions that are spaced.
    pub(crate) slow_admissions: u32,
    /// The factor by which each pause in a row is longer than the one before, in thousandths.
    pub(crate) pause_factor: u32,
    /// The fraction by which a pause or a gap may be longer at random, in thousandths.
    pub(crate) jitter: u32,
    /// Work queue: when an item becomes a dead letter.
    pub(crate) most_attempts: u32,
    pub(crate) most_rate_limits: u32,
    pub(crate) reserved: [u32; 13],
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(crate) struct LimitDefinition {
    pub(crate) key: [u8; 64],
    pub(crate) key_bytes: u32,
    /// 1 rate, 2 calls, 3 resource.
    pub(crate) kind: u32,
    /// The number of the algorithm; 0 for a resource.
    pub(crate) algorithm: u32,
    /// 1: use must be reported.
    pub(crate) must_report: u32,
    /// 0: not set.
    pub(crate) resolution: u32,
    pub(crate) reserved_a: u32,
    pub(crate) capacity: u64,
    pub(crate) window_nanos: u64,
    /// 0: not set.
    pub(crate) burst: u64,
    pub(crate) reserved_b: [u64; 2],
}

impl DefinitionHead {
    pub(crate) const FIELDS: &[Field] = fields!(DefinitionHead {
        checksum,
        limits,
        config_entries,
        config_bytes,
        order,
        pause_nanos,
        longest_pause_nanos,
        first_gap_nanos,
        last_gap_nanos,
        slow_admissions,
        pause_factor,
        jitter,
        most_attempts,
        most_rate_limits,
        reserved,
    });
}

impl LimitDefinition {
    pub(crate) const FIELDS: &[Field] = fields!(LimitDefinition {
        key,
        key_bytes,
        kind,
        algorithm,
        must_report,
        resolution,
        reserved_a,
        capacity,
        window_nanos,
        burst,
        reserved_b,
    });
}

const _: () = {
    assert!(size_of::<DefinitionHead>() == 128);
    assert!(size_of::<LimitDefinition>() == 128);
};
