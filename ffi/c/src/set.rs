//! Operations on a whole set: config, clock, pauses, parameters, removal.

use std::collections::BTreeMap;
use std::ffi::c_char;
use std::time::Duration;

use limits::LimitSet;

use crate::args::{self, shared, text};
use crate::failure::{Done, Failure, answer};
use crate::handles::{HELD, SETS, limitset_held, limitset_set};
use crate::held::{limitset_pause_info, tell_pause, wanted_pause};
use crate::limit::{limits, limitset_limit};
use crate::status::limitset_status::{self, LIMITSET_TOO_LONG, LIMITSET_UNKNOWN_KEY};

fn set(set: *const limitset_set, act: impl FnOnce(&LimitSet) -> Done) -> limitset_status {
    answer(|| act(&*shared(&SETS, set, "set")?))
}

/// Frees the handle of a set. The set itself stays, for other processes, and for requests, pools and acquisitions that
/// were made from it; this process leaves it when the last of them is gone. Null is ignored.
#[unsafe(no_mangle)]
pub extern "C" fn limitset_set_free(set: *mut limitset_set) -> limitset_status {
    answer(|| args::close(&SETS, set, "set"))
}

/// Removes the set: from now on every request to it, by any process, is answered LIMITSET_REMOVED, and the name is free
/// again.
#[unsafe(no_mangle)]
pub extern "C" fn limitset_remove(the_set: *const limitset_set) -> limitset_status {
    set(the_set, |set| Ok(set.remove()?))
}

/// Changes the parameters of limits in place, all of them at one instant, for every process. Keys, kinds and
/// algorithms cannot change.
///
/// # Safety
///
/// `first` points to `count` limits.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn limitset_reconfigure(
    the_set: *const limitset_set,
    first: *const limitset_limit,
    count: usize,
) -> limitset_status {
    set(the_set, |set| {
        // SAFETY: the caller vouches.
        let limits = unsafe { limits(first, count) }?;
        Ok(set.reconfigure(limits)?)
    })
}

/// Resets every rate to unused, and clears debt. Permits stay with their holders.
#[unsafe(no_mangle)]
pub extern "C" fn limitset_reset(the_set: *const limitset_set) -> limitset_status {
    set(the_set, |set| Ok(set.reset()?))
}

/// Returns at once the permits of dead participants, instead of when a request needs them. `permits`, if it is not
/// null, becomes the number of permits returned.
///
/// # Safety
///
/// `permits` is null or points to a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn limitset_reap(the_set: *const limitset_set, permits: *mut u64) -> limitset_status {
    set(the_set, |set| {
        // SAFETY: the caller vouches.
        let to = unsafe { args::maybe_out(permits, "permits") }?;
        let permits = set.reap()?;
        if let Some(to) = to {
            *to = permits;
        }
        Ok(())
    })
}

/// Advances a manual clock, for every process.
#[unsafe(no_mangle)]
pub extern "C" fn limitset_advance(the_set: *const limitset_set, nanos: u64) -> limitset_status {
    set(the_set, |set| Ok(set.advance(Duration::from_nanos(nanos))?))
}

/// Pauses the set by hand, in every process, for at least `nanos` nanoseconds. `pause` may be null.
///
/// # Safety
///
/// `pause` is null or points to one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn limitset_pause(
    the_set: *const limitset_set,
    nanos: u64,
    pause: *mut limitset_pause_info,
) -> limitset_status {
    set(the_set, |set| {
        // SAFETY: the caller vouches.
        let pause = unsafe { wanted_pause(pause) }?;
        tell_pause(pause, &set.pause(Duration::from_nanos(nanos))?);
        Ok(())
    })
}

/// Ends a pause before its time. `was_paused`, if it is not null, becomes 0 if the set was not paused.
///
/// # Safety
///
/// `was_paused` is null or points to a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn limitset_resume(
    the_set: *const limitset_set,
    was_paused: *mut u32,
) -> limitset_status {
    set(the_set, |set| {
        // SAFETY: the caller vouches.
        let to = unsafe { args::maybe_out(was_paused, "was_paused") }?;
        let was_paused = set.resume()?;
        if let Some(to) = to {
            *to = was_paused.into();
        }
        Ok(())
    })
}

/// Copies an entry of the config map into `buffer`, with a zero behind it. `needed`, if it is not null, becomes its
/// length with that zero. LIMITSET_TOO_LONG if `room` is less (`buffer` may be null then), LIMITSET_UNKNOWN_KEY if the
/// map has no such entry.
///
/// # Safety
///
/// `key` is null or a text; `buffer` is null or points to `room` bytes; `needed` is null or points to a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn limitset_config(
    the_set: *const limitset_set,
    key: *const c_char,
    buffer: *mut c_char,
    room: usize,
    needed: *mut usize,
) -> limitset_status {
    // SAFETY: the caller vouches.
    set(the_set, |set| unsafe { copy_config(set.config(), key, buffer, room, needed) })
}

/// Copies an entry of the config map of the set that an acquisition came from, as limitset_config() does. Tells the
/// sets of a pool apart.
///
/// # Safety
///
/// As limitset_config().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn limitset_held_config(
    held: limitset_held,
    key: *const c_char,
    buffer: *mut c_char,
    room: usize,
    needed: *mut usize,
) -> limitset_status {
    answer(|| {
        let held = HELD.lock(held.id).map_err(|why| crate::failure::lost("acquisition", why))?;
        // SAFETY: the caller vouches.
        unsafe { copy_config(held.config(), key, buffer, room, needed) }
    })
}

/// # Safety
///
/// As limitset_config().
unsafe fn copy_config(
    config: &BTreeMap<String, String>,
    key: *const c_char,
    buffer: *mut c_char,
    room: usize,
    needed: *mut usize,
) -> Done {
    // SAFETY: the caller vouches.
    let key = unsafe { text(key, "the key") }?;
    // SAFETY: the caller vouches.
    let needed = unsafe { args::maybe_out(needed, "needed") }?;
    let value = config
        .get(key)
        .ok_or_else(|| Failure::new(LIMITSET_UNKNOWN_KEY, format!("unknown config key {key:?}")))?;
    let with_zero = value.len() + 1;
    if let Some(to) = needed {
        *to = with_zero;
    }
    if with_zero > room {
        let why = format!(
            "the value needs {with_zero} bytes with its zero, the buffer has {room}: pass a larger one"
        );
        return Err(Failure::new(LIMITSET_TOO_LONG, why));
    }
    args::check(buffer, "the buffer")?;
    // SAFETY: both have so many bytes, and the caller's buffer does not overlap the config map.
    unsafe { std::ptr::copy_nonoverlapping(value.as_ptr(), buffer.cast(), value.len()) };
    // SAFETY: `room` is more than the length.
    let end = unsafe { buffer.add(value.len()) };
    // SAFETY: as above.
    unsafe { end.write(0) };
    Ok(())
}
