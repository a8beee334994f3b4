//! After the grant: report use, take more, release, cancel.

use std::cell::Cell;
use std::ffi::c_char;
use std::time::Duration;

use limits::{Acquisition, Pause, UsageError};

use crate::args::{self, nanos_or_none, plain, sized, text};
use crate::denial::{self, limitset_denial};
use crate::failure::{Done, answer, lost};
use crate::handles::{HELD, limitset_held};
use crate::request::{amounts, limitset_amount};
use crate::status::limitset_status;
use crate::table::Alone;

thread_local! {
    /// A place that this thread has emptied and will fill next, without access to the shared list of free places.
    static SPARE: Spare = const { Spare(Cell::new(0)) };
}

struct Spare(Cell<u32>);

impl Drop for Spare {
    fn drop(&mut self) {
        HELD.give_back(self.0.get());
    }
}

/// Stores an acquisition; returns its number.
#[inline(always)]
pub(crate) fn keep(acquisition: Acquisition) -> Done<u64> {
    let spare = SPARE.try_with(|spare| spare.0.replace(0)).unwrap_or(0);
    let place = if spare == 0 { HELD.free_place().unwrap_or(0) } else { spare };
    HELD.insert_at(place, acquisition).ok_or_else(|| args::too_many("acquisition"))
}

/// Ends an acquisition: from the beginning of `end` on, every other call with it fails.
#[inline(always)]
pub(crate) fn end<R>(held: limitset_held, end: impl FnOnce(Acquisition) -> R) -> Done<R> {
    let (ended, place) = HELD.take_out(held.id, end).map_err(|why| lost("acquisition", why))?;
    let is_kept = SPARE.try_with(|spare| spare.0.get() == 0 && spare.0.replace(place) == 0);
    if !is_kept.unwrap_or(false) {
        HELD.give_back(place);
    }
    Ok(ended)
}

fn alone(held: limitset_held) -> Done<Alone<'static, Acquisition>> {
    HELD.lock(held.id).map_err(|why| lost("acquisition", why))
}

/// Properties of an acquisition. Initialize with limitset_held_info_init().
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct limitset_held_info {
    /// sizeof(limitset_held_info).
    pub struct_size: usize,
    /// The number of the acquisition in order of arrival.
    pub ticket: u64,
    /// The position of the set in the pool; -1: it was not acquired from a pool.
    pub pool_index: i64,
    /// 0: the set was unavailable and is set to allow requests then.
    pub is_enforced: u32,
    /// 0.
    pub reserved: u32,
}

/// A pause of a set. Initialize it with limitset_pause_info_init().
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct limitset_pause_info {
    /// sizeof(limitset_pause_info).
    pub struct_size: usize,
    /// How long the pause lasts from now; -1: it is over.
    pub remaining_ns: i64,
    /// The number of the pause: how many pauses there have been.
    pub generation: u64,
    /// 1: the report began no pause, because its request was granted before the present pause.
    pub absorbed: u32,
    /// 0.
    pub reserved: u32,
}

sized!(limitset_held_info, limitset_pause_info);
plain!(limitset_held_info, limitset_pause_info);

/// Borrows the pause that the caller wants filled; `None` if the caller passed null.
///
/// # Safety
///
/// `pause` is null or points to one.
pub(crate) unsafe fn wanted_pause<'a>(
    pause: *mut limitset_pause_info,
) -> Done<Option<&'a mut limitset_pause_info>> {
    // SAFETY: the caller vouches.
    let pause = unsafe { args::maybe_out(pause, "the pause") }?;
    if let Some(it) = &pause {
        args::check_size(*it, "the pause")?;
    }
    Ok(pause)
}

pub(crate) fn tell_pause(to: Option<&mut limitset_pause_info>, pause: &Pause) {
    if let Some(to) = to {
        to.remaining_ns = nanos_or_none(pause.remaining);
        (to.generation, to.absorbed) = (pause.generation, pause.absorbed.into());
    }
}

/// Reads a Retry-After; `None` if the other side sent none.
pub(crate) fn retry_after(nanos: i64) -> Done<Option<Duration>> {
    match u64::try_from(nanos) {
        Ok(nanos) => Ok(Some(Duration::from_nanos(nanos))),
        Err(_) if nanos == -1 => Ok(None),
        Err(_) => {
            Err(args::bad(format!("invalid retry_after of {nanos} ns: pass 0 or more, or -1 for none")))
        }
    }
}

/// Reports the use of one limit.
///
/// # Safety
///
/// `key` is null or a text; `returned` is null or points to a number.
unsafe fn report(
    held: limitset_held,
    key: *const c_char,
    returned: *mut u64,
    report: impl FnOnce(&mut Acquisition, &str) -> Result<u64, UsageError>,
) -> limitset_status {
    answer(|| {
        // SAFETY: the caller vouches.
        let key = unsafe { text(key, "the key") }?;
        // SAFETY: the caller vouches.
        let returned = unsafe { args::maybe_out(returned, "returned") }?;
        let given_back = report(&mut *alone(held)?, key)?;
        if let Some(to) = returned {
            *to = given_back;
        }
        Ok(())
    })
}

/// Reports that `used` of the requested amount was used; the rest is refunded where the limit's algorithm can refund.
/// `returned`, if it is not null, becomes the refunded amount. Reporting again corrects the report.
///
/// # Safety
///
/// `key` is null or a text; `returned` is null or points to a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn limitset_update(
    held: limitset_held,
    key: *const c_char,
    used: u64,
    returned: *mut u64,
) -> limitset_status {
    // SAFETY: the caller vouches.
    unsafe { report(held, key, returned, |held, key| held.update(key, used)) }
}

/// Charges `delta` units more than so far, into debt if need be, or refunds them if it is negative. Counts as a report.
///
/// # Safety
///
/// As limitset_update().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn limitset_adjust(
    held: limitset_held,
    key: *const c_char,
    delta: i64,
    returned: *mut u64,
) -> limitset_status {
    // SAFETY: the caller vouches.
    unsafe { report(held, key, returned, |held, key| held.adjust(key, delta)) }
}

/// Reports the real use, less or more than requested, into debt if need be.
///
/// # Safety
///
/// As limitset_update().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn limitset_settle(
    held: limitset_held,
    key: *const c_char,
    actual: u64,
    returned: *mut u64,
) -> limitset_status {
    // SAFETY: the caller vouches.
    unsafe { report(held, key, returned, |held, key| held.settle(key, actual)) }
}

/// Reads the amount of a limit that is charged or held now. LIMITSET_NOT_REQUESTED if the request left the limit out.
///
/// # Safety
///
/// `key` is null or a text; `amount` is null or points to a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn limitset_charged(
    held: limitset_held,
    key: *const c_char,
    amount: *mut u64,
) -> limitset_status {
    answer(|| {
        // SAFETY: the caller vouches.
        let key = unsafe { text(key, "the key") }?;
        // SAFETY: the caller vouches.
        let amount = unsafe { args::out(amount, "where the amount is to be written") }?;
        *amount = alone(held)?.charged(key).ok_or_else(|| {
            crate::failure::Failure::new(
                limitset_status::LIMITSET_NOT_REQUESTED,
                format!("this acquisition has nothing of {key:?}"),
            )
        })?;
        Ok(())
    })
}

/// Reads the properties of an acquisition.
///
/// # Safety
///
/// `info` is null or points to one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn limitset_read_held(
    held: limitset_held,
    info: *mut limitset_held_info,
) -> limitset_status {
    answer(|| {
        // SAFETY: the caller vouches.
        let info = unsafe { args::out(info, "the info") }?;
        args::check_size(info, "the info")?;
        let held = alone(held)?;
        info.ticket = held.ticket();
        info.pool_index = held.pool_index().and_then(|index| i64::try_from(index).ok()).unwrap_or(-1);
        info.is_enforced = held.enforced().into();
        Ok(())
    })
}

/// Acquires exactly the named amounts in addition, under the same acquisition, all or none. Never waits. `denial` may
/// be null.
///
/// # Safety
///
/// `first` points to `count` amounts; `denial` is null or points to a denial.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn limitset_acquire_more(
    held: limitset_held,
    first: *const limitset_amount,
    count: usize,
    denial: *mut limitset_denial,
) -> limitset_status {
    answer(|| {
        // SAFETY: the caller vouches.
        let denial = unsafe { denial::wanted(denial) }?;
        // SAFETY: the caller vouches.
        let amounts = unsafe { amounts(first, count) }?;
        alone(held)?.acquire_more(amounts.as_slice()).map_err(|error| {
            if let Some(denial) = denial {
                // SAFETY: the caller vouches.
                unsafe { denial.fill(&error) };
            }
            error.into()
        })
    })
}

/// Ends the acquisition: permits return, charges stay. After LIMITSET_UNREPORTED it is released, too. After
/// LIMITSET_UNAVAILABLE the permits return as soon as the lock is free.
#[unsafe(no_mangle)]
pub extern "C" fn limitset_release(held: limitset_held) -> limitset_status {
    answer(|| Ok(end(held, Acquisition::release)??))
}

/// Cancels the acquisition: permits return, and charges are refunded where the limit's algorithm can refund.
#[unsafe(no_mangle)]
pub extern "C" fn limitset_cancel(held: limitset_held) -> limitset_status {
    answer(|| Ok(end(held, Acquisition::cancel)??))
}

/// Ends the acquisition because the other side answered "too many requests": the whole set pauses, in every process.
/// `retry_after_ns` is the other side's Retry-After; -1: it sent none. `pause` may be null.
///
/// # Safety
///
/// `pause` is null or points to one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn limitset_rate_limited(
    held: limitset_held,
    retry_after_ns: i64,
    pause: *mut limitset_pause_info,
) -> limitset_status {
    answer(|| {
        // SAFETY: the caller vouches.
        let pause = unsafe { wanted_pause(pause) }?;
        let retry_after = retry_after(retry_after_ns)?;
        tell_pause(pause, &end(held, |held| held.rate_limited(retry_after))??);
        Ok(())
    })
}
