//! Describing a set, and opening it.

use std::ffi::c_char;
use std::time::Duration;

use limits::{
    Clock, Cooldown, LimitSet, LimitSetBuilder, OnDifference, OnUnavailable, Order, QueueOptions, Segment,
    SegmentOptions,
};

use crate::args::{self, choice, read, sized, text};
use crate::failure::{Done, answer};
use crate::handles::{BUILDERS, SETS, limitset_builder, limitset_set};
use crate::limit::{limit, limitset_limit};
use crate::status::limitset_status;

/// The description that a builder has gathered. The options of the segment are added at the end.
#[derive(Default)]
pub(crate) struct Description {
    pub(crate) builder: LimitSetBuilder,
    pub(crate) segment: SegmentOptions,
}

impl Description {
    fn whole(&self) -> LimitSetBuilder {
        self.builder.clone().segment(self.segment.clone())
    }
}

/// Settings of a set and its segment that are seldom changed. Initialize with limitset_settings_usual().
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct limitset_settings {
    /// sizeof(limitset_settings).
    pub struct_size: usize,
    /// A limitset_clock.
    pub clock: u32,
    /// 1: the first waiter that fits is granted. 0: waiters are granted in order of arrival.
    pub any_order: u32,
    /// 1: requests pass, marked as not enforced, when the set cannot be asked. 0: they are answered
    /// LIMITSET_UNAVAILABLE.
    pub allow_when_unavailable: u32,
    /// A limitset_difference.
    pub on_difference: u32,
    /// How many processes can be attached at one time; 0: 256.
    pub slots: u32,
    /// How many waiters there is room for; 0: 1024.
    pub waiters: u32,
    /// Permissions of the file; 0: 0600.
    pub mode: u32,
    /// 1: accept a set that belongs to another user.
    pub any_owner: u32,
    /// Group of the file, for mode 0660; -1: not changed.
    pub group: i64,
    /// The lock timeout: how long to wait while a living process holds the set's lock; 0: 5 seconds.
    pub patience_ns: u64,
}

/// The clock of a set.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum limitset_clock {
    /// CLOCK_MONOTONIC.
    LIMITSET_MONOTONIC = 0,
    /// CLOCK_MONOTONIC_COARSE: faster to read, a few milliseconds behind.
    LIMITSET_COARSE = 1,
    /// Stands still until limitset_advance() moves it: for tests.
    LIMITSET_MANUAL = 2,
}

/// How to open a set that exists and was declared differently.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum limitset_difference {
    /// Answer LIMITSET_DIFFERS.
    LIMITSET_FAIL = 0,
    /// Use the set as it is.
    LIMITSET_KEEP_CURRENT = 1,
    /// Give the set the parameters of this program.
    LIMITSET_RECONFIGURE = 2,
}

/// How a set pauses after "too many requests", and resumes. Initialize with limitset_cooldown_usual().
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct limitset_cooldown {
    /// sizeof(limitset_cooldown).
    pub struct_size: usize,
    /// Length of the first pause.
    pub first_ns: u64,
    /// The longest pause that follows from `factor`.
    pub longest_ns: u64,
    /// How many times as long each further pause is until a request succeeds, from 1 to 1000.
    pub factor: f64,
    /// The part by which a pause or gap may be longer at random, from 0 to 1.
    pub jitter: f64,
    /// How many admissions are spaced after a pause; 0: none, all waiters go on at once.
    pub slow_admissions: u32,
    /// 0.
    pub reserved: u32,
    /// The first gap between spaced admissions.
    pub first_gap_ns: u64,
    /// The last gap between spaced admissions.
    pub last_gap_ns: u64,
}

/// A work queue in the segment of a set. Initialize with limitset_queue_of().
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct limitset_queue {
    /// sizeof(limitset_queue).
    pub struct_size: usize,
    /// How many items there is room for.
    pub items: u32,
    /// Most bytes of an item.
    pub item_bytes: u32,
    /// Most bytes of a result.
    pub result_bytes: u32,
    /// How often an item is tried before it becomes a dead letter; 0: 3 times.
    pub attempts: u32,
    /// How often an item may be answered "too many requests" before it becomes a dead letter; 0: 20 times.
    pub rate_limits: u32,
    /// 0.
    pub reserved: u32,
}

sized!(limitset_settings, limitset_cooldown, limitset_queue);

const CLOCKS: [(u32, Clock); 3] = [
    (limitset_clock::LIMITSET_MONOTONIC as u32, Clock::Monotonic),
    (limitset_clock::LIMITSET_COARSE as u32, Clock::Coarse),
    (limitset_clock::LIMITSET_MANUAL as u32, Clock::Manual),
];

const DIFFERENCES: [(u32, OnDifference); 3] = [
    (limitset_difference::LIMITSET_FAIL as u32, OnDifference::Fail),
    (limitset_difference::LIMITSET_KEEP_CURRENT as u32, OnDifference::KeepCurrent),
    (limitset_difference::LIMITSET_RECONFIGURE as u32, OnDifference::Reconfigure),
];

/// Changes the description in a builder.
fn change(
    builder: *const limitset_builder,
    change: impl FnOnce(&mut Description) -> Done,
) -> limitset_status {
    answer(|| change(&mut *args::alone(&BUILDERS, builder, "builder")?))
}

/// Begins the description of a set. Free it with limitset_builder_free() when the set is open.
///
/// # Safety
///
/// `builder` is null or points to room for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn limitset_builder_new(builder: *mut *mut limitset_builder) -> limitset_status {
    // SAFETY: the caller vouches.
    answer(|| unsafe { args::give(&BUILDERS, Description::default(), builder, "builder") })
}

/// Frees a builder; the sets that it opened stay open. Null is ignored.
#[unsafe(no_mangle)]
pub extern "C" fn limitset_builder_free(builder: *mut limitset_builder) -> limitset_status {
    answer(|| args::close(&BUILDERS, builder, "builder"))
}

/// Adds a limit. Opening the set checks whether the limit is valid.
///
/// # Safety
///
/// `limit_to_add` is null or points to a limit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn limitset_builder_limit(
    builder: *mut limitset_builder,
    limit_to_add: *const limitset_limit,
) -> limitset_status {
    change(builder, |description| {
        // SAFETY: the caller vouches.
        let it = unsafe { read(limit_to_add, "the limit") }?;
        // SAFETY: the caller vouches.
        let limit = unsafe { limit(it) }?;
        description.builder = std::mem::take(&mut description.builder).limit(limit);
        Ok(())
    })
}

/// Adds an entry to the config map, which every process that attaches can read.
///
/// # Safety
///
/// `key` and `value` are null or texts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn limitset_builder_config(
    builder: *mut limitset_builder,
    key: *const c_char,
    value: *const c_char,
) -> limitset_status {
    change(builder, |description| {
        // SAFETY: the caller vouches.
        let key = unsafe { text(key, "the key") }?;
        // SAFETY: the caller vouches.
        let value = unsafe { text(value, "the value") }?;
        description.builder = std::mem::take(&mut description.builder).config(key, value);
        Ok(())
    })
}

/// Replaces all settings by `settings`.
///
/// # Safety
///
/// `settings` is null or points to settings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn limitset_builder_settings(
    builder: *mut limitset_builder,
    settings: *const limitset_settings,
) -> limitset_status {
    change(builder, |description| {
        // SAFETY: the caller vouches.
        let it = unsafe { read(settings, "the settings") }?;
        args::check_size(it, "the settings")?;
        let clock = choice(it.clock, &CLOCKS, "clock")?;
        let difference = choice(it.on_difference, &DIFFERENCES, "on_difference")?;
        let group = match it.group {
            -1 => None,
            group => Some(u32::try_from(group).map_err(|_| {
                args::bad(format!("invalid group {group}: pass a group number, or -1 for none"))
            })?),
        };
        let unavailable =
            if it.allow_when_unavailable == 0 { OnUnavailable::Deny } else { OnUnavailable::Allow };
        description.builder = std::mem::take(&mut description.builder)
            .clock(clock)
            .order(if it.any_order == 0 { Order::Arrival } else { Order::Any })
            .on_difference(difference)
            .on_unavailable(unavailable);
        let mut segment = Segment::options().any_owner(it.any_owner != 0);
        if it.slots != 0 {
            segment = segment.slots(it.slots);
        }
        if it.waiters != 0 {
            segment = segment.waiters(it.waiters);
        }
        if it.mode != 0 {
            segment = segment.mode(it.mode);
        }
        if let Some(group) = group {
            segment = segment.group(group);
        }
        if it.patience_ns != 0 {
            segment = segment.patience(Duration::from_nanos(it.patience_ns));
        }
        description.segment = segment;
        Ok(())
    })
}

/// Sets how the set pauses after "too many requests", and resumes.
///
/// # Safety
///
/// `cooldown` is null or points to a cooldown.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn limitset_builder_cooldown(
    builder: *mut limitset_builder,
    cooldown: *const limitset_cooldown,
) -> limitset_status {
    change(builder, |description| {
        // SAFETY: the caller vouches.
        let it = unsafe { read(cooldown, "the cooldown") }?;
        args::check_size(it, "the cooldown")?;
        let time = Duration::from_nanos;
        let cooldown = Cooldown::default()
            .first(time(it.first_ns))
            .longest(time(it.longest_ns))
            .factor(it.factor)
            .jitter(it.jitter)
            .slow_start(it.slow_admissions, time(it.first_gap_ns), time(it.last_gap_ns));
        description.builder = std::mem::take(&mut description.builder).cooldown(cooldown);
        Ok(())
    })
}

/// Adds a work queue.
///
/// # Safety
///
/// `queue` is null or points to a queue's description.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn limitset_builder_queue(
    builder: *mut limitset_builder,
    queue: *const limitset_queue,
) -> limitset_status {
    change(builder, |description| {
        // SAFETY: the caller vouches.
        let it = unsafe { read(queue, "the queue") }?;
        args::check_size(it, "the queue")?;
        let mut queue = QueueOptions::new(it.items, it.item_bytes).result_bytes(it.result_bytes);
        if it.attempts != 0 {
            queue = queue.attempts(it.attempts);
        }
        if it.rate_limits != 0 {
            queue = queue.rate_limits(it.rate_limits);
        }
        description.builder = std::mem::take(&mut description.builder).queue(queue);
        Ok(())
    })
}

/// Opens the set that a builder describes.
///
/// # Safety
///
/// `set` is null or points to room for a handle.
unsafe fn open(
    builder: *const limitset_builder,
    set: *mut *mut limitset_set,
    open: impl FnOnce(&LimitSetBuilder) -> Done<LimitSet>,
) -> limitset_status {
    answer(|| {
        args::check(set, "where the set's handle is to be written")?;
        let whole = args::alone(&BUILDERS, builder, "builder")?.whole();
        // SAFETY: the caller vouches.
        unsafe { args::give(&SETS, open(&whole)?, set, "set") }
    })
}

/// Opens the set with this name, for sharing with every process that opens it; creates it if it does not exist. A name
/// with a slash in it is the path of a file.
///
/// # Safety
///
/// `name` is null or a text; `set` is null or points to room for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn limitset_open(
    builder: *const limitset_builder,
    name: *const c_char,
    set: *mut *mut limitset_set,
) -> limitset_status {
    // SAFETY: the caller vouches.
    let open_it = |whole: &LimitSetBuilder| Ok(whole.open(unsafe { args::name(name) }?)?);
    // SAFETY: the caller vouches.
    unsafe { open(builder, set, open_it) }
}

/// Creates a set that must not exist yet.
///
/// # Safety
///
/// As limitset_open().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn limitset_create(
    builder: *const limitset_builder,
    name: *const c_char,
    set: *mut *mut limitset_set,
) -> limitset_status {
    // SAFETY: the caller vouches.
    let create = |whole: &LimitSetBuilder| Ok(whole.create(unsafe { args::name(name) }?)?);
    // SAFETY: the caller vouches.
    unsafe { open(builder, set, create) }
}

/// Creates a set without a name, for this process and the processes that it forks.
///
/// # Safety
///
/// `set` is null or points to room for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn limitset_open_anonymous(
    builder: *const limitset_builder,
    set: *mut *mut limitset_set,
) -> limitset_status {
    // SAFETY: the caller vouches.
    unsafe { open(builder, set, |whole| Ok(whole.open_anonymous()?)) }
}

/// Creates a set in private memory, for the threads of this process. In a forked child it answers LIMITSET_NOT_SHARED.
///
/// # Safety
///
/// `set` is null or points to room for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn limitset_open_private(
    builder: *const limitset_builder,
    set: *mut *mut limitset_set,
) -> limitset_status {
    // SAFETY: the caller vouches.
    unsafe { open(builder, set, |whole| Ok(whole.in_memory()?)) }
}

/// Attaches to a set that exists. Its limits are read from the segment.
///
/// # Safety
///
/// As limitset_open().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn limitset_attach(
    name: *const c_char,
    set: *mut *mut limitset_set,
) -> limitset_status {
    answer(|| {
        args::check(set, "where the set's handle is to be written")?;
        // SAFETY: the caller vouches.
        let name = unsafe { args::name(name) }?;
        // SAFETY: the caller vouches.
        unsafe { args::give(&SETS, LimitSet::attach(name)?, set, "set") }
    })
}
