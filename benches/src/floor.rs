//! What an operation cannot cost less than, as long as it reads a clock and takes a lock: the clock, and a
//! compare-and-exchange to take a word that nobody else wants and one to give it back, with nothing in between. The
//! difference to our rows is what deciding, journalling, counting and handing out take.

use std::hint::black_box;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{AcqRel, Relaxed, Release};

use crate::batches::Row;

/// A clock, or none, and so many empty locks.
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
            assert!(taken & freed, "nobody else is there");
        }
    };
    Row::rival(key, name, op).note("the floor of whatever reads a clock and takes a lock")
}
