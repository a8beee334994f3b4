//! The version of the interface, and the message of the last error.

use std::ffi::c_char;

/// Returns the version of this library's interface: LIMITSET_ABI_VERSION of the header that it was built with. It
/// changes only when programs have to be compiled again, and is the number in the library's soname.
#[unsafe(no_mangle)]
pub extern "C" fn limitset_abi_version() -> u32 {
    crate::abi::LIMITSET_ABI_VERSION
}

/// Returns the message of the last error of this thread: what failed, what was found, what to do. Empty if there was
/// none; successful calls leave it as it is. Valid until the next call of this thread that fails.
#[unsafe(no_mangle)]
pub extern "C" fn limitset_last_error() -> *const c_char {
    crate::failure::last_message()
}
