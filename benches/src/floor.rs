//! The lower bound of an operation that reads a clock and takes a lock: the clock, a compare-and-exchange to
//! acquire an uncontended word, and one to release it, with nothing in between. The difference to our rows is
//! the cost of deciding, journalling, counting and creating acquisitions.

use std::hint::black_box;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{AcqRel, Relaxed, Release};

use crate::batches::Row;

/// Returns a row with a clock, or none, and this many empty locks.
pub fn row(key: &'static str, clock: Option<(&str, libc::clockid_t)>, locks: u32) -> Row {
    let lock = AtomicU32::new(0);
    let many = if locks == 1 { "an empty lock".to_owned() } else { format!("{locks} empty locks") };
    let name = clock.map_or_else(|| many.clone(), |(name, _)| format!("{name} and {many}"));
    let id = clock.map(|(_, id)| id);
    let op = move || {
        if let Some(id) = id {
            let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            // SAFETY: filled by the kernel, and outlives the call.
            unsafe { libc::clock_gettime(id, &raw mut now) };
            black_box(now);
        }
        for _ in 0..locks {
            let taken = black_box(&lock).compare_exchange(0, 1, AcqRel, Relaxed).is_ok();
            let freed = black_box(&lock).compare_exchange(1, 0, Release, Relaxed).is_ok();
            assert!(taken & freed, "the lock is uncontended");
        }
    };
    Row::rival(key, name, op).note("the lower bound of any operation that reads a clock and takes a lock")
}
