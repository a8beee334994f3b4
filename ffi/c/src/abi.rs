// The version of the binary interface. It is part of the shared library's name, so `build.rs` includes this file.

/// The version of the interface that this header describes; see limitset_abi_version().
pub const LIMITSET_ABI_VERSION: u32 = 1;
