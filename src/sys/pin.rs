//! A pin: what ties an open file description to an address space.

use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use std::sync::atomic::{AtomicU64, AtomicUsize};

use super::fork;
use super::page::page_bytes;

/// A page of a description, mapped so that the description lives exactly as long as this address space.
pub(crate) struct Pin {
    address: usize,
    epoch: u64,
}

/// Where a pin is kept, or none.
#[derive(Default)]
pub(super) struct PinPlace {
    /// 0 for none.
    address: AtomicUsize,
    epoch: AtomicU64,
}

impl PinPlace {
    /// Keeps a pin; one that was kept before is leaked, so there should be none.
    pub(super) fn keep(&self, pin: Pin) {
        self.epoch.store(pin.epoch, Release);
        self.address.store(pin.address, Release);
        std::mem::forget(pin);
    }

    /// Hands the pin out, once.
    pub(super) fn take(&self) -> Pin {
        Pin { address: self.address.swap(0, AcqRel), epoch: self.epoch.load(Acquire) }
    }
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
            // by a `PinPlace`, which hands it out once; no reference into the page can exist.
            unsafe { libc::munmap(page, page_bytes()) };
        }
    }
}
