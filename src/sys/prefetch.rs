//! Asking for a line of memory before it is needed.

use std::sync::atomic::AtomicU64;

/// Lets the processor fetch the line of a word, to be written, while it goes on. Only a hint.
#[inline(always)]
pub(crate) fn to_write(word: &AtomicU64) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch changes nothing and never faults, whatever the address; processors without it do nothing.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) word.as_ptr(), options(nostack, preserves_flags, readonly));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!("prfm pstl1keep, [{}]", in(reg) word.as_ptr(), options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = word;
}
