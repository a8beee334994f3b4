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
//! Except for a participant that asked for it in advance: it keeps a descriptor as well, to lend its life to one
//! command; see `kept`.
//!
//! Questions about others go through a second description that never holds a lock, because the kernel leaves
//! out the asker's own locks: asked through the same description, our own slot would look free, and two
//! threads of one process would take each other's lock. A descriptor is only a number, though: somebody may have
//! closed it, and it may be a log file by now, or another segment. So before it is asked, it must lead to our
//! file; before "free" is believed, our own byte must be seen locked through it. If not, it is opened anew, and
//! until then nobody is dead. Any error means alive.
//!
//! Byte 0 is the init lock: one process enrols at a time.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};

use super::fork::{self, ForkLock, Forks, InChild};
use super::kept::Kept;
use super::ofd::{self, Identity};
use super::page::page_bytes;
use super::pin::{Pin, PinPlace};

const INIT_LOCK: i64 = 0;

/// This process's descriptors of one segment file, and its hold on a slot.
pub(crate) struct Descriptors {
    /// Asks about others; holds no lock, ever.
    check: Kept,
    /// Will hold our byte: open from the fork (or the start of an enrolment) until the byte is pinned.
    own: Kept,
    /// The epoch that `own` was opened in; in any other process it is somebody else's.
    own_epoch: AtomicU64,
    /// Our slot, for the self-test; 0 for observers.
    own_slot: AtomicU32,
    pin: PinPlace,
    /// A descriptor of the pinned description, if it is to be lent.
    pub(crate) kept: Kept,
    /// One thread at a time asks or replaces `check`.
    asking: ForkLock,
    writable: bool,
    path: Option<PathBuf>,
    identity: Identity,
    mapping: (usize, usize),
    forks: Forks,
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
        let forks = fork::prepare()?;
        let (identity, _) = ofd::look(file.as_raw_fd())?;
        let it = Arc::new(Self {
            check: Kept::none(identity),
            own: Kept::none(identity),
            own_epoch: AtomicU64::new(0),
            own_slot: AtomicU32::new(0),
            pin: PinPlace::default(),
            kept: Kept::none(identity),
            asking: ForkLock::new(),
            writable,
            path,
            identity,
            mapping,
            forks,
        });
        it.check.keep(file.into());
        if writable {
            forks.register(it.clone());
        }
        Ok(it)
    }

    /// Gives the slot up and ends the registration; the descriptors are closed with the last reference.
    pub(crate) fn retire(self: &Arc<Self>) {
        self.unpin();
        self.kept.forget();
        self.forks.unregister(self);
    }

    /// Gives the slot up, as far as this address space holds it.
    pub(crate) fn unpin(&self) {
        drop(self.pin.take());
    }

    /// True only if certainly nobody alive holds the slot's byte.
    pub(crate) fn is_free(&self, slot: u32) -> bool {
        let _turn = self.asking.lock();
        // The second round is for a descriptor that turned out not to be ours.
        for _ in 0..2 {
            // Identity first, and once more at the end: on another segment's file both "taken" and "our own
            // byte is held" can be true.
            if let Some(check) = self.check.number() {
                let is_free = ofd::is_unlocked(check, slot.into(), 1).unwrap_or(false);
                return is_free && self.sees_our_byte(check) && self.leads_to_us(check);
            }
            match self.reopen() {
                Ok(file) => self.check.keep(file.into()),
                Err(_) => return false,
            }
        }
        false
    }

    /// Our own byte must look taken. If it does not, we are nobody, and judge nobody. Observers have none.
    fn sees_our_byte(&self, descriptor: RawFd) -> bool {
        match self.own_slot.load(Acquire) {
            0 => !self.writable,
            own => ofd::is_unlocked(descriptor, own.into(), 1).is_ok_and(|free| !free),
        }
    }

    fn leads_to_us(&self, descriptor: RawFd) -> bool {
        descriptor >= 0 && ofd::look(descriptor).is_ok_and(|(found, _)| found == self.identity)
    }

    /// A new description of the same file, whichever way still works.
    fn reopen(&self) -> io::Result<File> {
        let (start, bytes) = self.mapping;
        let end = start + bytes.next_multiple_of(page_bytes());
        let through = |descriptor: &Kept| Some(through_proc(descriptor.number()?).into());
        let ways = [
            through(&self.own),
            through(&self.check),
            self.path.clone(),
            // For those with the right to use it: survives that all descriptors were closed.
            Some(format!("/proc/self/map_files/{start:x}-{end:x}").into()),
        ];
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for way in ways.into_iter().flatten() {
            let mut options = OpenOptions::new();
            options.read(true).write(self.writable).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
            match options.open(way) {
                Ok(file) if self.leads_to_us(file.as_raw_fd()) => return Ok(file),
                Ok(_) => {}
                // The first refusal says most: later ways are only tried because of it.
                Err(error) if last.kind() == io::ErrorKind::NotFound => last = error,
                Err(_) => {}
            }
        }
        Err(last)
    }

    /// Starts an enrolment with a description of our own. One thread at a time, by the caller's care.
    pub(crate) fn own(&self) -> io::Result<Own<'_>> {
        let epoch = fork::epoch();
        if self.own_epoch.load(Acquire) != epoch {
            // Inherited through a raw clone, and still our parent's description.
            self.own.forget();
            self.own_epoch.store(epoch, Release);
        }
        if self.own.number().is_none() {
            // Not while a fork is under way: its child could not know that it has to close the descriptor.
            self.forks.without_forks(|| self.reopen().map(|file| self.own.keep(file.into())))?;
        }
        Ok(Own { descriptors: self })
    }

    /// Number of names the file has left, or an error if that cannot be told.
    pub(crate) fn names(&self) -> io::Result<u64> {
        for descriptor in [&self.check, &self.own] {
            if let Ok((found, names)) = ofd::look(descriptor.unchecked())
                && found == self.identity
            {
                return Ok(names);
            }
        }
        Err(io::ErrorKind::NotFound.into())
    }

    /// Which file this is about.
    pub(crate) fn identity(&self) -> Identity {
        self.identity
    }
}

impl InChild for Descriptors {
    /// Opens the child's own description at once: after a `setuid`, `chroot` or new mount namespace it could
    /// not be opened any more.
    fn in_child(&self) {
        let mut path = [0u8; 32];
        let inherited = self.own.take();
        for through in [self.check.number(), inherited.as_ref().map(AsRawFd::as_raw_fd)].into_iter().flatten()
        {
            if self.own.unchecked() >= 0 {
                break;
            }
            write_proc_path(&mut path, through);
            // SAFETY: `path` ends with a zero byte; open is allowed in a forked child.
            let opened = unsafe { libc::open(path.as_ptr().cast(), libc::O_RDWR | libc::O_CLOEXEC) };
            if opened >= 0 {
                // SAFETY: it was opened just now, and nothing else knows of it.
                self.own.keep(unsafe { OwnedFd::from_raw_fd(opened) });
            }
        }
        drop(inherited);
        self.kept.forget();
        self.own_slot.store(0, Release);
        self.own_epoch.store(fork::epoch(), Release);
    }
}

/// An enrolment under way. Dropped before [`finish`](Self::finish), it leaves no lock behind.
pub(crate) struct Own<'a> {
    descriptors: &'a Descriptors,
}

impl Own<'_> {
    fn descriptor(&self) -> RawFd {
        self.descriptors.own.unchecked()
    }

    /// Tries to take the init lock.
    pub(crate) fn try_init_lock(&self) -> io::Result<bool> {
        ofd::try_lock(self.descriptor(), INIT_LOCK)
    }

    /// Whether nobody at all holds one of the `slots` bytes.
    pub(crate) fn nobody_enrolled(&self, slots: u32) -> bool {
        ofd::is_unlocked(self.descriptor(), 1, slots.into()).unwrap_or(false)
    }

    /// Takes the first free byte of `slots` and pins it to this address space.
    pub(crate) fn claim(&self, slots: impl Iterator<Item = u32>) -> io::Result<Option<(u32, Pin)>> {
        for slot in slots {
            if ofd::try_lock(self.descriptor(), slot.into())? {
                // Not while a fork is under way: its child would inherit a page that is not yet set apart.
                let pin = self.descriptors.forks.without_forks(|| Pin::new(self.descriptor()))?;
                self.descriptors.own_slot.store(slot, Release);
                return Ok(Some((slot, pin)));
            }
        }
        Ok(None)
    }

    /// Keeps the slot until [`Descriptors::retire`], and gives the init lock back. If it is `to_lend`, the descriptor
    /// stays open.
    pub(crate) fn keep(self, pin: Pin, to_lend: bool) {
        let Descriptors { own, kept, forks, .. } = self.descriptors;
        self.descriptors.pin.keep(pin);
        if to_lend {
            ofd::unlock(self.descriptor(), INIT_LOCK, 1);
            forks.without_forks(|| {
                if let Some(life) = own.take() {
                    kept.put_back(life);
                }
            });
            std::mem::forget(self);
        } else {
            self.finish();
        }
    }

    /// Gives the init lock back; a slot's byte lives on in its pin.
    pub(crate) fn finish(self) {
        ofd::unlock(self.descriptor(), INIT_LOCK, 1);
        // Not while a fork is under way: its child would have the descriptor and not know of it.
        self.descriptors.forks.without_forks(|| self.descriptors.own.forget());
        std::mem::forget(self);
    }
}

impl Drop for Own<'_> {
    /// Failed: every lock goes, the description stays. After a `setuid` there would not be another one.
    fn drop(&mut self) {
        ofd::unlock(self.descriptor(), 0, 0);
    }
}

/// The init lock of a file that is not mapped yet; given back when dropped, and when this process dies.
#[cfg(feature = "shared_memory")]
pub(crate) struct InitLock<'a>(&'a File);

#[cfg(feature = "shared_memory")]
impl<'a> InitLock<'a> {
    /// None if somebody else has it.
    pub(crate) fn try_take(file: &'a File) -> io::Result<Option<Self>> {
        Ok(ofd::try_lock(file.as_raw_fd(), INIT_LOCK)?.then_some(Self(file)))
    }
}

#[cfg(feature = "shared_memory")]
impl Drop for InitLock<'_> {
    fn drop(&mut self) {
        ofd::unlock(self.0.as_raw_fd(), INIT_LOCK, 1);
    }
}

fn through_proc(descriptor: RawFd) -> String {
    // Not /proc/self: that is the main thread, which shows nothing any more once it has ended.
    format!("/proc/thread-self/fd/{descriptor}")
}

/// The same without allocating, for a forked child.
fn write_proc_path(path: &mut [u8; 32], descriptor: RawFd) {
    const PREFIX: &[u8] = b"/proc/thread-self/fd/";
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

#[cfg(test)]
mod tests {
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
        assert_eq!(it.own.unchecked(), ofd::NONE);

        let other = File::open("/dev/null").unwrap();
        assert!(it.check.number().is_some());
        assert!(!it.leads_to_us(other.as_raw_fd()));
        drop(pin);
        assert!(!it.is_free(2), "without a byte of our own we believe nobody dead");
        it.retire();
    }

    #[test]
    fn who_cannot_ask_believes_nobody_dead() {
        fork::prepare().unwrap();
        let path = std::env::temp_dir().join(format!("limitset-test-{}", std::process::id()));
        let create = || File::options().read(true).write(true).create(true).truncate(false).open(&path);
        let it = Descriptors::new(create().unwrap(), Some(path.clone()), (0, 0), true).unwrap();
        assert!(!it.is_free(2), "before the enrolment");
        let own = it.own().unwrap();
        let (_, pin) = own.claim(1..=8).unwrap().unwrap();
        own.finish();
        it.check.forget();
        assert!(it.is_free(2), "opened again, and asked at once");
        it.check.forget();
        std::fs::remove_file(&path).unwrap();
        assert!(!it.is_free(2), "no way back to the file");
        drop(pin);
        it.retire();

        // Can be looked at, and not asked.
        let mut options = OpenOptions::new();
        let only_a_place = options.read(true).custom_flags(libc::O_PATH).open("/").unwrap();
        let it = Descriptors::new(only_a_place, None, (0, 0), false).unwrap();
        assert!(!it.is_free(2));
    }
}
