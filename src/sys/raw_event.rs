//! An event behind the traits of the `raw_sync` crate, made of one futex word and no lock.
//!
//! The traits are `unsafe`, because they take a bare address; that is why this file is in `sys`.
//!
//! ```text
//! bytes 0-3   kind: auto-reset or manual-reset; written last by `new`, never changed
//! bytes 4-7   state, on which waiters sleep: bit 0 is the signal, the bits above count the sets
//! ```
//!
//! Every change is one atomic operation on the state word, so a death at any instruction leaves nothing half
//! done. A death can lose a wake-up: a setter dies after its store and before it wakes, or the one waiter
//! that was woken dies before it checks the state. Sleepers therefore check again after each slice, whether
//! woken or not.

use std::error::Error;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::time::Duration;

use raw_sync::Timeout;
use raw_sync::events::{EventImpl, EventInit, EventState};

use super::machine::Machine;
use super::{clock, futex};
use crate::protocol::NEVER;

/// Values of the kind: unlikely to occur by accident in fresh memory or in other programs' data.
const AUTO_RESET: u32 = u32::from_ne_bytes(*b"lEvA");
const MANUAL_RESET: u32 = u32::from_ne_bytes(*b"lEvM");

/// State: the event is signalled.
const SIGNAL: u32 = 1;
/// State: the increment for one set.
const ONE_SET: u32 = 2;

/// An event that no death can break, for programs that use events of the `raw_sync` crate.
///
/// It implements `raw_sync`'s [`EventInit`], whose constructors return an [`EventImpl`]: replace the type,
/// keep the calls. (The bytes differ, so all processes have to change at once.) Needs the feature `raw_sync`.
///
/// ```
/// use limitset::Segment;
/// use limitset::interop::CrashProofEvent;
/// use raw_sync::Timeout;
/// use raw_sync::events::{EventInit, EventState};
///
/// // Any memory that processes share will do: a mapping of `shared_memory`, or plain words of a segment.
/// let segment = Segment::options().words("event", 1).anonymous()?;
/// let place = segment.words("event")?.as_ptr().cast_mut().cast();
///
/// // SAFETY: eight writable bytes that stay mapped while the event is used, and that nothing else uses.
/// let (event, used) = unsafe { CrashProofEvent::new(place, true)? };
/// assert_eq!(used, 8);
///
/// event.set(EventState::Signaled)?;
/// event.wait(Timeout::Infinite)?; // another process: from_existing(place), then wait
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Guarantees
///
/// * A process may be killed at any instruction of any call. The others can still set, clear and wait; no
///   process waits for a dead one, because there is no lock to hold. (The one exception is
///   [`new`](EventInit::new): a process killed in it leaves no event, and `from_existing` reports that.)
/// * Setting and clearing never sleep.
/// * **Auto-reset:** each signal releases exactly one waiter. A set on an event that is signalled already
///   adds nothing. Which of several waiters is released is not defined.
/// * **Manual-reset:** a set releases all present waiters, even if the event is cleared right after, and all
///   later waiters until it is cleared.
/// * A released waiter sees all writes that the setter made before the set.
/// * Timeouts are by the monotonic clock; a change of the wall clock does not matter. A timeout of zero
///   checks once. Running out of time is [`EventError::TimedOut`], inside the box.
///
/// # Not guaranteed
///
/// * A signal that a waiter has consumed is gone, also if that waiter is killed right after: work that
///   depends on it needs a record of its own. [`SharedSemaphore`](crate::sync::SharedSemaphore) keeps one:
///   permits of a dead holder return.
/// * When a setter is killed between its store and its wake-up, or the woken waiter is killed before it
///   consumes the signal, sleepers notice within 100 ms instead of at once.
/// * All processes must use the event through this type. `from_existing` rejects bytes of another event or of
///   another program, as [`EventError::NotAnEvent`]; bytes that another program changes later can end or
///   start waits, but not harm memory.
pub struct CrashProofEvent {
    place: NonNull<Words>,
    auto_reset: bool,
}

/// The words of an event, in memory that processes share.
#[repr(C)]
struct Words {
    kind: AtomicU32,
    state: AtomicU32,
}

/// Why an event could not be used; inside the boxed error of `raw_sync`'s traits.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages name every field")]
pub enum EventError {
    /// The event was not signalled in time.
    #[error("the event was not signalled within {waited:?}: wait longer, or check its setter")]
    TimedOut { waited: Duration },
    /// There is no event at that address.
    #[error(
        "no event: found {:?}, an event starts with \"lEvA\" or \"lEvM\"; first make it there with `new`",
        String::from_utf8_lossy(found)
    )]
    NotAnEvent { found: [u8; 4] },
    /// The address is null.
    #[error("the address is null: give the address of memory that processes share")]
    Null,
}

impl EventInit for CrashProofEvent {
    /// Returns the bytes needed at `addr`; without an address, the bytes that are enough at any address.
    fn size_of(addr: Option<*mut u8>) -> usize {
        let padding = addr.map_or(align_of::<Words>() - 1, |at| at.align_offset(align_of::<Words>()));
        padding + size_of::<Words>()
    }

    /// Creates an event, not signalled, over any previous bytes.
    ///
    /// # Safety
    ///
    /// At `mem` there are [`size_of(Some(mem))`](Self::size_of) bytes that can be read and written as long as
    /// the event is used, and that nothing but events made from this address uses.
    unsafe fn new(mem: *mut u8, auto_reset: bool) -> Result<(Box<dyn EventImpl>, usize), Box<dyn Error>> {
        let (place, used) = place(mem)?;
        let event = Self { place, auto_reset };
        let words = event.words();
        // First no event, then a clear state, then the kind: a death in between leaves no event.
        words.kind.store(0, Relaxed);
        words.state.store(0, Release);
        words.kind.store(if auto_reset { AUTO_RESET } else { MANUAL_RESET }, Release);
        Ok((Box::new(event), used))
    }

    /// Opens an event that another process created at this address.
    ///
    /// # Safety
    ///
    /// As for [`new`](Self::new).
    unsafe fn from_existing(mem: *mut u8) -> Result<(Box<dyn EventImpl>, usize), Box<dyn Error>> {
        let (place, used) = place(mem)?;
        let mut event = Self { place, auto_reset: false };
        match event.words().kind.load(Acquire) {
            AUTO_RESET => event.auto_reset = true,
            MANUAL_RESET => {}
            other => return Err(EventError::NotAnEvent { found: other.to_ne_bytes() }.into()),
        }
        Ok((Box::new(event), used))
    }
}

impl EventImpl for CrashProofEvent {
    fn wait(&self, timeout: Timeout) -> Result<(), Box<dyn Error>> {
        let (deadline, patience) = match timeout {
            Timeout::Infinite => (NEVER, Duration::MAX),
            Timeout::Val(patience) => (clock::deadline(patience), patience),
        };
        let state = &self.words().state;
        let first = state.load(Acquire);
        let mut seen = first;
        loop {
            if self.auto_reset {
                while seen & SIGNAL != 0 {
                    match state.compare_exchange(seen, seen & !SIGNAL, AcqRel, Acquire) {
                        Ok(_) => return Ok(()),
                        Err(now) => seen = now,
                    }
                }
            } else if seen & SIGNAL != 0 || seen / ONE_SET != first / ONE_SET {
                return Ok(());
            }
            let left = deadline.saturating_sub(clock::monotonic());
            if left == 0 {
                return Err(EventError::TimedOut { waited: patience }.into());
            }
            futex::wait(state, seen, left.min(clock::nanos(Machine::DOORBELL_SLICE)));
            seen = state.load(Acquire);
        }
    }

    fn set(&self, to: EventState) -> Result<(), Box<dyn Error>> {
        let state = &self.words().state;
        match to {
            EventState::Clear => {
                state.fetch_and(!SIGNAL, AcqRel);
            }
            EventState::Signaled => {
                // The count changes the word even if the event is signalled already, so no waiter falls
                // asleep on the old value.
                let _ = state.fetch_update(AcqRel, Relaxed, |it| Some(it.wrapping_add(ONE_SET) | SIGNAL));
                futex::wake(state, if self.auto_reset { 1 } else { i32::MAX });
            }
        }
        Ok(())
    }
}

impl CrashProofEvent {
    fn words(&self) -> &Words {
        // SAFETY: `place` aligned the address, and the caller of `new` or `from_existing` promised that the
        // bytes there stay readable and writable. They are only ever used as atomics, for which every bit
        // pattern is a value and every other writer is allowed.
        unsafe { self.place.as_ref() }
    }
}

/// Returns the first aligned address from `mem` on, and the number of bytes used up to the end of the event.
fn place(mem: *mut u8) -> Result<(NonNull<Words>, usize), EventError> {
    let padding = mem.align_offset(align_of::<Words>());
    let at = NonNull::new(mem).ok_or(EventError::Null)?.as_ptr().wrapping_add(padding).cast();
    Ok((NonNull::new(at).ok_or(EventError::Null)?, padding + size_of::<Words>()))
}
