//! A descriptor of the open file description that proves a participant alive, kept open on request.
//!
//! A process that inherits this descriptor keeps the participant alive. That is its purpose, and the reason
//! why no process gets it by accident: forked children close it first, and `exec` closes it unless it was
//! handed off.

use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::atomic::AtomicI32;
use std::sync::atomic::Ordering::AcqRel;

use super::ofd::{self, Identity};

/// The descriptor's number, or none. After a `closefrom` the number may be anything, so it is checked against
/// the file.
pub(crate) struct Kept {
    number: AtomicI32,
    identity: Identity,
}

impl Kept {
    pub(crate) fn none(identity: Identity) -> Self {
        Self { number: AtomicI32::new(ofd::NONE), identity }
    }

    /// Keeps a descriptor, and closes the one kept before.
    pub(crate) fn keep(&self, descriptor: RawFd) {
        let before = self.number.swap(descriptor, AcqRel);
        self.close(before);
    }

    /// Keeps a descriptor that was taken out before.
    pub(crate) fn put_back(&self, descriptor: OwnedFd) {
        self.keep(descriptor.into_raw_fd());
    }

    /// Takes the descriptor out; none if it was not requested, or was taken out already.
    pub(crate) fn take(&self) -> Option<OwnedFd> {
        let number = self.number.swap(ofd::NONE, AcqRel);
        if !self.is_ours(number) {
            return None;
        }
        // SAFETY: the number was taken out of its place, so no other thread closes it, and it leads to our
        // file.
        Some(unsafe { OwnedFd::from_raw_fd(number) })
    }

    /// Closes the descriptor: in a forked child it would keep the parent's slot lock. Allowed between fork
    /// and exec.
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
