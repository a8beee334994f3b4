//! Sleeping on a word until somebody changes it: Linux futexes, in their shared form.
//!
//! Shared, never private: the kernel then finds the word by the file and offset behind it, so that sleepers
//! in other processes are found too.

use std::ptr;
use std::sync::atomic::AtomicU32;

use nix::errno::Errno;

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// Sleeps while `word` is `seen`, at most `nanos` nanoseconds.
pub(crate) fn wait(word: &AtomicU32, seen: u32, nanos: u64) -> Ended {
    let timeout = libc::timespec {
        tv_sec: libc::time_t::try_from(nanos / NANOS_PER_SECOND).unwrap_or(libc::time_t::MAX),
        tv_nsec: (nanos % NANOS_PER_SECOND).cast_signed(),
    };
    // SAFETY: `word` is a live, aligned 32-bit word and `timeout` a live timespec for the whole call; the
    // kernel reads both and writes neither.
    let result = unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT,
            seen,
            &raw const timeout,
            ptr::null::<u32>(),
            0,
        )
    };
    match Errno::result(result) {
        Err(Errno::ETIMEDOUT) => Ended::Time,
        Err(Errno::EINTR) => Ended::Signal,
        _ => Ended::Woken,
    }
}

/// Why a sleep ended.
pub(crate) enum Ended {
    /// The time passed.
    Time,
    /// A signal came; the time has not passed.
    Signal,
    /// Somebody woke us, or the word had changed already.
    Woken,
}

/// Wakes at most `count` sleepers on `word`.
pub(crate) fn wake(word: &AtomicU32, count: i32) {
    // SAFETY: waking only uses the address of `word`, which is live; nothing is read or written through it.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAKE,
            count,
            ptr::null::<libc::timespec>(),
            ptr::null::<u32>(),
            0,
        )
    };
}
