//! The size of a page of memory, as the running kernel has it: 4 KiB on x86_64; 4, 16 or 64 KiB on ARM64.

/// Returns the kernel's page size in bytes.
pub(super) fn page_bytes() -> usize {
    // SAFETY: the call takes an integer and touches no memory of ours.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    // The call cannot fail on Linux. A page is never smaller than this.
    usize::try_from(bytes).unwrap_or(0).max(4096)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_a_power_of_two_that_the_kernel_accepts_as_an_offset() {
        let bytes = page_bytes();
        assert!(bytes.is_power_of_two(), "{bytes}");
        let file = super::super::file::create_anonymous().unwrap();
        file.set_len(2 * bytes as u64).unwrap();
        let map = |offset: u64| {
            memmap2::MmapOptions::new().offset(offset).len(bytes).map_raw(&file).unwrap().as_ptr().addr()
        };
        assert!(map(0).is_multiple_of(bytes) && map(bytes as u64).is_multiple_of(bytes));
    }
}
