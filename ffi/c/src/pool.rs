//! Several sets behind a balancer.

use limits::{Balance, LimitPool};

use crate::args::{self, choice, plain, shared};
use crate::failure::{Done, answer};
use crate::handles::{POOLS, SETS, limitset_pool, limitset_set};
use crate::status::limitset_status;

/// The order in which the sets of a pool are asked.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum limitset_balance {
    /// One after the other; each worker begins with another set.
    LIMITSET_ROUND_ROBIN = 0,
    /// A random set.
    LIMITSET_RANDOM = 1,
    /// The first set with room, from the worker's own position on; else the set that will have room first.
    LIMITSET_FIRST_FREE = 2,
}

/// Counts of a pool's balancer for one of its sets.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct limitset_pool_stats {
    /// How often the set granted a request.
    pub granted: u64,
    /// How often the set denied a request.
    pub refused: u64,
    /// How often the set was skipped because it was removed.
    pub skipped: u64,
}

plain!(limitset_pool_stats);

const BALANCES: [(u32, Balance); 3] = [
    (limitset_balance::LIMITSET_ROUND_ROBIN as u32, Balance::RoundRobin),
    (limitset_balance::LIMITSET_RANDOM as u32, Balance::Random),
    (limitset_balance::LIMITSET_FIRST_FREE as u32, Balance::FirstFree),
];

/// Creates a pool of these sets, in this order, for the worker of this number (each worker has its own balancer; 0 if
/// there are no workers). `balance` is a limitset_balance. The pool keeps the sets open: their handles may be freed.
///
/// # Safety
///
/// `sets` points to `count` handles; `pool` is null or points to room for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn limitset_pool_new(
    sets: *const *const limitset_set,
    count: usize,
    balance: u32,
    worker: usize,
    pool: *mut *mut limitset_pool,
) -> limitset_status {
    answer(|| {
        args::check(pool, "where the pool's handle is to be written")?;
        let balance = choice(balance, &BALANCES, "balance")?;
        // SAFETY: the caller vouches.
        let handles = unsafe { args::slice(sets, count, "the sets") }?;
        let sets: Done<Vec<_>> =
            handles.iter().map(|handle| Ok(shared(&SETS, *handle, "set")?.clone())).collect();
        let made = LimitPool::new(sets?)?.balance(balance).for_worker(worker);
        // SAFETY: the caller vouches.
        unsafe { args::give(&POOLS, made, pool, "pool") }
    })
}

/// Frees a pool; its requests and acquisitions stay valid. Null is ignored.
#[unsafe(no_mangle)]
pub extern "C" fn limitset_pool_free(pool: *mut limitset_pool) -> limitset_status {
    answer(|| args::close(&POOLS, pool, "pool"))
}

/// Reads the counts of the balancer for each set, for as many sets as there is room for. `count`, if it is not null,
/// becomes the number of sets.
///
/// # Safety
///
/// `stats` points to `room` entries; `count` is null or points to a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn limitset_read_pool(
    pool: *const limitset_pool,
    stats: *mut limitset_pool_stats,
    room: usize,
    count: *mut usize,
) -> limitset_status {
    answer(|| {
        // SAFETY: the caller vouches.
        let count = unsafe { args::maybe_out(count, "count") }?;
        let sets = shared(&POOLS, pool, "pool")?.stats().sets;
        // SAFETY: the caller vouches.
        unsafe {
            args::fill(stats, room, "the stats", sets.iter(), |it| limitset_pool_stats {
                granted: it.granted,
                refused: it.refused,
                skipped: it.skipped,
            })
        }?;
        if let Some(to) = count {
            *to = sets.len();
        }
        Ok(())
    })
}
