//! What can go wrong with a work queue, in words.

use thiserror::Error;

use crate::answer::{ManageError, Unavailable, UsageError};

/// Why nothing was done to a [`WorkQueue`](crate::WorkQueue), or to an item of it.
#[derive(Debug, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages name every field")]
pub enum QueueError {
    /// The set was created without a queue.
    #[error("this set has no work queue: create it with LimitSetBuilder::queue")]
    NoQueue,
    /// More bytes than there is room for.
    #[error(
        "{what} of {found} bytes is too long, there is room for {most}: make it shorter, put it into a file, or create \
         the queue with more"
    )]
    TooLong { what: &'static str, found: usize, most: u32 },
    /// Nothing more can be pushed.
    #[error(
        "the queue was closed for good: nothing more can be pushed; remove the set and open it again for another batch"
    )]
    Closed,
    /// All places are taken.
    #[error("all {items} places of the queue are taken: wait, collect results, or create it with more items")]
    Full { items: u32 },
    /// There is nothing now.
    #[error("there is nothing in the queue now: wait, or try again later")]
    Empty,
    /// Time was up.
    #[error("time was up, and the queue had nothing to offer")]
    TimedOut,
    /// Somebody raised the [`Interrupt`](crate::Interrupt) that ends this wait.
    #[error("the wait was interrupted, and the queue had nothing to offer")]
    Interrupted,
    /// The item was finished before.
    #[error("what became of this item was said before")]
    Spent,
    /// The item, or the acquisition, is no longer with this process.
    #[error(
        "this is not with this process any more: it was returned when the process took its lent slot lock back, or \
         another program changed the segment; take another item"
    )]
    NotHeld,
    /// The item, or the acquisition, belongs to the process that forked this one.
    #[error("this was taken before a fork and belongs to the parent process")]
    Forked,
    /// The set could not be asked.
    #[error("the queue could not be asked: {0}")]
    Unavailable(Box<Unavailable>),
    /// The set was removed.
    #[error("the set was removed, and its queue with it: open it again")]
    Removed,
    /// The set is private memory of the process that forked this one.
    #[error("this set is private to the process that made it, and this is a forked child")]
    NotShared,
}

crate::answer::from_trouble!(QueueError, NotShared, NotHeld);

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
