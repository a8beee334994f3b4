//! A memory barrier that only one side pays for.
//!
//! Whoever frees a lock stores that it is free and then looks whether somebody sleeps; whoever is about to sleep stores
//! that it does and then looks whether the lock is free. One of the two has to see the other, so each needs a full barrier
//! between its store and its look. Locks are freed a million times for each sleep: so the barrier of those who free is
//! none at all for the machine, only for the compiler, and those who are about to sleep ask the kernel for a barrier on
//! every processor that runs somebody who uses this library (`membarrier`, since Linux 4.16).
//!
//! The kernel does it for processes that have said that they want it. One that could not say so, because of a filter of
//! system calls or an old kernel, pays for its own barriers. One that cannot ask for it looks again every
//! [`BLIND_NANOS`] while it sleeps for a lock.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, compiler_fence, fence};

/// How long to sleep for a lock at a time if the kernel refuses barriers.
pub(crate) const BLIND_NANOS: u64 = 1_000_000;

/// Whether the kernel makes barriers for this process.
static IS_REGISTERED: AtomicBool = AtomicBool::new(false);
/// Whether the kernel has refused to make barriers for others.
static IS_BLIND: AtomicBool = AtomicBool::new(false);

/// Lets others make barriers for this process. To be called by every process before it takes a lock; a forked child
/// inherits it, and may ask again, which costs little.
pub(crate) fn register() {
    IS_REGISTERED.store(membarrier(libc::MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED), SeqCst);
}

/// The barrier of whoever frees a lock.
#[inline(always)]
pub(crate) fn light() {
    if IS_REGISTERED.load(Relaxed) {
        compiler_fence(SeqCst);
    } else {
        pay();
    }
}

#[cold]
fn pay() {
    fence(SeqCst);
}

/// The barrier of whoever is about to sleep.
#[cold]
pub(crate) fn heavy() {
    fence(SeqCst);
    if !membarrier(libc::MEMBARRIER_CMD_GLOBAL_EXPEDITED) {
        IS_BLIND.store(true, Relaxed);
    }
}

/// Whether a sleeper cannot be sure that whoever frees the lock sees it.
pub(crate) fn is_blind() -> bool {
    IS_BLIND.load(Relaxed)
}

fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: the call takes three integers and touches no memory of ours.
    let result = unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) };
    result == 0
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;
    use std::time::Duration;

    use super::*;
    use crate::core::{Env, NEVER, Waited, Waiting};
    use crate::sys::filter::{self, Answer};
    use crate::sys::machine::{Crowd, Machine};

    #[test]
    fn this_kernel_makes_barriers() {
        register();
        heavy();
        assert!(IS_REGISTERED.load(SeqCst) && !is_blind(), "a kernel older than 4.16, or a filter");
    }

    /// What comes of a filter that refuses barriers, each a bit.
    const NO_FILTER: i32 = 1;
    const STILL_REGISTERED: i32 = 2;
    const NOT_BLIND: i32 = 4;
    const SLEPT_ON: i32 = 8;

    #[test]
    fn who_is_refused_barriers_pays_for_its_own_and_looks_again_while_it_sleeps_for_a_lock() {
        register();
        let hour = 3600 * 1_000_000_000;
        let machine =
            Machine { descriptors: None, lock_slice: hour, doorbell_slice: hour, crowd: Crowd::default() };
        let sleepers = AtomicU32::new(1);
        let end = filter::in_child(|| {
            let bit = |is_wrong: bool, bit: i32| if is_wrong { bit } else { 0 };
            if !refuse_barriers() {
                return NO_FILTER;
            }
            register();
            let mut found = bit(IS_REGISTERED.load(SeqCst), STILL_REGISTERED);
            light();
            heavy();
            found |= bit(!is_blind(), NOT_BLIND);
            let waited = machine.wait(Waiting::Lock, &sleepers, 1, NEVER);
            found | bit(waited != Waited::SliceOver, SLEPT_ON)
        });
        // An alarm ends a child that sleeps for the hour.
        let found = end.unwrap_or_else(|end| panic!("it slept on for a minute: {end:?}"));
        if found & NO_FILTER != 0 {
            println!("SKIPPED barriers that are refused: this machine allows no filter of system calls");
            return;
        }
        assert_eq!((found & STILL_REGISTERED, found & NOT_BLIND, found & SLEPT_ON), (0, 0, 0));
        assert!(Duration::from_nanos(BLIND_NANOS) < Machine::LOCK_SLICE, "or nothing is gained by it");
    }

    /// From now on `membarrier` fails for this thread; false if there can be no such filter.
    fn refuse_barriers() -> bool {
        let refused = filter::answer(libc::SYS_membarrier, Answer::Error(libc::EPERM));
        refused && !membarrier(libc::MEMBARRIER_CMD_GLOBAL_EXPEDITED)
    }
}
