//! A descriptor of the description that a participant is known to be alive by, kept open on request.
//!
//! Whoever else has it keeps the participant alive: that is what it is for, and why nobody gets it by accident. It
//! is closed in forked children before they do anything, and by `exec` unless it was lent.

use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::atomic::AtomicI32;
use std::sync::atomic::Ordering::AcqRel;

use super::ofd::{self, Identity};

/// Its number, or none. After a `closefrom` the number may be anything, so it is checked against the file.
pub(crate) struct Kept {
    number: AtomicI32,
    identity: Identity,
}

impl Kept {
    pub(crate) fn none(identity: Identity) -> Self {
        Self { number: AtomicI32::new(ofd::NONE), identity }
    }

    /// Keeps a descriptor, or closes it if there is one already.
    pub(crate) fn keep(&self, descriptor: RawFd) {
        let before = self.number.swap(descriptor, AcqRel);
        self.close(before);
    }

    /// Keeps a descriptor that was taken.
    pub(crate) fn put_back(&self, descriptor: OwnedFd) {
        self.keep(descriptor.into_raw_fd());
    }

    /// Hands it over; none if nobody asked for it, or somebody has it already.
    pub(crate) fn take(&self) -> Option<OwnedFd> {
        let number = self.number.swap(ofd::NONE, AcqRel);
        if !self.is_ours(number) {
            return None;
        }
        // SAFETY: the number was taken out of its place, so nobody else closes it, and it leads to our file.
        Some(unsafe { OwnedFd::from_raw_fd(number) })
    }

    /// Closes it: in a forked child it is the parent's life. Allowed between fork and exec.
    pub(crate) fn forget(&self) {
        self.close(self.number.swap(ofd::NONE, AcqRel));
    }

    fn close(&self, number: RawFd) {
        if self.is_ours(number) {
            ofd::close(number);
        }
    }

    fn is_ours(&self, number: RawFd) -> bool {
        number >= 0 && ofd::look(number).is_ok_and(|(found, _)| found == self.identity)
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.forget();
    }
}
