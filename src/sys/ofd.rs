//! Locks of open file descriptions, and what else is asked of bare descriptor numbers.
//!
//! The numbers may have been closed behind our back, by a `closefrom`, and be anything by now. So they are not
//! wrapped in types that promise otherwise, and their users check what they lead to (`kept`). Every call here accepts any
//! number: one that is not open is an error, and a lock on another file is advice that nothing follows.

use std::fs::Metadata;
use std::io;
use std::os::fd::RawFd;
use std::os::unix::fs::MetadataExt;

use nix::errno::Errno;

/// No descriptor.
pub(crate) const NONE: RawFd = -1;

/// What a descriptor leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) device: u64,
    pub(crate) inode: u64,
}

impl Identity {
    /// Of the file that this is about.
    pub(crate) fn of(about: &Metadata) -> Self {
        Self { device: about.dev(), inode: about.ino() }
    }
}

/// Identity and number of names of the file behind a descriptor.
pub(crate) fn look(descriptor: RawFd) -> io::Result<(Identity, u64)> {
    let mut about = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the buffer is large enough and live; a number that is not open is an error, not harm.
    let code = unsafe { libc::fstat(descriptor, about.as_mut_ptr()) };
    Errno::result(code)?;
    // SAFETY: fstat succeeded, so it has filled the buffer.
    let about = unsafe { about.assume_init() };
    #[allow(clippy::useless_conversion, reason = "a count of links has 32 bits on ARM64, and 64 on x86_64")]
    let links = u64::from(about.st_nlink);
    Ok((Identity { device: about.st_dev, inode: about.st_ino }, links))
}

#[cfg(test)]
thread_local! {
    /// How often this thread has asked the kernel about a lock.
    pub(crate) static QUESTIONS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Whether no other description holds any of `length` bytes from `start`.
pub(crate) fn is_unlocked(descriptor: RawFd, start: i64, length: i64) -> io::Result<bool> {
    #[cfg(test)]
    QUESTIONS.set(QUESTIONS.get() + 1);
    let mut found = range(libc::F_WRLCK, start, length);
    lock_call(descriptor, libc::F_OFD_GETLK, &mut found)?;
    Ok(i32::from(found.l_type) == libc::F_UNLCK)
}

/// Tries to take a byte for this description.
pub(crate) fn try_lock(descriptor: RawFd, byte: i64) -> io::Result<bool> {
    let mut wanted = range(libc::F_WRLCK, byte, 1);
    match lock_call(descriptor, libc::F_OFD_SETLK, &mut wanted) {
        Ok(()) => Ok(true),
        Err(Errno::EAGAIN | Errno::EACCES) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Gives `length` bytes from `start` back; all that follow if `length` is 0.
pub(crate) fn unlock(descriptor: RawFd, start: i64, length: i64) {
    // Can only fail if the descriptor is gone, and the lock with it.
    let _ = lock_call(descriptor, libc::F_OFD_SETLK, &mut range(libc::F_UNLCK, start, length));
}

fn lock_call(descriptor: RawFd, call: libc::c_int, range: &mut libc::flock) -> nix::Result<()> {
    // SAFETY: `range` is a live flock, which is what these calls read and write; a number that is not open is
    // an error, not harm.
    let code = unsafe { libc::fcntl(descriptor, call, std::ptr::from_mut(range)) };
    Errno::result(code).map(drop)
}

fn range(kind: libc::c_int, start: i64, length: i64) -> libc::flock {
    libc::flock {
        l_type: libc::c_short::try_from(kind).unwrap_or(0),
        l_whence: libc::c_short::try_from(libc::SEEK_SET).unwrap_or(0),
        l_start: start,
        l_len: length,
        l_pid: 0,
    }
}
