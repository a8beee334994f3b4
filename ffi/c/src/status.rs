//! What every function answers, and what the errors of the core are called there.

use limits::error::{AttachError, CreateError};
use limits::{AcquireError, ManageError, OpenError, PoolError, QueueError, UsageError};

/// What every function answers. 0 is success, everything else says why not; limitset_last_error() says it in words.
///
/// Numbers never change; new ones may come.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum limitset_status {
    /// It is done.
    LIMITSET_OK = 0,

    /* Refusals: nothing was acquired, nothing was charged. */
    /// The limits do not allow it now. limitset_denial says how every limit stands and when to ask again.
    LIMITSET_DENIED = 1,
    /// The limits may allow it, but others who want the same came first and wait.
    LIMITSET_QUEUED = 2,
    /// The set pauses: somebody was answered "too many requests", or paused it by hand.
    LIMITSET_COOLING_DOWN = 3,
    /// All places in the queue of those who wait are taken.
    LIMITSET_QUEUE_FULL = 4,
    /// The limits, or the work queue, did not allow it in time.
    LIMITSET_TIMED_OUT = 5,
    /// More was asked for than a limit ever gives: waiting is of no use.
    LIMITSET_NEVER = 6,
    /// The wait was ended by limitset_interrupt_raise().
    LIMITSET_INTERRUPTED = 7,
    /// The request names what the set has not, or names something twice, or leaves out a rate.
    LIMITSET_BAD_REQUEST = 8,

    /* The set as such. */
    /// The set could not be asked: a stopped process has its lock, it is damaged, or this process cannot enrol.
    LIMITSET_UNAVAILABLE = 20,
    /// The set was removed. Open it again.
    LIMITSET_REMOVED = 21,
    /// The set is private memory of the process that forked this one.
    LIMITSET_NOT_SHARED = 22,
    /// What is held belongs to the process that forked this one. Here it is inert.
    LIMITSET_FORKED = 23,

    /* What is held. */
    /// It was released, cancelled, finished or freed before.
    LIMITSET_SPENT = 30,
    /// The acquisition has nothing of that limit.
    LIMITSET_NOT_REQUESTED = 31,
    /// More was used than requested: use limitset_settle() or limitset_adjust().
    LIMITSET_ABOVE_REQUESTED = 32,
    /// More is to be given back than is charged.
    LIMITSET_ABOVE_CHARGED = 33,
    /// Permits cannot be had by a report: use limitset_acquire_more().
    LIMITSET_PERMITS = 34,
    /// An amount beyond any limit.
    LIMITSET_TOO_MUCH = 35,
    /// It was released, but the use of a rate that needs a report was not reported.
    LIMITSET_UNREPORTED = 36,
    /// Another thread uses it at this moment, and it can only be used by one at a time.
    LIMITSET_IN_USE = 37,

    /* Defining and changing a set. */
    /// A limit that cannot be.
    LIMITSET_BAD_LIMIT = 50,
    /// A setting that cannot be.
    LIMITSET_BAD_SETTING = 51,
    /// The set has no such limit.
    LIMITSET_UNKNOWN_KEY = 52,
    /// Something else than numbers would change.
    LIMITSET_NOT_NUMBERS = 53,
    /// Only a manual clock can be moved.
    LIMITSET_CLOCK_MOVES_ITSELF = 54,

    /* Opening. */
    /// A name against the rules.
    LIMITSET_BAD_NAME = 70,
    /// There is no such set.
    LIMITSET_NOT_FOUND = 71,
    /// There is one of that name.
    LIMITSET_EXISTS = 72,
    /// It was declared otherwise.
    LIMITSET_DIFFERS = 73,
    /// What is there is no set that this version can use.
    LIMITSET_UNUSABLE = 74,
    /// This user may not, or the set is of another user.
    LIMITSET_PERMISSION = 75,
    /// Another process was in the middle of opening it for too long.
    LIMITSET_BUSY = 76,
    /// All slots are taken by living processes.
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
    /// More bytes than there is room for.
    LIMITSET_TOO_LONG = 91,
    /// The queue is closed: nothing more can be pushed.
    LIMITSET_CLOSED = 92,
    /// All places of the queue are taken.
    LIMITSET_FULL = 93,
    /// There is nothing in the queue now.
    LIMITSET_EMPTY = 94,
    /// The queue is closed and all that was in it is finished. No error: the end of a worker's loop.
    LIMITSET_OVER = 95,
    /// The item is no longer with this process: the segment was changed by somebody else.
    LIMITSET_NOT_HELD = 96,

    /* Misuse of this interface. */
    /// A pointer that must not be null was.
    LIMITSET_NULL = 110,
    /// A handle that was never given out.
    LIMITSET_BAD_HANDLE = 111,
    /// An argument that makes no sense: a number out of range, a text that is not UTF-8, a misaligned pointer.
    LIMITSET_BAD_ARGUMENT = 112,
    /// A struct whose struct_size is not that of its type: initialize it with the function of its name.
    LIMITSET_BAD_STRUCT_SIZE = 113,
    /// There are too many things of this kind.
    LIMITSET_TOO_MANY_HANDLES = 114,

    /// A defect of limitset. The set is as if the call had not been made.
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
