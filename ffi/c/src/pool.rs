//! Several sets behind a balancer.

use limits::{Balance, LimitPool};

use crate::args::{self, choice, plain, shared};
use crate::failure::{Done, answer};
use crate::handles::{POOLS, SETS, limitset_pool, limitset_set};
use crate::status::limitset_status;

/// Which set of a pool is asked first.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum limitset_balance {
    /// One after the other, each worker beginning with another one.
    LIMITSET_ROUND_ROBIN = 0,
    /// Any.
    LIMITSET_RANDOM = 1,
    /// The first that has room, from the worker's own position on; else the one that will have room first.
    LIMITSET_FIRST_FREE = 2,
}

/// What the balancer of a pool has seen of one of its sets.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct limitset_pool_stats {
    /// How often it granted.
    pub granted: u64,
    /// How often it refused.
    pub refused: u64,
    /// How often it was skipped because it was removed.
    pub skipped: u64,
}

plain!(limitset_pool_stats);

const BALANCES: [(u32, Balance); 3] = [
    (limitset_balance::LIMITSET_ROUND_ROBIN as u32, Balance::RoundRobin),
    (limitset_balance::LIMITSET_RANDOM as u32, Balance::Random),
    (limitset_balance::LIMITSET_FIRST_FREE as u32, Balance::FirstFree),
];

/// A pool of these sets, in this order, for the worker of this number (each has a balancer of its own; 0 if there are no
/// workers). `balance` is a limitset_balance. The pool has its own hold on the sets: their handles may be freed.
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

/// Frees a pool; its requests and what was acquired stay. Null is nothing to free.
#[unsafe(no_mangle)]
pub extern "C" fn limitset_pool_free(pool: *mut limitset_pool) -> limitset_status {
    answer(|| args::close(&POOLS, pool, "pool"))
}

/// What the balancer has seen of its sets, as many as there is room for. `count`, if it is not null, becomes how many sets
/// there are.
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
