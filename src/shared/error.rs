//! Why a set cannot be asked.

use thiserror::Error;

use crate::code::Code;
use crate::segment::error::{AttachError, Damage, SyncError};

/// Why a set cannot be asked. It may well have room: this is not a refusal by a limit.
///
/// The text says what happened; [`source`](std::error::Error::source) has the details.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Unavailable {
    /// A living participant held the lock for the whole lock timeout. Most likely it is stopped.
    #[error("another process held the lock of the set for too long; is that process stopped?")]
    LockTimeout(#[source] LockHolder),
    /// Words in the segment make no sense.
    #[error("the segment is damaged: stop the processes that use it, and remove it")]
    Damaged(#[source] Damage),
    /// This process, forked from a participant, cannot become one.
    #[error("this process could not enrol")]
    Enrol(#[source] AttachError),
}

impl Unavailable {
    /// Returns the stable code of this reason.
    pub fn code(&self) -> Code {
        match self {
            Self::LockTimeout(_) => Code::Unavailable,
            Self::Damaged(_) => Code::Damaged,
            Self::Enrol(error) => error.code(),
        }
    }
}

/// The participant that holds a lock.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("the lock is held by process {pid} in slot {slot}")]
#[non_exhaustive]
pub struct LockHolder {
    /// Its slot.
    pub slot: u32,
    /// Its process number.
    pub pid: u64,
}

/// What to do when a set cannot be asked: its lock is held by a stopped process, its memory is damaged, or this
/// process cannot enrol after a fork. Not for [`Removed`](crate::AcquireError::Removed), which is somebody's wish.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnUnavailable {
    /// Answer [`Unavailable`](crate::AcquireError::Unavailable).
    #[default]
    Deny,
    /// Let requests pass, marked as [not enforced](crate::Acquisition::enforced) and counted.
    Allow,
}

/// Why an operation of a set failed, whatever the operation; each public error has its own words for it.
#[derive(Debug)]
pub(crate) enum SetError {
    Unavailable(Unavailable),
    Removed,
    NotShared,
    /// The handle was returned while this process waited for the lock.
    Returned,
}

impl SetError {
    /// Whether the lock timeout expired: the operation can be repeated in the background.
    pub(crate) fn is_lock_timeout(&self) -> bool {
        matches!(self, Self::Unavailable(Unavailable::LockTimeout(_)))
    }
}

impl From<AttachError> for SetError {
    #[cold]
    fn from(error: AttachError) -> Self {
        match error {
            AttachError::NotShared => Self::NotShared,
            AttachError::Removed { .. } => Self::Removed,
            other => Self::Unavailable(Unavailable::Enrol(other)),
        }
    }
}

impl From<SyncError> for SetError {
    fn from(error: SyncError) -> Self {
        match error {
            SyncError::Busy { slot, pid } => {
                Self::Unavailable(Unavailable::LockTimeout(LockHolder { slot, pid }))
            }
            SyncError::Damaged(what) => Self::Unavailable(Unavailable::Damaged(what)),
            SyncError::Enrol(error) => error.into(),
            _ => Self::Removed,
        }
    }
}

/// Implements `From<SetError>` for a public error with the variants `Unavailable`, `Removed`, `$not_shared` and
/// `$returned`.
macro_rules! from_set_error {
    ($error:ty, $not_shared:ident, $returned:ident) => {
        impl From<$crate::shared::error::SetError> for $error {
            fn from(error: $crate::shared::error::SetError) -> Self {
                use $crate::shared::error::SetError;
                match error {
                    SetError::Unavailable(why) => Self::Unavailable(Box::new(why)),
                    SetError::Removed => Self::Removed,
                    SetError::NotShared => Self::$not_shared,
                    SetError::Returned => Self::$returned,
                }
            }
        }
    };
}
pub(crate) use from_set_error;
