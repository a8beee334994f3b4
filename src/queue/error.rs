//! Errors of a work queue.

use thiserror::Error;

use crate::code::Code;

use crate::api::error::{ManageError, UsageError};
use crate::segment::grantee::Void;
use crate::shared::error::{Unavailable, from_set_error};

/// Why an operation on a [`WorkQueue`](crate::WorkQueue), or on one of its items, failed.
#[derive(Debug, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages name every field")]
pub enum QueueError {
    /// The set was created without a queue.
    #[error("this set has no work queue: create it with LimitSetBuilder::queue")]
    NoQueue,
    /// The bytes do not fit into an item.
    #[error(
        "{what} of {found} bytes is too long, there is room for {most}: make it shorter, put it into a file, or create \
         the queue with more"
    )]
    TooLong { what: &'static str, found: usize, most: u32 },
    /// The queue was closed, and accepts no more items.
    #[error("cannot push: the queue was closed for good; remove the set and open it again for another batch")]
    Closed,
    /// All places of the queue are taken.
    #[error(
        "cannot push: all {items} places of the queue are taken; wait, collect results, or create it with more items"
    )]
    Full { items: u32 },
    /// The queue has no item for this caller now.
    #[error("the queue has nothing to hand out now: wait, or try again later")]
    Empty,
    /// The timeout expired.
    #[error("timed out waiting for the queue: try again, or wait longer")]
    TimedOut,
    /// The program raised the [`Interrupt`](crate::Interrupt) that ends this wait.
    #[error("the wait for the queue was interrupted: try again to go on waiting")]
    Interrupted,
    /// The outcome of the item was recorded before.
    #[error("the outcome of this item was recorded before: an item is finished only once")]
    Spent,
    /// This process does not hold the item, or the acquisition, any more.
    #[error(
        "this process does not hold this any more: it was returned when the process took its lent slot lock back, or \
         another program has changed the segment; take another item"
    )]
    NotHeld,
    /// The item, or the acquisition, belongs to the process that forked this one.
    #[error("this was taken before a fork and belongs to the parent process: take another item")]
    Forked,
    /// The set is unavailable.
    #[error("cannot use the queue: {0}")]
    Unavailable(Box<Unavailable>),
    /// The set was removed.
    #[error("the set was removed, and its queue with it: open it again")]
    Removed,
    /// The set is private memory of the process that forked this one.
    #[error(
        "this set is private to the process that made it, and this is a forked child: open one by name, or anonymous"
    )]
    NotShared,
}

impl QueueError {
    /// Returns the stable code of this error.
    pub fn code(&self) -> Code {
        match self {
            Self::NoQueue => Code::NoQueue,
            Self::TooLong { .. } => Code::TooLong,
            Self::Closed => Code::Closed,
            Self::Full { .. } => Code::Full,
            Self::Empty => Code::Empty,
            Self::TimedOut => Code::TimedOut,
            Self::Interrupted => Code::Interrupted,
            Self::Spent => Code::Spent,
            Self::NotHeld => Code::NotHeld,
            Self::Forked => Code::Forked,
            Self::Unavailable(why) => why.code(),
            Self::Removed => Code::Removed,
            Self::NotShared => Code::NotShared,
        }
    }
}

from_set_error!(QueueError, NotShared, NotHeld);

impl From<Void> for QueueError {
    fn from(void: Void) -> Self {
        match void {
            Void::Forked => Self::Forked,
            Void::Returned => Self::NotHeld,
        }
    }
}

impl From<ManageError> for QueueError {
    fn from(error: ManageError) -> Self {
        match error {
            ManageError::Unavailable(why) => Self::Unavailable(why),
            ManageError::NotShared => Self::NotShared,
            _ => Self::Removed,
        }
    }
}

impl From<UsageError> for QueueError {
    fn from(error: UsageError) -> Self {
        match error {
            UsageError::Unavailable(why) => Self::Unavailable(why),
            UsageError::Forked => Self::Forked,
            UsageError::Returned => Self::NotHeld,
            _ => Self::Removed,
        }
    }
}
