//! An event behind the traits of the `raw_sync` crate, made of one futex word and no lock.
//!
//! The traits are `unsafe`, because they are given a bare address; that is why this stands here.
//!
//! ```text
//! bytes 0-3   kind: auto-reset or manual-reset; written last by `new`, never changed
//! bytes 4-7   state, on which waiters sleep: bit 0 is the signal, the bits above count the sets
//! ```
//!
//! Every change is one atomic operation on the state word, so there is no instruction at which a death leaves
//! anything half done. What a death can take along is a wake-up: a setter dies after its store and before it
//! wakes, or the one waiter that was woken dies before it looks. Sleepers therefore look again after each
//! slice, whether woken or not.

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

/// Values of the kind: nothing that other programs or fresh memory have there by accident.
const AUTO_RESET: u32 = u32::from_ne_bytes(*b"lEvA");
const MANUAL_RESET: u32 = u32::from_ne_bytes(*b"lEvM");

/// State: the event is signalled.
const SIGNAL: u32 = 1;
/// State: one more set.
const ONE_SET: u32 = 2;

/// An event that no death can break, for programs that use events of the `raw_sync` crate.
///
/// It implements `raw_sync`'s [`EventInit`], and what that makes implements [`EventImpl`]: replace the type,
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
/// # What is promised
///
/// * A process may be killed at any instruction of any call. The others can still set, clear and wait; nobody
///   waits for the dead, because there is no lock to hold. (The one instant that is not covered is that of
///   [`new`](EventInit::new): killed there, it leaves no event, and `from_existing` says so.)
/// * Setting and clearing never sleep.
/// * **Auto-reset:** each signal lets exactly one waiter go. A set on an event that is signalled already adds
///   nothing. Which of several waiters goes is not defined.
/// * **Manual-reset:** a set lets everybody go who waits at that moment, even if it is cleared right after, and
///   everybody who comes until it is cleared.
/// * What the setter wrote before the set is seen by whoever it lets go.
/// * Timeouts are of the monotonic clock; a change of the wall clock does not matter. A timeout of zero looks
///   once. Running out of time is [`EventError::TimedOut`], inside the box.
///
/// # What is not
///
/// * A signal that a waiter has consumed is gone, also if that waiter is killed right after: whatever has to
///   happen because of it needs a record of its own. [`SharedSemaphore`](crate::sync::SharedSemaphore) keeps
///   one: permits of the dead return.
/// * When a setter is killed between its store and its wake-up, or the waiter that was woken is killed before
///   it consumes the signal, those who sleep notice within 100 ms instead of at once.
/// * Everybody must use it through this type. Bytes of another event are refused by `from_existing`, as
///   [`EventError::NotAnEvent`], and so are bytes that another program wrote; changed later, they can end waits
///   or start them, but not harm memory.
pub struct CrashProofEvent {
    place: NonNull<Words>,
    auto_reset: bool,
}

/// What the event consists of, in memory that processes share.
#[repr(C)]
struct Words {
    kind: AtomicU32,
    state: AtomicU32,
}

/// Why an event could not be used; found inside the boxed error of `raw_sync`'s traits.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages name every field")]
pub enum EventError {
    /// It was not signalled in time.
    #[error("the event was not signalled within {waited:?}: wait longer, or find out who should set it")]
    TimedOut { waited: Duration },
    /// There is none at that address.
    #[error(
        "there is {:?}, an event starts with \"lEvA\" or \"lEvM\": make it with `new` first, at the same address",
        String::from_utf8_lossy(found)
    )]
    NotAnEvent { found: [u8; 4] },
    /// There can be none at that address.
    #[error("the address is null: give the address of memory that processes share")]
    Null,
}

impl EventInit for CrashProofEvent {
    /// Bytes needed at `addr`; without it, bytes that are enough at any address.
    fn size_of(addr: Option<*mut u8>) -> usize {
        let padding = addr.map_or(align_of::<Words>() - 1, |at| at.align_offset(align_of::<Words>()));
        padding + size_of::<Words>()
    }

    /// Makes an event, clear, whatever was there before.
    ///
    /// # Safety
    ///
    /// At `mem` there are [`size_of(Some(mem))`](Self::size_of) bytes that can be read and written as long as
    /// the event is used, and that nothing but events made from this address uses.
    unsafe fn new(mem: *mut u8, auto_reset: bool) -> Result<(Box<dyn EventImpl>, usize), Box<dyn Error>> {
        let (place, used) = place(mem)?;
        let event = Self { place, auto_reset };
        let words = event.words();
        // First no event, then a clear one, then its kind: a death in between leaves none.
        words.kind.store(0, Relaxed);
        words.state.store(0, Release);
        words.kind.store(if auto_reset { AUTO_RESET } else { MANUAL_RESET }, Release);
        Ok((Box::new(event), used))
    }

    /// Uses the event that somebody made there.
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
                // The count changes the word even when it is signalled already: nobody falls asleep over it.
                let _ = state.fetch_update(AcqRel, Relaxed, |it| Some(it.wrapping_add(ONE_SET) | SIGNAL));
                futex::wake(state, if self.auto_reset { 1 } else { i32::MAX });
            }
        }
        Ok(())
    }
}

impl CrashProofEvent {
    fn words(&self) -> &Words {
        // SAFETY: `place` made the address aligned, and whoever called `new` or `from_existing` promised that
        // the bytes there stay readable and writable. They are only ever used as atomics, for which every
        // bit pattern is a value and every other writer is allowed.
        unsafe { self.place.as_ref() }
    }
}

/// The first aligned address from `mem` on, and how many bytes are used up to the end of the event.
fn place(mem: *mut u8) -> Result<(NonNull<Words>, usize), EventError> {
    let padding = mem.align_offset(align_of::<Words>());
    let at = NonNull::new(mem).ok_or(EventError::Null)?.as_ptr().wrapping_add(padding).cast();
    Ok((NonNull::new(at).ok_or(EventError::Null)?, padding + size_of::<Words>()))
}
