//! The work queue: an item goes to another worker if its worker dies.

use std::time::Duration;

use limits::{Finished, QueueError, Reason, WorkItem, WorkQueue};

use crate::args::{self, plain, shared, sized, timeout};
use crate::failure::{Done, Failure, answer, lost};
use crate::handles::{FINISHED, ITEMS, SETS, limitset_finished, limitset_item, limitset_set};
use crate::held::{self, limitset_pause_info, retry_after, tell_pause, wanted_pause};
use crate::interrupt::{limitset_interrupt, with_interrupt};
use crate::status::limitset_status::{self, LIMITSET_OVER};
use crate::table::Table;

/// The reason why a finished item is a dead letter.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum limitset_reason {
    /// It is not a dead letter: it is done.
    LIMITSET_DONE = 0,
    /// It was tried as often as the queue allows.
    LIMITSET_ATTEMPTS = 1,
    /// It was answered "too many requests" as often as the queue allows.
    LIMITSET_RATE_LIMITS = 2,
    /// A worker called limitset_dead_letter().
    LIMITSET_GIVEN_UP = 3,
}

/// Properties of an item, or of a finished item. Initialize with limitset_item_info_init(). Its pointers are valid
/// until a thread ends the item.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct limitset_item_info {
    /// sizeof(limitset_item_info).
    pub struct_size: usize,
    /// The program's own number.
    pub id: u64,
    /// The payload that was pushed.
    pub payload: *const u8,
    /// Length of the payload.
    pub payload_bytes: usize,
    /// The result of a finished item; for a dead letter that a worker gave up, the worker's reason.
    pub result: *const u8,
    /// Length of the result.
    pub result_bytes: usize,
    /// How often a worker took it, except the times that ended with "too many requests".
    pub attempts: u64,
    /// How often it was answered "too many requests".
    pub rate_limits: u64,
    /// A limitset_reason.
    pub reason: u32,
    /// 0.
    pub reserved: u32,
}

sized!(limitset_item_info);
plain!(limitset_item_info);

fn queue(set: *const limitset_set) -> Done<WorkQueue> {
    Ok(shared(&SETS, set, "set")?.queue()?)
}

fn over() -> Failure {
    Failure::new(LIMITSET_OVER, "the queue is closed and all its items are finished: end the loop")
}

/// How long a function of the queue waits.
enum Wait {
    Not,
    For(Duration),
    Forever,
}

fn wait(nanos: i64) -> Done<Wait> {
    Ok(match timeout(nanos)? {
        None => Wait::Forever,
        Some(Duration::ZERO) => Wait::Not,
        Some(time) => Wait::For(time),
    })
}

/// Adds an item. While the queue is full it waits, at most `timeout_ns` (LIMITSET_FOREVER: for ever; 0: not at all, the
/// answer is LIMITSET_FULL), or until `interrupt` is raised. `id` is the program's own and means nothing to the queue.
///
/// # Safety
///
/// `payload` points to `bytes` bytes; `interrupt` is null or points to one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn limitset_push(
    set: *const limitset_set,
    id: u64,
    payload: *const u8,
    bytes: usize,
    timeout_ns: i64,
    interrupt: *const limitset_interrupt,
) -> limitset_status {
    answer(|| {
        // SAFETY: the caller vouches.
        let payload = unsafe { args::slice(payload, bytes, "the payload") }?;
        let (queue, wait) = (queue(set)?, wait(timeout_ns)?);
        let push = || match wait {
            Wait::Not => queue.try_push(id, payload),
            Wait::For(time) => queue.push_timeout(id, payload, time),
            Wait::Forever => queue.push(id, payload),
        };
        // SAFETY: the caller vouches.
        Ok(unsafe { with_interrupt(interrupt, push) }??)
    })
}

/// Takes the next item; waits while there is none, as limitset_push() does (with 0 the answer is LIMITSET_EMPTY).
/// LIMITSET_OVER: the queue is closed and all its items are finished.
///
/// # Safety
///
/// `interrupt` is null or points to one; `item` is null or points to room for one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn limitset_take(
    set: *const limitset_set,
    timeout_ns: i64,
    interrupt: *const limitset_interrupt,
    item: *mut limitset_item,
) -> limitset_status {
    answer(|| {
        // SAFETY: the caller vouches.
        let item = unsafe { args::out(item, "where the item is to be written") }?;
        item.id = 0;
        let (queue, wait) = (queue(set)?, wait(timeout_ns)?);
        let take = || match wait {
            Wait::Not => queue.try_take(),
            Wait::For(time) => queue.take_timeout(time),
            Wait::Forever => queue.take(),
        };
        // SAFETY: the caller vouches.
        let taken = unsafe { with_interrupt(interrupt, take) }??.ok_or_else(over)?;
        item.id = ITEMS.insert(taken).ok_or_else(|| args::too_many("item"))?;
        Ok(())
    })
}

/// Reads the properties of an item.
///
/// # Safety
///
/// `info` is null or points to one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn limitset_read_item(
    item: limitset_item,
    info: *mut limitset_item_info,
) -> limitset_status {
    answer(|| {
        // SAFETY: the caller vouches.
        let info = unsafe { args::out(info, "the info") }?;
        args::check_size(info, "the info")?;
        let item = ITEMS.lock(item.id).map_err(|why| lost("item", why))?;
        (info.id, info.attempts, info.rate_limits) = (item.id(), item.attempts(), item.rate_limits());
        (info.payload, info.payload_bytes) = (item.payload().as_ptr(), item.payload().len());
        (info.result, info.result_bytes) = (std::ptr::null(), 0);
        info.reason = limitset_reason::LIMITSET_DONE as u32;
        Ok(())
    })
}

/// Ends an item or a result, unless the result of the caller was too long.
fn end<T>(
    table: &Table<T>,
    number: u64,
    what: &str,
    act: impl FnOnce(&mut T) -> Result<(), QueueError>,
) -> limitset_status {
    answer(|| {
        let mut it = table.lock(number).map_err(|why| lost(what, why))?;
        let ended = act(&mut *it);
        if matches!(ended, Err(QueueError::TooLong { .. })) {
            return Ok(ended?);
        }
        // Closed while this thread still has it alone: the next call with it finds it gone.
        let _ = table.close(number);
        drop(it);
        Ok(ended?)
    })
}

/// Records that an item is done. If `result` is not null, the item keeps its place until a process has collected the
/// result.
///
/// # Safety
///
/// `result` is null or points to `bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn limitset_done(
    item: limitset_item,
    result: *const u8,
    bytes: usize,
) -> limitset_status {
    if result.is_null() && bytes == 0 {
        return end(&ITEMS, item.id, "item", WorkItem::done);
    }
    // SAFETY: the caller vouches.
    match unsafe { args::slice(result, bytes, "the result") } {
        Ok(result) => end(&ITEMS, item.id, "item", |item| item.done_with(result)),
        Err(failure) => answer(|| Err(failure)),
    }
}

/// Returns an item to the queue, for any worker to take again after `after_ns`. After its last attempt it becomes a
/// dead letter instead.
#[unsafe(no_mangle)]
pub extern "C" fn limitset_retry(item: limitset_item, after_ns: u64) -> limitset_status {
    end(&ITEMS, item.id, "item", |item| item.retry(Duration::from_nanos(after_ns)))
}

/// Returns an item to the queue at once, as if it had not been taken.
#[unsafe(no_mangle)]
pub extern "C" fn limitset_give_back(item: limitset_item) -> limitset_status {
    end(&ITEMS, item.id, "item", WorkItem::give_back)
}

/// Returns an item to the queue; the attempt counts.
#[unsafe(no_mangle)]
pub extern "C" fn limitset_abandon(item: limitset_item) -> limitset_status {
    // Dropping the item abandons it.
    end(&ITEMS, item.id, "item", |_| Ok(()))
}

/// Makes an item a dead letter. `why` is kept as its result, and may be null.
///
/// # Safety
///
/// `why` points to `bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn limitset_dead_letter(
    item: limitset_item,
    why: *const u8,
    bytes: usize,
) -> limitset_status {
    // SAFETY: the caller vouches.
    match unsafe { args::slice(why, bytes, "the reason") } {
        Ok(why) => end(&ITEMS, item.id, "item", |item| item.dead_letter(why)),
        Err(failure) => answer(|| Err(failure)),
    }
}

/// Reports that the other side answered "too many requests": ends the acquisition of the request as
/// limitset_rate_limited() does, and parks the item until the pause is over, both at one instant. `retry_after_ns` is
/// the other side's Retry-After; -1: it sent none. `pause` may be null.
///
/// # Safety
///
/// `pause` is null or points to one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn limitset_park(
    item: limitset_item,
    held: crate::handles::limitset_held,
    retry_after_ns: i64,
    pause: *mut limitset_pause_info,
) -> limitset_status {
    answer(|| {
        // SAFETY: the caller vouches.
        let to = unsafe { wanted_pause(pause) }?;
        let retry_after = retry_after(retry_after_ns)?;
        let mut it = ITEMS.lock(item.id).map_err(|why| lost("item", why))?;
        let parked = held::end(held, |held| it.rate_limited(held, retry_after))?;
        let _ = ITEMS.close(item.id);
        drop(it);
        tell_pause(to, &parked?);
        Ok(())
    })
}

/// Takes the oldest result that no process has collected; waits while there is none, as limitset_take() does.
///
/// # Safety
///
/// As limitset_take().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn limitset_collect(
    set: *const limitset_set,
    timeout_ns: i64,
    interrupt: *const limitset_interrupt,
    finished: *mut limitset_finished,
) -> limitset_status {
    answer(|| {
        // SAFETY: the caller vouches.
        let finished = unsafe { args::out(finished, "where the result is to be written") }?;
        let (queue, wait) = (queue(set)?, wait(timeout_ns)?);
        let collect = || match wait {
            Wait::Not => queue.try_collect(),
            Wait::For(time) => queue.collect_timeout(time),
            Wait::Forever => queue.collect(),
        };
        // SAFETY: the caller vouches.
        keep_finished(finished, unsafe { with_interrupt(interrupt, collect) }?)
    })
}

/// Takes the oldest dead letter. Never waits: LIMITSET_EMPTY if there is none.
///
/// # Safety
///
/// `finished` is null or points to room for one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn limitset_collect_dead(
    set: *const limitset_set,
    finished: *mut limitset_finished,
) -> limitset_status {
    answer(|| {
        // SAFETY: the caller vouches.
        let finished = unsafe { args::out(finished, "where the dead letter is to be written") }?;
        keep_finished(finished, queue(set)?.collect_dead())
    })
}

fn keep_finished(to: &mut limitset_finished, taken: Result<Option<Finished>, QueueError>) -> Done {
    to.id = 0;
    let taken = taken?.ok_or_else(over)?;
    to.id = FINISHED.insert(taken).ok_or_else(|| args::too_many("result"))?;
    Ok(())
}

/// Reads the properties of a finished item.
///
/// # Safety
///
/// `info` is null or points to one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn limitset_read_finished(
    finished: limitset_finished,
    info: *mut limitset_item_info,
) -> limitset_status {
    answer(|| {
        // SAFETY: the caller vouches.
        let info = unsafe { args::out(info, "the info") }?;
        args::check_size(info, "the info")?;
        let it = FINISHED.lock(finished.id).map_err(|why| lost("result", why))?;
        (info.id, info.attempts, info.rate_limits) = (it.id(), it.attempts(), it.rate_limits());
        (info.payload, info.payload_bytes) = (it.payload().as_ptr(), it.payload().len());
        (info.result, info.result_bytes) = (it.result().as_ptr(), it.result().len());
        info.reason = match it.reason() {
            None => limitset_reason::LIMITSET_DONE,
            Some(Reason::Attempts) => limitset_reason::LIMITSET_ATTEMPTS,
            Some(Reason::RateLimits) => limitset_reason::LIMITSET_RATE_LIMITS,
            Some(_) => limitset_reason::LIMITSET_GIVEN_UP,
        } as u32;
        Ok(())
    })
}

/// Frees the place of a finished item.
#[unsafe(no_mangle)]
pub extern "C" fn limitset_forget(finished: limitset_finished) -> limitset_status {
    end(&FINISHED, finished.id, "result", Finished::forget)
}

/// Returns a finished item to the queue, with all counts at zero.
#[unsafe(no_mangle)]
pub extern "C" fn limitset_revive(finished: limitset_finished) -> limitset_status {
    end(&FINISHED, finished.id, "result", Finished::revive)
}

/// Puts a finished item back, to be collected again.
#[unsafe(no_mangle)]
pub extern "C" fn limitset_put_back(finished: limitset_finished) -> limitset_status {
    end(&FINISHED, finished.id, "result", |_| Ok(()))
}

/// Closes the queue: no process can push any more. Workers go on until all items are finished.
#[unsafe(no_mangle)]
pub extern "C" fn limitset_close(set: *const limitset_set) -> limitset_status {
    answer(|| Ok(queue(set)?.close()?))
}

/// Waits until all pushed items are finished, at most `timeout_ns`, or until `interrupt` is raised.
///
/// # Safety
///
/// `interrupt` is null or points to one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn limitset_drain(
    set: *const limitset_set,
    timeout_ns: i64,
    interrupt: *const limitset_interrupt,
) -> limitset_status {
    answer(|| {
        let queue = queue(set)?;
        let drain = |queue: &WorkQueue| match timeout(timeout_ns)? {
            Some(time) => Ok(queue.drain_timeout(time)?),
            None => Ok(queue.drain()?),
        };
        // SAFETY: the caller vouches.
        unsafe { with_interrupt(interrupt, || drain(&queue)) }?
    })
}
