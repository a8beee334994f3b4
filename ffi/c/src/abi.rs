// The version of the binary interface; part of the shared library's name, which is why `build.rs` includes this.

/// The version of the interface that this header describes; see limitset_abi_version().
pub const LIMITSET_ABI_VERSION: u32 = 1;
