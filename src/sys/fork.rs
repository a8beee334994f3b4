//! Noticing a fork, and acting in the child.
//!
//! A page that the kernel wipes in every forked child (MADV_WIPEONFORK) holds this process's epoch. Reading it
//! is one load, works for raw `clone` too, and needs no system call. When it reads 0 we are in a child that
//! has not looked yet: its epoch is the copied counter plus one, so that a child, its child and so on all
//! differ. (A constant would make a grandchild look like its parent.)
//!
//! Besides, children made by libc's `fork` run [`InChild::in_child`] of everything registered, before any
//! other code of the child: what must happen before privileges are dropped happens there.

use std::cell::RefCell;
use std::io;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use super::{clock, futex};

const PAGE_BYTES: usize = 4096;

/// Epochs given out so far in this process and its ancestors.
static COUNTER: AtomicU64 = AtomicU64::new(0);
/// The word that is wiped by a fork.
static WIPED: OnceLock<&'static AtomicU64> = OnceLock::new();

/// This process's number in its line of ancestors: never the same as that of any of them.
#[inline(always)]
pub(crate) fn epoch() -> u64 {
    match WIPED.get().map(|word| (word, word.load(Acquire))) {
        Some((word, 0)) => first_look(word),
        Some((_, epoch)) => epoch,
        // Nothing was attached yet, so there is nothing to tell apart.
        None => 0,
    }
}

/// Whether this process has this epoch, which is not 0. Less work than asking for the [epoch]: a child that has not
/// looked yet finds 0, which is not the epoch of any process.
#[inline(always)]
pub(crate) fn has_epoch(epoch: u64) -> bool {
    WIPED.get().is_some_and(|word| word.load(Acquire) == epoch)
}

#[cold]
fn first_look(word: &AtomicU64) -> u64 {
    let next = COUNTER.load(SeqCst) + 1;
    // The counter first: a fork between the two lines must not copy an old counter beside a wiped page.
    COUNTER.fetch_max(next, SeqCst);
    match word.compare_exchange(0, next, SeqCst, SeqCst) {
        Ok(_) => next,
        Err(epoch) => epoch,
    }
}

/// Prepares fork detection; to be called before anything asks for the epoch.
pub(crate) fn prepare() -> io::Result<()> {
    if WIPED.get().is_some() {
        return Ok(());
    }
    let mut registry = registry();
    if WIPED.get().is_none() {
        let word = wiped_page()?;
        // SAFETY: the handlers are functions of this library, which do only what a fork handler may.
        let code = unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(in_child)) };
        if code != 0 {
            return Err(io::Error::from_raw_os_error(code));
        }
        registry.reserve(8);
        // While /proc can be seen.
        clock::boot_id();
        clock::time_namespace();
        let _ = WIPED.set(word);
        epoch();
    }
    Ok(())
}

fn wiped_page() -> io::Result<&'static AtomicU64> {
    // SAFETY: a fresh anonymous mapping without a fixed address replaces nothing.
    let page = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            PAGE_BYTES,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if page == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the range is exactly the mapping just made, which nobody else knows of.
    if unsafe { libc::madvise(page, PAGE_BYTES, libc::MADV_WIPEONFORK) } != 0 {
        let error = io::Error::last_os_error();
        // SAFETY: as above; no reference into the page exists.
        unsafe { libc::munmap(page, PAGE_BYTES) };
        return Err(error);
    }
    // SAFETY: the page is readable, writable, aligned, zeroed, and never unmapped.
    Ok(unsafe { &*page.cast::<AtomicU64>() })
}

/// Something that has to act in a forked child at once. Must neither allocate nor lock.
pub(crate) trait InChild: Send + Sync {
    /// Called in the child by libc's `fork`, while no other thread exists.
    fn in_child(&self);
}

type Registry = Vec<Arc<dyn InChild>>;
static REGISTRY: Mutex<Registry> = Mutex::new(Vec::new());

fn registry() -> MutexGuard<'static, Registry> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Acts in children from now on.
pub(crate) fn register(it: Arc<dyn InChild>) {
    registry().push(it);
}

/// Acts in children no longer.
pub(crate) fn unregister(it: &Arc<impl InChild + 'static>) {
    let mut registry = registry();
    registry.retain(|other| !std::ptr::addr_eq(Arc::as_ptr(other), Arc::as_ptr(it)));
}

/// Runs `action` while no thread of this process can be inside libc's `fork`.
pub(crate) fn without_forks<T>(action: impl FnOnce() -> T) -> T {
    let _gate = registry();
    action()
}

thread_local! {
    /// The registry, locked from just before a fork until just after it, by the forking thread.
    static HELD: RefCell<Option<MutexGuard<'static, Registry>>> = const { RefCell::new(None) };
}

extern "C" fn before_fork() {
    let guard = registry();
    // A thread that is being destroyed has no such variable any more; its fork goes without us.
    let _ = HELD.try_with(|held| held.replace(Some(guard)));
}

extern "C" fn after_fork() {
    let _ = HELD.try_with(|held| held.take());
}

extern "C" fn in_child() {
    // A child may be in another time namespace than its parent, and about to lose sight of /proc.
    clock::time_namespace();
    let _ = HELD.try_with(|held| {
        if let Some(registry) = held.take() {
            registry.iter().for_each(|it| it.in_child());
        }
    });
}

/// A lock within one process that a fork cannot leave locked: it carries the epoch of its holder, and a
/// holder of another epoch does not exist in this process.
pub(crate) struct ForkLock(AtomicU32);

/// Held [`ForkLock`].
pub(crate) struct ForkGuard<'a>(&'a AtomicU32);

impl ForkLock {
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    pub(crate) fn lock(&self) -> ForkGuard<'_> {
        // Never 0, and equal for two processes of one line only after four billion forks.
        let mine = u32::try_from(epoch() % u64::from(u32::MAX)).unwrap_or(0) + 1;
        let mut seen = 0;
        loop {
            match self.0.compare_exchange(seen, mine, Acquire, Relaxed) {
                Ok(_) => return ForkGuard(&self.0),
                // Left locked by a thread of our parent, or free after all.
                Err(now) if now != mine => seen = now,
                Err(now) => {
                    futex::wait(&self.0, now, 10_000_000);
                    seen = 0;
                }
            }
        }
    }
}

impl Drop for ForkGuard<'_> {
    fn drop(&mut self) {
        self.0.store(0, Release);
        futex::wake(self.0, 1);
    }
}

/// A value that every process of a line of forks makes for itself, and keeps for ever.
pub(crate) struct PerProcess<T: 'static> {
    current: AtomicPtr<Made<T>>,
}

struct Made<T> {
    epoch: u64,
    value: T,
}

impl<T: Send + Sync> PerProcess<T> {
    pub(crate) const fn new() -> Self {
        Self { current: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// The value of this process. One that was inherited is left alone, locked or not.
    pub(crate) fn get(&self, make: impl Fn() -> T) -> &'static T {
        let epoch = epoch();
        loop {
            let found = self.current.load(Acquire);
            // SAFETY: null, or a value that was leaked below and is never freed nor changed except through `&T`.
            if let Some(made) = unsafe { found.as_ref() }
                && made.epoch == epoch
            {
                return &made.value;
            }
            let new = Box::into_raw(Box::new(Made { epoch, value: make() }));
            if self.current.compare_exchange(found, new, AcqRel, Acquire).is_err() {
                // SAFETY: made just above, and nobody else has seen it.
                drop(unsafe { Box::from_raw(new) });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_epoch_stays_the_same_within_a_process() {
        prepare().unwrap();
        assert_ne!(epoch(), 0);
        assert_eq!(epoch(), epoch());
        assert!(has_epoch(epoch()) && !has_epoch(epoch() + 1));
        assert_eq!(std::thread::spawn(epoch).join().unwrap(), epoch());
    }

    #[test]
    fn a_fork_lock_left_by_another_epoch_is_free() {
        prepare().unwrap();
        let lock = ForkLock(AtomicU32::new(77_777));
        drop(lock.lock());
        assert_eq!(lock.0.load(Relaxed), 0);
    }
}
