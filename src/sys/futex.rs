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

/// Most words that one call can sleep on.
const MOST_WORDS: usize = 128;
/// How long to sleep at a time where the kernel cannot sleep on all of the words.
const POLL_NANOS: u64 = 5_000_000;

/// Sleeps while every word is as seen, until `until` by the monotonic clock, or until a signal comes.
///
/// Before Linux 5.16, or with more than 128 words, it only watches the first of several, and returns every few
/// milliseconds, so that its callers look at the rest.
pub(crate) fn wait_any(words: &[(&AtomicU32, u32)], until: u64) {
    let entries: Vec<Waitv> = words
        .iter()
        .map(|(word, seen)| Waitv {
            value: u64::from(*seen),
            address: word.as_ptr().addr() as u64,
            flags: SIZE_32,
            reserved: 0,
        })
        .collect();
    let end = libc::timespec {
        tv_sec: libc::time_t::try_from(until / NANOS_PER_SECOND).unwrap_or(libc::time_t::MAX),
        tv_nsec: (until % NANOS_PER_SECOND).cast_signed(),
    };
    let result = if entries.len() > MOST_WORDS {
        Err(Errno::ENOSYS)
    } else {
        // SAFETY: the entries and the timespec are live for the whole call, and so are the words that the entries
        // point to, through the references in `words`; the kernel only reads them.
        let result = unsafe {
            libc::syscall(
                libc::SYS_futex_waitv,
                entries.as_ptr(),
                entries.len(),
                0,
                &raw const end,
                libc::CLOCK_MONOTONIC,
            )
        };
        Errno::result(result)
    };
    if let (Err(Errno::ENOSYS), Some((word, seen))) = (result, words.first()) {
        let left = until.saturating_sub(super::clock::monotonic());
        let left = if words.len() > 1 { left.min(POLL_NANOS) } else { left };
        wait(word, *seen, left);
    }
}

/// `struct futex_waitv` of the kernel.
#[repr(C)]
struct Waitv {
    value: u64,
    address: u64,
    flags: u32,
    reserved: u32,
}

/// A 32-bit word, shared between processes.
const SIZE_32: u32 = 2;

/// Why a sleep ended.
pub(crate) enum Ended {
    /// The time passed.
    Time,
    /// A signal came; the time has not passed.
    Signal,
    /// Somebody woke us, or the word had changed already.
    Woken,
}

/// Sets the second word to 0.
const CLEAR: i32 = libc::FUTEX_OP_SET << 28;

/// Sets `lock` to 0 and wakes at most `count` sleepers on `doorbell`: one call of the kernel, which a kill cannot split.
/// Returns how many were woken; none, and nothing was done, if the kernel refuses.
pub(crate) fn clear_and_wake(lock: &AtomicU32, doorbell: &AtomicU32, count: i32) -> Option<usize> {
    // SAFETY: both are live, aligned 32-bit words for the whole call. The kernel uses the address of the first, and changes
    // the second atomically, as everybody else does.
    let result = unsafe {
        libc::syscall(
            libc::SYS_futex,
            doorbell.as_ptr(),
            libc::FUTEX_WAKE_OP,
            count,
            // In the place of a timeout: how many sleepers on the second word.
            0usize,
            lock.as_ptr(),
            CLEAR,
        )
    };
    usize::try_from(result).ok()
}

/// Wakes at most `count` sleepers on `word`; returns how many were woken.
pub(crate) fn wake(word: &AtomicU32, count: i32) -> usize {
    // SAFETY: waking only uses the address of `word`, which is live; nothing is read or written through it.
    let result = unsafe {
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
    usize::try_from(result).unwrap_or(0)
}
