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
    use super::*;

    #[test]
    fn this_kernel_makes_barriers() {
        register();
        heavy();
        assert!(IS_REGISTERED.load(SeqCst) && !is_blind(), "a kernel older than 4.16, or a filter");
    }
}
