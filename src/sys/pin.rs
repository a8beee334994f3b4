//! A pin: what ties an open file description to an address space.

use std::io;
use std::os::fd::RawFd;

use super::fork;
use super::page::page_bytes;

/// A page of a description, mapped so that the description lives exactly as long as this address space.
pub(crate) struct Pin {
    pub(super) address: usize,
    pub(super) epoch: u64,
}

impl Pin {
    pub(super) fn new(descriptor: RawFd) -> io::Result<Self> {
        // SAFETY: a mapping without a fixed address replaces nothing, and without any access right nobody can
        // read or write through it.
        let page = unsafe {
            libc::mmap(std::ptr::null_mut(), page_bytes(), libc::PROT_NONE, libc::MAP_SHARED, descriptor, 0)
        };
        if page == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let pin = Self { address: page.addr(), epoch: fork::epoch() };
        // SAFETY: the range is the mapping just made.
        if unsafe { libc::madvise(page, page_bytes(), libc::MADV_DONTFORK) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(pin)
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        // In a forked child the page is not there, and the address may be anything else by now.
        if self.epoch == fork::epoch() && self.address != 0 {
            let page = std::ptr::without_provenance_mut(self.address);
            // SAFETY: addresses come from `new` alone, in this very process, and each is held by one `Pin` or
            // by `Descriptors`, which hands it out once; no reference into the page can exist.
            unsafe { libc::munmap(page, page_bytes()) };
        }
    }
}
