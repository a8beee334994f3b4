//! What a set answers: refusals, with everything a caller needs to decide what to do next.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use thiserror::Error;

use crate::code::Code;

use crate::api::request::BadRequest;
use crate::api::status::{Denial, LimitStatus, Statuses};
use crate::segment::grantee::Void;
use crate::shared::error::{Unavailable, from_set_error};
use crate::shared::wait::Holder;

/// Why nothing was acquired. Nothing was charged.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// The limits do not allow it now.
    #[error("{0}")]
    Denied(Denial),
    /// The limits may allow it, but others who want the same came first and wait.
    #[error("{ahead} others wait for the same limits: wait too, or try again later")]
    Queued {
        /// How many.
        ahead: u64,
    },
    /// The other side wanted less, or somebody paused the set: nobody is admitted now, whatever the limits say.
    #[error("the set is cooling down for another {remaining:?}: wait, or try again then")]
    CoolingDown {
        /// When somebody is admitted next. By a [manual](crate::Clock::Manual) clock, as if it moved by itself.
        until: Instant,
        /// How long that is.
        remaining: Duration,
    },
    /// All places in the queue are taken.
    #[error(
        "all {waiters} places in the queue are taken: try again later, or create the set with more waiters"
    )]
    QueueFull {
        /// How many places there are.
        waiters: u32,
    },
    /// The limits did not allow it in time.
    #[error("{0}")]
    TimedOut(Box<TimedOut>),
    /// Somebody raised the [`Interrupt`](crate::Interrupt) that ends this wait.
    #[error("the wait was interrupted: nothing was acquired")]
    Interrupted,
    /// The limits never allow it, however long one waits.
    #[error("{requested} of {key:?} can never be had: at most {most} at once; ask for less")]
    Never {
        /// The limit.
        key: Arc<str>,
        /// How much was asked of it.
        requested: u64,
        /// How much it ever gives at once.
        most: u64,
    },
    /// The request makes no sense to this set.
    #[error(transparent)]
    BadRequest(#[from] BadRequest),
    /// The set could not be asked. It may well have room: this is not a refusal by a limit.
    #[error("the limits could not be asked: {0}")]
    Unavailable(Box<Unavailable>),
    /// The set was removed: open it again.
    #[error("the set was removed: open it again")]
    Removed,
    /// The acquisition that was to get more belongs to the process that forked this one.
    #[error("this acquisition was made before a fork and belongs to the parent process: acquire anew")]
    Forked,
    /// The acquisition that was to get more was returned when this process [took a lent slot lock
    /// back](crate::LentLife::release).
    #[error("this acquisition was returned when the process took its lent slot lock back: acquire anew")]
    Returned,
    /// The set is private memory of the process that forked this one.
    #[error(
        "this set is private to the process that made it, and this is a forked child: open one by name, or anonymous"
    )]
    NotShared,
}

impl AcquireError {
    /// Returns the stable code of this error.
    pub fn code(&self) -> Code {
        match self {
            Self::Denied(denial) => denial.code(),
            Self::Queued { .. } => Code::Queued,
            Self::CoolingDown { .. } => Code::CoolingDown,
            Self::QueueFull { .. } => Code::QueueFull,
            Self::TimedOut(_) => Code::TimedOut,
            Self::Interrupted => Code::Interrupted,
            Self::Never { .. } => Code::Never,
            Self::BadRequest(bad) => bad.code(),
            Self::Unavailable(why) => why.code(),
            Self::Removed => Code::Removed,
            Self::Forked => Code::Forked,
            Self::Returned => Code::Returned,
            Self::NotShared => Code::NotShared,
        }
    }

    /// How long to wait before the same request can succeed, if that is known. Of a set that is
    /// [cooling down](Self::CoolingDown), when it admits somebody again.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Denied(denial) => denial.retry_after(),
            Self::CoolingDown { remaining, .. } => Some(*remaining),
            _ => None,
        }
    }
}

/// Waiting came to an end without a grant.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TimedOut {
    /// How long it was.
    pub waited: Duration,
    /// How the limits stood to the request in the end.
    pub statuses: Statuses,
    /// The process that held the set's lock when time was up: then the set could not be asked at all, and there are no
    /// statuses. 0 if its number is not known.
    pub lock_holder: Option<u64>,
    /// How many others still waited before this one, for the same limits.
    pub ahead: u64,
    /// How long the set would still have admitted nobody, if it was [cooling down](AcquireError::CoolingDown).
    pub cooling_down: Option<Duration>,
    /// Who held the permits that were in the way.
    pub holders: Vec<Holder>,
}

impl TimedOut {
    /// The limit that was most in the way; none if only others were, who came first.
    pub fn bottleneck(&self) -> Option<LimitStatus<'_>> {
        self.statuses.bottleneck()
    }
}

impl fmt::Display for TimedOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "nothing granted in {:?}", self.waited)?;
        match self.lock_holder {
            Some(0) => f.write_str(": another process held the lock of the set all the time")?,
            Some(pid) => write!(f, ": process {pid} held the lock of the set all the time")?,
            None => {}
        }
        if let Some(LimitStatus { key, requested, available, .. }) = self.bottleneck() {
            write!(f, ": {requested} of {key:?} wanted, {available} available")?;
        }
        if self.ahead > 0 {
            write!(f, ", {} others came first", self.ahead)?;
        }
        if let Some(left) = self.cooling_down {
            write!(f, ", the set is cooling down for another {left:?}")?;
        }
        for (index, holder) in self.holders.iter().enumerate() {
            f.write_str(if index == 0 { "; held by " } else { ", " })?;
            let Holder { pid, command, is_this_process, key, amount } = holder;
            match (pid, is_this_process) {
                (_, true) => write!(f, "this process ({pid}): {amount} of {key:?}")?,
                (0, _) => write!(f, "a dead process: {amount} of {key:?}")?,
                (pid, _) => write!(f, "process {pid} ({command}): {amount} of {key:?}")?,
            }
        }
        Ok(())
    }
}

/// Why an acquisition could not be changed or ended as asked.
#[derive(Debug, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages name every field")]
pub enum UsageError {
    /// The acquisition has nothing of that limit.
    #[error("this acquisition has nothing of {key:?}; it has {held}")]
    NotRequested { key: String, held: String },
    /// More was used than requested.
    #[error(
        "{used} of {key:?} used, but only {requested} requested: use settle or adjust, which may go into debt"
    )]
    AboveRequested { key: String, used: u64, requested: u64 },
    /// More is to be given back than is charged.
    #[error("{asked} of {key:?} to give back, but only {charged} is charged")]
    AboveCharged { key: String, asked: u64, charged: u64 },
    /// More permits were asked for where only use can be reported.
    #[error(
        "{more} more of {key:?} cannot be had afterwards, because it is held, not used: use acquire_more"
    )]
    Permits { key: String, more: u64 },
    /// An amount that no limit can have.
    #[error("{amount} of {key:?} is beyond any limit; the most is {most}")]
    TooMuch { key: String, amount: u64, most: u64 },
    /// Released, but a report was owed.
    #[error("released, but the use of {} was not reported: call update, settle or adjust before", keys.join(", "))]
    Unreported { keys: Vec<String> },
    /// The acquisition belongs to the process that forked this one.
    #[error("this acquisition was made before a fork and belongs to the parent process")]
    Forked,
    /// The acquisition was returned when this process [took a lent slot lock back](crate::LentLife::release).
    #[error("this acquisition was returned when the process took its lent slot lock back: acquire anew")]
    Returned,
    /// The set could not be asked.
    #[error("the limits could not be told: {0}")]
    Unavailable(Box<Unavailable>),
    /// The set was removed.
    #[error("the set was removed: there is nothing to give back to")]
    Removed,
}

impl UsageError {
    /// Returns the stable code of this error.
    pub fn code(&self) -> Code {
        match self {
            Self::NotRequested { .. } => Code::NotRequested,
            Self::AboveRequested { .. } => Code::AboveRequested,
            Self::AboveCharged { .. } => Code::AboveCharged,
            Self::Permits { .. } => Code::Permits,
            Self::TooMuch { .. } => Code::TooMuch,
            Self::Unreported { .. } => Code::Unreported,
            Self::Forked => Code::Forked,
            Self::Returned => Code::Returned,
            Self::Unavailable(why) => why.code(),
            Self::Removed => Code::Removed,
        }
    }
}

/// Why a set could not be managed as asked.
#[derive(Debug, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages name every field")]
pub enum ManageError {
    /// A limit that cannot be.
    #[error(transparent)]
    Limit(#[from] crate::limit::BadLimit),
    /// The set has no such limit.
    #[error("there is no limit {key:?} in this set; it has {known}")]
    UnknownKey { key: String, known: String },
    /// Something else than numbers would change.
    #[error("the set has {found}, and cannot become {wanted}: only numbers can be changed; create a new set")]
    NotNumbers { found: String, wanted: String },
    /// Only a manual clock can be moved.
    #[error("the set counts time by the {found} clock, which nobody can move: create it with Clock::Manual")]
    ClockMovesItself { found: &'static str },
    /// The set could not be asked.
    #[error("the limits could not be changed: {0}")]
    Unavailable(Box<Unavailable>),
    /// The set was removed.
    #[error("the set was removed: open it again")]
    Removed,
    /// The set is private memory of the process that forked this one.
    #[error("this set is private to the process that made it, and this is a forked child")]
    NotShared,
}

impl ManageError {
    /// Returns the stable code of this error.
    pub fn code(&self) -> Code {
        match self {
            Self::Limit(bad) => bad.code(),
            Self::UnknownKey { .. } => Code::UnknownKey,
            Self::NotNumbers { .. } => Code::NotNumbers,
            Self::ClockMovesItself { .. } => Code::ClockMovesItself,
            Self::Unavailable(why) => why.code(),
            Self::Removed => Code::Removed,
            Self::NotShared => Code::NotShared,
        }
    }
}

/// Why [`LimitSet::run`](crate::LimitSet::run) did not get to a result.
#[derive(Debug, Error)]
pub enum RunError<E> {
    /// Nothing was acquired; the body did not run.
    #[error(transparent)]
    Acquire(#[from] AcquireError),
    /// The body failed; what it was charged was given back where that is possible.
    #[error("{0}")]
    Body(E),
}

from_set_error!(AcquireError, NotShared, Returned);
// Managing a set needs no handle, so none is ever returned.
from_set_error!(ManageError, NotShared, Removed);
from_set_error!(UsageError, Forked, Returned);

impl From<Void> for AcquireError {
    fn from(void: Void) -> Self {
        match void {
            Void::Forked => Self::Forked,
            Void::Returned => Self::Returned,
        }
    }
}

impl From<Void> for UsageError {
    fn from(void: Void) -> Self {
        match void {
            Void::Forked => Self::Forked,
            Void::Returned => Self::Returned,
        }
    }
}
