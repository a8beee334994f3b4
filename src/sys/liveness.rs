//! Liveness: how the others know that a participant has died.
//!
//! Each slot has a byte of the segment file; its owner holds a write lock on it (an open-file-description
//! lock). Such a lock ends when the last reference to its description ends. So that it ends *exactly* with
//! the process, neither earlier nor later, the description is made for this one purpose, a page of it is
//! mapped without any access and without inheritance (MADV_DONTFORK), and then its descriptor is closed. From
//! then on only the address space refers to it:
//!
//! * `closefrom` in a daemon cannot drop it, as it would an open descriptor;
//! * a forked child does not keep it alive, as it would with an inherited descriptor;
//! * `exec` and every kind of death end it.
//!
//! Questions about others go through a second description that never holds a lock, because the kernel leaves
//! out the asker's own locks: asked through the same description, our own slot would look free, and two
//! threads of one process would take each other's lock. Before "free" is believed, our own byte is asked for
//! through the same descriptor. If that is not locked, the descriptor is not ours any more (somebody closed
//! it, and the number may be a log file by now): it is opened anew, and until then nobody is dead. Any error
//! means alive.
//!
//! Byte 0 is the init lock: one process enrols at a time.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::RangeInclusive;
use std::os::fd::{BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};

use super::fork::{self, ForkLock, InChild};

const PIN_BYTES: usize = 4096;
const NO_DESCRIPTOR: RawFd = -1;

/// This process's descriptors of one segment file.
pub(crate) struct Descriptors {
    /// Asks about others; holds no lock, ever.
    check: AtomicI32,
    /// Will hold our byte: open from the fork (or the start of an enrolment) until the byte is pinned.
    own: AtomicI32,
    /// The epoch that `own` was opened in; in any other process it is somebody else's.
    own_epoch: AtomicU64,
    /// Our slot, for the self-test; 0 for observers.
    own_slot: AtomicU32,
    /// One thread at a time asks or replaces `check`.
    asking: ForkLock,
    writable: bool,
    path: Option<PathBuf>,
    identity: (u64, u64),
    mapping: (usize, usize),
}

impl Descriptors {
    /// Takes over `file`. `path` and `mapping` (address and length of a mapping of the file) are ways to open
    /// it again.
    pub(crate) fn new(
        file: File,
        path: Option<PathBuf>,
        mapping: (usize, usize),
        writable: bool,
    ) -> io::Result<Arc<Self>> {
        let identity = identity(&file)?;
        let it = Arc::new(Self {
            check: AtomicI32::new(file.into_raw_fd()),
            own: AtomicI32::new(NO_DESCRIPTOR),
            own_epoch: AtomicU64::new(0),
            own_slot: AtomicU32::new(0),
            asking: ForkLock::new(),
            writable,
            path,
            identity,
            mapping,
        });
        if writable {
            fork::register(it.clone());
        }
        Ok(it)
    }

    /// Ends the registration; the descriptors are closed with the last reference.
    pub(crate) fn retire(self: &Arc<Self>) {
        fork::unregister(self);
    }

    /// True only if certainly nobody alive holds the slot's byte.
    pub(crate) fn is_free(&self, slot: u32) -> bool {
        let _turn = self.asking.lock();
        // The second round is for a descriptor that turned out not to be ours.
        for _ in 0..2 {
            let check = self.check.load(Acquire);
            let free = is_unlocked(check, i64::from(slot), 1);
            if free == Ok(false) {
                return false;
            }
            if self.is_ours(check) {
                return free == Ok(true);
            }
            if self.refers_to_us(check) {
                // The right file, but our own byte is not held: we are nobody, and judge nobody.
                return false;
            }
            match self.reopen() {
                // The old number may be somebody else's file by now: it is left alone.
                Ok(file) => self.check.store(file.into_raw_fd(), Release),
                Err(_) => return false,
            }
        }
        false
    }

    fn is_ours(&self, descriptor: RawFd) -> bool {
        match self.own_slot.load(Acquire) {
            0 => self.refers_to_us(descriptor),
            own => is_unlocked(descriptor, i64::from(own), 1) == Ok(false),
        }
    }

    fn refers_to_us(&self, descriptor: RawFd) -> bool {
        if descriptor < 0 {
            return false;
        }
        // SAFETY: the number is only lent to one fstat, which fails if it is not open; the wrapper is never
        // dropped, so nothing is closed.
        let file = std::mem::ManuallyDrop::new(unsafe { File::from_raw_fd(descriptor) });
        identity(&file).is_ok_and(|found| found == self.identity)
    }

    /// A new description of the same file, whichever way still works.
    fn reopen(&self) -> io::Result<File> {
        let (start, bytes) = self.mapping;
        let end = start + bytes.next_multiple_of(PIN_BYTES);
        let ways = [
            Some(through_proc(self.own.load(Relaxed)).into()),
            Some(through_proc(self.check.load(Relaxed)).into()),
            self.path.clone(),
            // For those with the right to use it: survives that all descriptors were closed.
            Some(format!("/proc/self/map_files/{start:x}-{end:x}").into()),
        ];
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for way in ways.into_iter().flatten() {
            match OpenOptions::new().read(true).write(self.writable).open(way) {
                Ok(file) if identity(&file)? == self.identity => return Ok(file),
                Ok(_) => {}
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Starts an enrolment with a description of our own. One thread at a time, by the caller's care.
    pub(crate) fn own(&self) -> io::Result<Own<'_>> {
        let epoch = fork::epoch();
        if self.own_epoch.load(Acquire) != epoch {
            // Inherited through a raw clone, and still our parent's description.
            close(self.own.swap(NO_DESCRIPTOR, AcqRel));
            self.own_epoch.store(epoch, Release);
        }
        if self.own.load(Acquire) == NO_DESCRIPTOR {
            // Not while a fork is under way: its child could not know that it has to close the descriptor.
            fork::without_forks(|| -> io::Result<()> {
                let file = self.reopen()?;
                self.own.store(file.into_raw_fd(), Release);
                Ok(())
            })?;
        }
        Ok(Own { descriptors: self })
    }

    /// Number of names the file has left, or an error if that cannot be told.
    pub(crate) fn names(&self) -> io::Result<u64> {
        let check = self.check.load(Acquire);
        if !self.refers_to_us(check) {
            return Err(io::ErrorKind::NotFound.into());
        }
        // SAFETY: as in `refers_to_us`.
        let file = std::mem::ManuallyDrop::new(unsafe { File::from_raw_fd(check) });
        Ok(file.metadata()?.nlink())
    }

    /// Device and inode of the file.
    pub(crate) fn identity(&self) -> (u64, u64) {
        self.identity
    }
}

impl InChild for Descriptors {
    /// Opens the child's own description at once: after a `setuid`, `chroot` or new mount namespace it could
    /// not be opened any more.
    fn in_child(&self) {
        let mut path = [0u8; 32];
        let inherited = self.own.swap(NO_DESCRIPTOR, AcqRel);
        for through in [self.check.load(Acquire), inherited] {
            if through < 0 || !self.refers_to_us(through) || self.own.load(Acquire) >= 0 {
                continue;
            }
            write_proc_path(&mut path, through);
            // SAFETY: `path` ends with a zero byte; open is allowed in a forked child.
            let opened = unsafe { libc::open(path.as_ptr().cast(), libc::O_RDWR | libc::O_CLOEXEC) };
            self.own.store(opened, Release);
        }
        close(inherited);
        self.own_slot.store(0, Release);
        self.own_epoch.store(fork::epoch(), Release);
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        let check = *self.check.get_mut();
        // After a closefrom the number may be somebody else's: close only what is ours.
        if self.refers_to_us(check) {
            close(check);
        }
        let own = *self.own.get_mut();
        if self.refers_to_us(own) {
            close(own);
        }
    }
}

/// An enrolment under way. Dropped before [`finish`](Self::finish), it leaves no lock behind.
pub(crate) struct Own<'a> {
    descriptors: &'a Descriptors,
}

impl Own<'_> {
    fn descriptor(&self) -> RawFd {
        self.descriptors.own.load(Acquire)
    }

    /// Tries to take the init lock.
    pub(crate) fn try_init_lock(&self) -> io::Result<bool> {
        try_lock(self.descriptor(), 0)
    }

    /// Whether nobody at all holds one of the `slots` bytes.
    pub(crate) fn nobody_enrolled(&self, slots: u32) -> bool {
        is_unlocked(self.descriptor(), 1, i64::from(slots)) == Ok(true)
    }

    /// Takes the first free byte of `slots` and pins it to this address space.
    pub(crate) fn claim(&self, slots: RangeInclusive<u32>) -> io::Result<Option<(u32, Pin)>> {
        for slot in slots {
            if try_lock(self.descriptor(), i64::from(slot))? {
                let pin = Pin::new(self.descriptor())?;
                self.descriptors.own_slot.store(slot, Release);
                return Ok(Some((slot, pin)));
            }
        }
        Ok(None)
    }

    /// Gives the init lock back; the slot's byte lives on in its pin.
    pub(crate) fn finish(self) {
        let unlock = range_lock(libc::F_UNLCK, 0, 1);
        let _ = with_descriptor(self.descriptor(), |fd| fcntl(fd, FcntlArg::F_OFD_SETLK(&unlock)));
    }
}

impl Drop for Own<'_> {
    fn drop(&mut self) {
        close(self.descriptors.own.swap(NO_DESCRIPTOR, AcqRel));
    }
}

/// A page of a description, mapped so that the description lives exactly as long as this address space.
pub(crate) struct Pin {
    address: usize,
    epoch: u64,
}

impl Pin {
    fn new(descriptor: RawFd) -> io::Result<Self> {
        // SAFETY: a mapping without a fixed address replaces nothing, and without any access right nobody can
        // read or write through it.
        let page = unsafe {
            libc::mmap(std::ptr::null_mut(), PIN_BYTES, libc::PROT_NONE, libc::MAP_SHARED, descriptor, 0)
        };
        if page == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let pin = Self { address: page.addr(), epoch: fork::epoch() };
        // SAFETY: the range is the mapping just made.
        if unsafe { libc::madvise(page, PIN_BYTES, libc::MADV_DONTFORK) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(pin)
    }

    /// Forgets the pin without ending it; it can be made again from these numbers.
    pub(crate) fn into_parts(self) -> (usize, u64) {
        let parts = (self.address, self.epoch);
        std::mem::forget(self);
        parts
    }

    /// The pin of [`into_parts`](Self::into_parts), which must have come from there and be used once.
    pub(crate) fn from_parts((address, epoch): (usize, u64)) -> Self {
        Self { address, epoch }
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        // In a forked child the page is not there, and the address may be anything else by now.
        if self.epoch == fork::epoch() && self.address != 0 {
            let page = std::ptr::without_provenance_mut(self.address);
            // SAFETY: the page was mapped by `new` in this very process, is known to this value alone, and no
            // reference into it can exist.
            unsafe { libc::munmap(page, PIN_BYTES) };
        }
    }
}

fn identity(file: &File) -> io::Result<(u64, u64)> {
    let it = file.metadata()?;
    Ok((it.dev(), it.ino()))
}

fn through_proc(descriptor: RawFd) -> String {
    format!("/proc/self/fd/{descriptor}")
}

/// The same without allocating, for a forked child.
fn write_proc_path(path: &mut [u8; 32], descriptor: RawFd) {
    const PREFIX: &[u8] = b"/proc/self/fd/";
    let mut digits = [0u8; 10];
    let mut rest = descriptor.unsigned_abs();
    let mut count = 0;
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + u8::try_from(rest % 10).unwrap_or(0);
        rest /= 10;
        count += 1;
        if rest == 0 {
            break;
        }
    }
    let number = digits.iter().skip(digits.len() - count);
    path.fill(0);
    for (to, from) in path.iter_mut().zip(PREFIX.iter().chain(number)) {
        *to = *from;
    }
}

fn range_lock(kind: libc::c_int, start: i64, length: i64) -> libc::flock {
    libc::flock {
        l_type: libc::c_short::try_from(kind).unwrap_or(0),
        l_whence: libc::c_short::try_from(libc::SEEK_SET).unwrap_or(0),
        l_start: start,
        l_len: length,
        l_pid: 0,
    }
}

fn with_descriptor<T>(
    descriptor: RawFd,
    action: impl FnOnce(BorrowedFd<'_>) -> nix::Result<T>,
) -> nix::Result<T> {
    if descriptor < 0 {
        return Err(Errno::EBADF);
    }
    // SAFETY: not -1. The number may have been closed behind our back; `fcntl` then fails, or asks about some
    // other file, which the self-test in `is_free` notices.
    action(unsafe { BorrowedFd::borrow_raw(descriptor) })
}

/// Whether no other description holds any byte of the range.
fn is_unlocked(descriptor: RawFd, start: i64, length: i64) -> nix::Result<bool> {
    let mut found = range_lock(libc::F_WRLCK, start, length);
    with_descriptor(descriptor, |fd| fcntl(fd, FcntlArg::F_OFD_GETLK(&mut found)))?;
    Ok(i32::from(found.l_type) == libc::F_UNLCK)
}

fn try_lock(descriptor: RawFd, byte: i64) -> io::Result<bool> {
    let wanted = range_lock(libc::F_WRLCK, byte, 1);
    match with_descriptor(descriptor, |fd| fcntl(fd, FcntlArg::F_OFD_SETLK(&wanted))) {
        Ok(_) => Ok(true),
        Err(Errno::EAGAIN | Errno::EACCES) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn close(descriptor: RawFd) {
    if descriptor >= 0 {
        // SAFETY: callers pass only descriptors that this module opened and has taken out of its fields.
        drop(unsafe { OwnedFd::from_raw_fd(descriptor) });
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn a_proc_path_is_written_without_allocating() {
        for number in [0, 7, 10, 1234, RawFd::MAX] {
            let mut path = [1u8; 32];
            write_proc_path(&mut path, number);
            let text = std::ffi::CStr::from_bytes_until_nul(&path).unwrap();
            assert_eq!(text.to_str().unwrap(), through_proc(number));
        }
    }

    #[test]
    fn a_pinned_byte_is_seen_as_taken_and_ends_with_its_pin() {
        fork::prepare().unwrap();
        let file = super::super::file::create_anonymous().unwrap();
        file.set_len(8192).unwrap();
        let it = Descriptors::new(file, None, (0, 0), true).unwrap();
        let own = it.own().unwrap();
        assert!(own.try_init_lock().unwrap());
        assert!(own.nobody_enrolled(8));
        let (slot, pin) = own.claim(1..=8).unwrap().unwrap();
        own.finish();
        assert_eq!(slot, 1);
        assert!(!it.is_free(1), "our own slot never looks free");
        assert!(it.is_free(2));
        assert_eq!(it.own.load(Relaxed), NO_DESCRIPTOR);

        // The number now leads to another file: nobody is dead, and the way back is found or not.
        let check = it.check.load(Relaxed);
        let other = File::open("/dev/null").unwrap();
        assert!(it.is_ours(check));
        assert!(!it.is_ours(other.as_raw_fd()));
        drop(pin);
        assert!(!it.is_free(2), "without a byte of our own we believe nobody dead");
        it.retire();
    }
}
