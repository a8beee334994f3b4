//! Ending a wait from outside: from another thread, or from a signal handler.
//!
//! Waits go on after a signal, as they must: most signals are nobody's wish to stop. Who does want to stop says so by a
//! word that the waiter sleeps on beside its doorbell.

use std::cell::Cell;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::fence;

use crate::answer::{Trouble, Unavailable};
use crate::core::{NEVER, Reach};
use crate::engine::{Engine, WorkBell};
use crate::set::LimitSet;
use crate::sys::machine::Machine;
use crate::sys::{clock, futex};
use crate::wait::LAST_LOCK;

/// Ends waits when it is raised, and lets none begin until it is [cleared](Self::clear).
///
/// What can be had at once is still given. Whoever has to wait, for limits or for a work queue, is answered
/// [`Interrupted`](crate::AcquireError::Interrupted); nothing was charged then.
///
/// ```
/// use limitset::{AcquireError, Interrupt, LimitSet, ResourceLimit};
///
/// static STOP: Interrupt = Interrupt::new();
///
/// let limits = LimitSet::builder().limit(ResourceLimit::new("connections", 1)).in_memory()?;
/// let held = limits.acquire(())?;
/// let other = std::thread::spawn(|| STOP.raise()); // or a signal handler
/// let answer = STOP.during(|| limits.acquire(()));
/// assert!(matches!(answer, Err(AcquireError::Interrupted)));
/// # other.join().unwrap();
/// # held.release()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Interrupt {
    word: AtomicU32,
}

thread_local! {
    /// What ends the waits of this thread.
    static CURRENT: Cell<Option<&'static Interrupt>> = const { Cell::new(None) };
}

impl Interrupt {
    /// One that nobody has raised.
    pub const fn new() -> Self {
        Self { word: AtomicU32::new(0) }
    }

    /// Ends all waits that look at it, in this process. The one function of this crate that may be called from a signal
    /// handler: a store and a system call.
    pub fn raise(&self) {
        self.word.store(1, Release);
        futex::wake(&self.word, i32::MAX);
    }

    /// Lets waits begin again.
    pub fn clear(&self) {
        self.word.store(0, Release);
    }

    /// Whether it was raised and not cleared.
    pub fn is_raised(&self) -> bool {
        self.word.load(Acquire) != 0
    }

    /// Calls `act`; every wait in it, by this thread, is ended when this is raised. Within another such call, the inner
    /// one counts.
    pub fn during<T>(&'static self, act: impl FnOnce() -> T) -> T {
        struct Restore(Option<&'static Interrupt>);
        impl Drop for Restore {
            fn drop(&mut self) {
                // A thread that is being destroyed waits for nothing more.
                let _ = CURRENT.try_with(|current| current.set(self.0));
            }
        }
        let _restore = Restore(CURRENT.try_with(|current| current.replace(Some(self))).unwrap_or(None));
        act()
    }

    /// What ends the waits of this thread now.
    pub(crate) fn current() -> Option<&'static Self> {
        CURRENT.try_with(Cell::get).unwrap_or(None)
    }

    /// Sleeps while a doorbell is as seen and nobody raises this, at most until `until`; looks for the dead meanwhile.
    pub(crate) fn sleep(
        &self,
        set: &LimitSet,
        engine: &Engine<'_, Machine>,
        doorbell: &AtomicU32,
        seen: u32,
        until: u64,
    ) -> Result<(), Trouble> {
        // As in `Engine::sleep`: either we see that the set was removed, or whoever removes it sees us and rings.
        fence(SeqCst);
        let is_quiet = || doorbell.load(Acquire) == seen && engine.block.closed.load(Relaxed) == 0;
        while is_quiet() && !self.is_raised() {
            let slice_over = clock::monotonic().saturating_add(set.vigil().interval);
            futex::wait_any(&[(doorbell, seen), (&self.word, 0)], until.min(slice_over));
            // A doorbell that rings all the time must not keep us from looking for the dead.
            if set.is_slice_over(engine) {
                match set.sweep_within(clock::nanos(LAST_LOCK), Reach::BOUNDED) {
                    Ok(_) | Err(Trouble::Unavailable(Unavailable::Busy { .. })) => {}
                    Err(trouble) => return Err(trouble),
                }
            }
            if until != NEVER && clock::monotonic() >= until {
                break;
            }
        }
        Ok(())
    }

    /// The same for a waiter at a work queue, whose doorbell `seen` is of; at most a slice.
    pub(crate) fn sleep_for_work(
        &self,
        set: &LimitSet,
        engine: &Engine<'_, Machine>,
        (bell, seen): (WorkBell, u32),
        until: u64,
    ) -> Result<(), Trouble> {
        // As in `Engine::sleep_for_work`: the mark says that somebody sleeps.
        let Some(doorbell) = engine.work_doorbell(bell) else { return Ok(()) };
        if seen & 1 == 0 && doorbell.compare_exchange(seen, seen | 1, Relaxed, Relaxed).is_err() {
            return Ok(());
        }
        // A waiter that was woken and then killed or stopped leaves something behind: who sleeps a slice looks again.
        let slice_over = clock::monotonic().saturating_add(set.vigil().interval);
        self.sleep(set, engine, doorbell, seen | 1, until.min(slice_over))
    }
}
