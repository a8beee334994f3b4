//! Sleeping on a word until somebody changes it: Linux futexes, in their shared form.
//!
//! Shared, never private: the kernel then finds the word by the file and offset behind it, so that sleepers
//! in other processes are found too.

use std::ptr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32};

use nix::errno::Errno;

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// Sleeps while `word` is `seen`, at most `nanos` nanoseconds.
pub(crate) fn wait(word: &AtomicU32, seen: u32, nanos: u64) -> Ended {
    let timeout = timespec(nanos);
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

fn timespec(nanos: u64) -> libc::timespec {
    libc::timespec {
        tv_sec: (nanos / NANOS_PER_SECOND).cast_signed(),
        tv_nsec: (nanos % NANOS_PER_SECOND).cast_signed(),
    }
}

/// Most words that one call can sleep on.
const MOST_WORDS: usize = 128;
/// How long to sleep at a time where the kernel cannot sleep on all of the words.
const POLL_NANOS: u64 = 5_000_000;

/// Whether the kernel has refused `futex_waitv` to this process. A kernel before 5.16 does so, and so does a filter of
/// system calls that does not know the call. Forked children inherit both the reason and the answer.
static IS_REFUSED: AtomicBool = AtomicBool::new(false);

/// Sleeps while every word is as seen, until `until` by the monotonic clock, or until a signal comes.
///
/// Where the kernel refuses `futex_waitv`, or with more than 128 words, it only watches the first of several, and returns
/// every few milliseconds, so that its callers look at the rest.
pub(crate) fn wait_any(words: &[(&AtomicU32, u32)], until: u64) {
    if words.len() <= MOST_WORDS && !IS_REFUSED.load(Relaxed) {
        match wait_vector(words, until) {
            Ok(_) | Err(Errno::EAGAIN | Errno::EINTR | Errno::ETIMEDOUT) => return,
            // Short of memory: only this once.
            Err(Errno::ENOMEM) => {}
            Err(_) => IS_REFUSED.store(true, Relaxed),
        }
    }
    if let Some((word, seen)) = words.first() {
        let left = until.saturating_sub(super::clock::monotonic());
        let left = if words.len() > 1 { left.min(POLL_NANOS) } else { left };
        wait(word, *seen, left);
    }
}

/// Sleeps on all of the words by one call of the kernel.
fn wait_vector(words: &[(&AtomicU32, u32)], until: u64) -> Result<libc::c_long, Errno> {
    let entry = |(word, seen): &(&AtomicU32, u32)| Waitv {
        value: u64::from(*seen),
        address: word.as_ptr().addr() as u64,
        flags: SIZE_32,
        reserved: 0,
    };
    let entries: Vec<Waitv> = words.iter().map(entry).collect();
    let end = timespec(until);
    // The kernel refuses an empty list: that says nothing about the next one.
    if entries.is_empty() {
        return Err(Errno::EAGAIN);
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::clock::monotonic;
    use crate::sys::filter::{self, Answer};

    /// What a filter can make of `futex_waitv` besides answering ENOSYS, each a bit.
    const NO_FILTER: i32 = 1;
    const SPUN: i32 = 2;
    const UP_TOO_EARLY: i32 = 4;

    #[test]
    fn a_process_that_is_refused_futex_waitv_sleeps_all_the_same_and_asks_once() {
        let words = [AtomicU32::new(7), AtomicU32::new(8)];
        let end = filter::in_child(|| {
            let mut found = 0;
            if !filter::answer(libc::SYS_futex_waitv, Answer::Error(libc::EPERM)) {
                return NO_FILTER;
            }
            let [first, second] = &words;
            let sleep = |until| wait_any(&[(first, 7), (second, 8)], until);
            sleep(monotonic() + POLL_NANOS);
            // From here on the call ends the process.
            if !filter::answer(libc::SYS_futex_waitv, Answer::Kill) {
                return NO_FILTER;
            }
            let polls = 20;
            let until = monotonic() + polls * POLL_NANOS;
            let mut rounds = 0;
            while monotonic() < until {
                sleep(until);
                rounds += 1;
            }
            // Each sleep but the last lasts as long as a poll, or longer.
            if rounds > polls + 1 {
                found |= SPUN;
            }
            // One word alone is slept on to the end.
            let until = monotonic() + 3 * POLL_NANOS;
            wait_any(&[(first, 7)], until);
            if monotonic() < until {
                found |= UP_TOO_EARLY;
            }
            found
        });
        match end {
            Ok(NO_FILTER) => println!(
                "SKIPPED a_process_that_is_refused_futex_waitv_sleeps_all_the_same_and_asks_once: this machine allows no \
                 filter of system calls"
            ),
            found => assert_eq!(
                found,
                Ok(0),
                "killed: it asked again; {SPUN}: it spun; {UP_TOO_EARLY}: woke early"
            ),
        }
    }

    #[test]
    fn an_empty_list_of_words_is_no_refusal() {
        assert_eq!(wait_vector(&[], 0), Err(Errno::EAGAIN));
    }
}
