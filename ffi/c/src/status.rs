//! The status that every function returns, and how errors of the core map to it.

use limits::error::{AttachError, CreateError};
use limits::{AcquireError, ManageError, OpenError, PoolError, QueueError, UsageError};

/// The status that every function returns. 0 is success, every other number a reason of failure; limitset_last_error()
/// has the message.
///
/// Numbers never change; new ones may be added.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum limitset_status {
    /// Success.
    LIMITSET_OK = 0,

    /* Requests: nothing was acquired, nothing was charged. */
    /// The limits do not allow the request now. limitset_denial has the status of every limit and the time to retry.
    LIMITSET_DENIED = 1,
    /// Other requests wait for the same limits and came first.
    LIMITSET_QUEUED = 2,
    /// The set is paused, after an answer of "too many requests" or by hand.
    LIMITSET_COOLING_DOWN = 3,
    /// The wait queue has no free entry.
    LIMITSET_QUEUE_FULL = 4,
    /// The timeout of a wait for limits, or at a work queue, has expired.
    LIMITSET_TIMED_OUT = 5,
    /// The request exceeds the most that a limit ever grants: waiting cannot help.
    LIMITSET_NEVER = 6,
    /// limitset_interrupt_raise() ended the wait.
    LIMITSET_INTERRUPTED = 7,
    /// The request names an unknown limit, names one twice, or leaves out a rate.
    LIMITSET_BAD_REQUEST = 8,

    /* The set. */
    /// The set cannot be asked: a stopped process holds its lock, it is damaged, or this process cannot enrol.
    LIMITSET_UNAVAILABLE = 20,
    /// The set was removed. Open it again.
    LIMITSET_REMOVED = 21,
    /// The set is private memory of the process that forked this one.
    LIMITSET_NOT_SHARED = 22,
    /// The acquisition or item belongs to the process that forked this one, and cannot be used here.
    LIMITSET_FORKED = 23,

    /* Acquisitions and items. */
    /// The handle was released, cancelled, finished or freed before.
    LIMITSET_SPENT = 30,
    /// The acquisition has nothing of that limit.
    LIMITSET_NOT_REQUESTED = 31,
    /// The report exceeds the requested amount: use limitset_settle() or limitset_adjust().
    LIMITSET_ABOVE_REQUESTED = 32,
    /// The refund exceeds the charged amount.
    LIMITSET_ABOVE_CHARGED = 33,
    /// A report cannot acquire permits: use limitset_acquire_more().
    LIMITSET_PERMITS = 34,
    /// The amount exceeds the capacity of any limit.
    LIMITSET_TOO_MUCH = 35,
    /// The acquisition was released without a report that was due.
    LIMITSET_UNREPORTED = 36,
    /// Another thread uses the handle, which only one thread at a time may use.
    LIMITSET_IN_USE = 37,

    /* Defining and changing a set. */
    /// A limit has a parameter out of range.
    LIMITSET_BAD_LIMIT = 50,
    /// A setting is out of range.
    LIMITSET_BAD_SETTING = 51,
    /// The set has no such limit.
    LIMITSET_UNKNOWN_KEY = 52,
    /// The kind or the algorithm of a limit cannot change in place.
    LIMITSET_NOT_NUMBERS = 53,
    /// Only a manual clock can be moved.
    LIMITSET_CLOCK_MOVES_ITSELF = 54,

    /* Opening. */
    /// The name breaks the rules for names.
    LIMITSET_BAD_NAME = 70,
    /// No set has this name.
    LIMITSET_NOT_FOUND = 71,
    /// A set of this name exists.
    LIMITSET_EXISTS = 72,
    /// The set was declared differently.
    LIMITSET_DIFFERS = 73,
    /// The file is not a set that this version can use.
    LIMITSET_UNUSABLE = 74,
    /// This user lacks a permission, or the set belongs to another user.
    LIMITSET_PERMISSION = 75,
    /// Another process has not finished opening the set.
    LIMITSET_BUSY = 76,
    /// Living processes have all slots.
    LIMITSET_TOO_MANY_PARTICIPANTS = 77,
    /// The file system is full.
    LIMITSET_NO_SPACE = 78,
    /// The kernel is too old.
    LIMITSET_UNSUPPORTED = 79,
    /// The system reported an error.
    LIMITSET_IO = 80,

    /* Work queues. */
    /// The set was created without a queue.
    LIMITSET_NO_QUEUE = 90,
    /// The bytes exceed the room for them.
    LIMITSET_TOO_LONG = 91,
    /// The queue is closed: no item can be pushed.
    LIMITSET_CLOSED = 92,
    /// The queue is full.
    LIMITSET_FULL = 93,
    /// The queue has no item now.
    LIMITSET_EMPTY = 94,
    /// The queue is closed and all its items are finished. Not an error: the end of a worker's loop.
    LIMITSET_OVER = 95,
    /// This process no longer has the item: another program changed the segment.
    LIMITSET_NOT_HELD = 96,

    /* Misuse of this interface. */
    /// A pointer is null that must not be.
    LIMITSET_NULL = 110,
    /// No call has returned this handle.
    LIMITSET_BAD_HANDLE = 111,
    /// An argument is invalid: a number out of range, a text that is not UTF-8, a misaligned pointer.
    LIMITSET_BAD_ARGUMENT = 112,
    /// The struct_size of a struct is wrong: initialize it with the function of its name.
    LIMITSET_BAD_STRUCT_SIZE = 113,
    /// Too many handles of this kind are open.
    LIMITSET_TOO_MANY_HANDLES = 114,

    /// A defect in limitset. The set is as it was before the call.
    LIMITSET_DEFECT = 120,
    /// An error that this version of the interface has no name for.
    LIMITSET_OTHER = 121,
}

use limitset_status::*;

pub(crate) fn of_acquire(error: &AcquireError) -> limitset_status {
    match error {
        AcquireError::Denied(_) => LIMITSET_DENIED,
        AcquireError::Queued { .. } => LIMITSET_QUEUED,
        AcquireError::CoolingDown { .. } => LIMITSET_COOLING_DOWN,
        AcquireError::QueueFull { .. } => LIMITSET_QUEUE_FULL,
        AcquireError::TimedOut(_) => LIMITSET_TIMED_OUT,
        AcquireError::Interrupted => LIMITSET_INTERRUPTED,
        AcquireError::Never { .. } => LIMITSET_NEVER,
        AcquireError::BadRequest(_) => LIMITSET_BAD_REQUEST,
        AcquireError::Unavailable(_) => LIMITSET_UNAVAILABLE,
        AcquireError::Removed => LIMITSET_REMOVED,
        AcquireError::Forked => LIMITSET_FORKED,
        AcquireError::Returned => LIMITSET_NOT_HELD,
        AcquireError::NotShared => LIMITSET_NOT_SHARED,
        _ => LIMITSET_OTHER,
    }
}

pub(crate) fn of_usage(error: &UsageError) -> limitset_status {
    match error {
        UsageError::NotRequested { .. } => LIMITSET_NOT_REQUESTED,
        UsageError::AboveRequested { .. } => LIMITSET_ABOVE_REQUESTED,
        UsageError::AboveCharged { .. } => LIMITSET_ABOVE_CHARGED,
        UsageError::Permits { .. } => LIMITSET_PERMITS,
        UsageError::TooMuch { .. } => LIMITSET_TOO_MUCH,
        UsageError::Unreported { .. } => LIMITSET_UNREPORTED,
        UsageError::Forked => LIMITSET_FORKED,
        UsageError::Returned => LIMITSET_NOT_HELD,
        UsageError::Unavailable(_) => LIMITSET_UNAVAILABLE,
        UsageError::Removed => LIMITSET_REMOVED,
        _ => LIMITSET_OTHER,
    }
}

pub(crate) fn of_manage(error: &ManageError) -> limitset_status {
    match error {
        ManageError::Limit(_) => LIMITSET_BAD_LIMIT,
        ManageError::UnknownKey { .. } => LIMITSET_UNKNOWN_KEY,
        ManageError::NotNumbers { .. } => LIMITSET_NOT_NUMBERS,
        ManageError::ClockMovesItself { .. } => LIMITSET_CLOCK_MOVES_ITSELF,
        ManageError::Unavailable(_) => LIMITSET_UNAVAILABLE,
        ManageError::Removed => LIMITSET_REMOVED,
        ManageError::NotShared => LIMITSET_NOT_SHARED,
        _ => LIMITSET_OTHER,
    }
}

pub(crate) fn of_queue(error: &QueueError) -> limitset_status {
    match error {
        QueueError::NoQueue => LIMITSET_NO_QUEUE,
        QueueError::TooLong { .. } => LIMITSET_TOO_LONG,
        QueueError::Closed => LIMITSET_CLOSED,
        QueueError::Full { .. } => LIMITSET_FULL,
        QueueError::Empty => LIMITSET_EMPTY,
        QueueError::TimedOut => LIMITSET_TIMED_OUT,
        QueueError::Interrupted => LIMITSET_INTERRUPTED,
        QueueError::Spent => LIMITSET_SPENT,
        QueueError::NotHeld => LIMITSET_NOT_HELD,
        QueueError::Forked => LIMITSET_FORKED,
        QueueError::Unavailable(_) => LIMITSET_UNAVAILABLE,
        QueueError::Removed => LIMITSET_REMOVED,
        QueueError::NotShared => LIMITSET_NOT_SHARED,
        _ => LIMITSET_OTHER,
    }
}

pub(crate) fn of_open(error: &OpenError) -> limitset_status {
    match error {
        OpenError::Limit(_) => LIMITSET_BAD_LIMIT,
        OpenError::Setting(_) => LIMITSET_BAD_SETTING,
        OpenError::Segment(error) => match error {
            CreateError::Option(_) | CreateError::TooSmall { .. } => LIMITSET_BAD_SETTING,
            CreateError::Exists { .. } => LIMITSET_EXISTS,
            CreateError::NoSpace { .. } => LIMITSET_NO_SPACE,
            CreateError::Group { .. } => LIMITSET_PERMISSION,
            CreateError::Attach(error) => of_attach(error),
            _ => LIMITSET_OTHER,
        },
        _ => LIMITSET_OTHER,
    }
}

pub(crate) fn of_attach(error: &AttachError) -> limitset_status {
    match error {
        AttachError::Name(_) => LIMITSET_BAD_NAME,
        AttachError::NotFound { .. } => LIMITSET_NOT_FOUND,
        AttachError::NotAFile { .. }
        | AttachError::FileSystem { .. }
        | AttachError::Malformed { .. }
        | AttachError::NotASet { .. }
        | AttachError::TimeNamespace { .. }
        | AttachError::Damaged { .. } => LIMITSET_UNUSABLE,
        AttachError::Permission { .. } | AttachError::Owner { .. } => LIMITSET_PERMISSION,
        AttachError::Differs { .. } => LIMITSET_DIFFERS,
        AttachError::Busy { .. } => LIMITSET_BUSY,
        AttachError::TooManyParticipants { .. } => LIMITSET_TOO_MANY_PARTICIPANTS,
        AttachError::Removed { .. } => LIMITSET_REMOVED,
        AttachError::NotShared => LIMITSET_NOT_SHARED,
        AttachError::Unsupported { .. } => LIMITSET_UNSUPPORTED,
        AttachError::Io { .. } => LIMITSET_IO,
        _ => LIMITSET_OTHER,
    }
}

pub(crate) fn of_pool(error: &PoolError) -> limitset_status {
    match error {
        PoolError::NoSets => LIMITSET_BAD_ARGUMENT,
        PoolError::Open(error) => of_open(error),
        PoolError::Attach(error) => of_attach(error),
        _ => LIMITSET_OTHER,
    }
}
