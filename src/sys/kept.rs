//! A descriptor that the program may close behind our back.
//!
//! After a `closefrom` its number may be any other file's. So the number is private to this type, and it is only handed
//! out or closed after a check that it leads to our file.

use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::atomic::AtomicI32;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};

use super::ofd::{self, Identity};

/// The descriptor of a file, or none.
pub(crate) struct Kept {
    number: AtomicI32,
    identity: Identity,
}

impl Kept {
    /// None yet, of this file.
    pub(crate) fn none(identity: Identity) -> Self {
        Self { number: AtomicI32::new(ofd::NONE), identity }
    }

    /// Keeps a descriptor where none is kept, or where the one that was kept is lost. A lost number is left alone: it may
    /// be another file's by now, or even that of the new descriptor.
    pub(crate) fn keep(&self, descriptor: OwnedFd) {
        self.number.store(descriptor.into_raw_fd(), Release);
    }

    /// Keeps a descriptor that was taken, and closes one that was kept since.
    pub(crate) fn put_back(&self, descriptor: OwnedFd) {
        drop(self.checked(self.number.swap(descriptor.into_raw_fd(), AcqRel)));
    }

    /// Hands it over; none if none is kept, or its number leads elsewhere by now.
    pub(crate) fn take(&self) -> Option<OwnedFd> {
        self.checked(self.number.swap(ofd::NONE, AcqRel))
    }

    /// Closes it. Allowed between fork and exec.
    pub(crate) fn forget(&self) {
        drop(self.take());
    }

    /// Its number, to ask or lock through; none if it leads elsewhere by now.
    pub(crate) fn number(&self) -> Option<RawFd> {
        Some(self.unchecked()).filter(|number| self.is_ours(*number))
    }

    /// The same without the check, and negative for none: locks through a number that leads elsewhere are of no use, and
    /// do no harm.
    pub(crate) fn unchecked(&self) -> RawFd {
        self.number.load(Acquire)
    }

    /// `number` was taken out of its place.
    fn checked(&self, number: RawFd) -> Option<OwnedFd> {
        // SAFETY: the number came from an `OwnedFd` and was taken out of its place by the one caller that got it, so no
        // other code of this library closes it. It leads to our file, so it was not closed behind our back either.
        self.is_ours(number).then(|| unsafe { OwnedFd::from_raw_fd(number) })
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
