//! The definition region: what the set's creator declared. Written once, covered by a checksum of its own.
//!
//! ```text
//! head      64 bytes
//! limits   128 bytes each
//! config   per entry: length of the key, length of the value (u32 each), key, value
//! ```

use bytemuck::{Pod, Zeroable};

use super::{Field, fields};

/// Longest config map, encoded.
pub(crate) const MAX_CONFIG_BYTES: u32 = 1 << 16;

#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(crate) struct DefinitionHead {
    /// Of everything behind this field.
    pub(crate) checksum: u64,
    pub(crate) limits: u32,
    pub(crate) config_entries: u32,
    pub(crate) config_bytes: u32,
    /// Who goes first; see `Order`.
    pub(crate) order: u32,
    pub(crate) reserved: [u32; 10],
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(crate) struct LimitDefinition {
    pub(crate) key: [u8; 64],
    pub(crate) key_bytes: u32,
    /// 1 rate, 2 calls, 3 resource.
    pub(crate) kind: u32,
    /// Number of the algorithm; 0 for a resource.
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
    pub(crate) const FIELDS: &[Field] =
        fields!(DefinitionHead { checksum, limits, config_entries, config_bytes, order, reserved });
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
    assert!(size_of::<DefinitionHead>() == 64);
    assert!(size_of::<LimitDefinition>() == 128);
};
