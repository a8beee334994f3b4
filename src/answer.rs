//! What a set answers: refusals, with everything a caller needs to decide what to do next.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use thiserror::Error;

use crate::engine::{Judged, Standing};
use crate::error::{AttachError, Damage};
use crate::limit::Limit;
use crate::request::{BadRequest, Keys};

/// Why nothing was acquired. Nothing was charged.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// The limits do not allow it now.
    #[error("{0}")]
    Denied(Denial),
    /// The limits may allow it, but others who want the same came first and wait, and it would take some of what they asked
    /// for.
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

/// Why a set could not be asked.
#[derive(Debug, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages name every field")]
pub enum Unavailable {
    /// Somebody who is alive holds the lock: stopped, most likely.
    #[error(
        "its lock was held by another participant (slot {slot}, process {pid}) for too long; is that one stopped?"
    )]
    Busy { slot: u32, pid: u64 },
    /// Words in the segment make no sense.
    #[error("its segment is damaged: {0}; stop its users and remove it")]
    Damaged(Damage),
    /// This process, forked from one that could, cannot take part.
    #[error("this process could not enrol: {0}")]
    Enrol(AttachError),
}

/// A refusal: how every limit of the set stood to the request, at one instant.
#[derive(Clone, Debug)]
pub struct Denial {
    statuses: Statuses,
}

/// How every limit of a set stands to a request, at one instant.
#[derive(Clone, Debug)]
pub struct Statuses {
    keys: Arc<Keys>,
    judged: Box<[Judged]>,
    /// Not after the instant at which it was judged.
    since: u64,
}

/// How one limit stands to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LimitStatus<'a> {
    /// The limit.
    pub key: &'a str,
    /// How much was asked of it; 0 if it was left alone.
    pub requested: u64,
    /// How much it would give now; negative is debt.
    pub available: i64,
    /// How much it ever gives at once.
    pub most: u64,
    /// Whether the request fits.
    pub passed: bool,
    /// How long until it fits, if nobody else asks before. None if it fits, if that depends on others who hold
    /// permits, or if it never does.
    pub retry_after: Option<Duration>,
}

impl Statuses {
    pub(crate) fn new(keys: Arc<Keys>, judged: Vec<Judged>, since: u64) -> Self {
        Self { keys, judged: judged.into_boxed_slice(), since }
    }

    /// All limits of the set, in the order of their definition.
    pub fn iter(&self) -> impl Iterator<Item = LimitStatus<'_>> {
        self.judged.iter().enumerate().map(|(limit, judged)| LimitStatus {
            key: self.keys.name(limit),
            requested: judged.requested,
            available: judged.available,
            most: judged.most,
            passed: judged.standing == Standing::Passed,
            retry_after: match judged.standing {
                Standing::Later { at } => Some(Duration::from_nanos(at.saturating_sub(self.since))),
                _ => None,
            },
        })
    }

    /// The status of one limit.
    pub fn get(&self, key: &str) -> Option<LimitStatus<'_>> {
        self.iter().find(|status| status.key == key)
    }

    /// A limit as it was declared.
    pub fn declared(&self, key: &str) -> Option<&Limit> {
        self.keys.limits.iter().find(|limit| limit.name() == key)
    }

    /// The limit that is most in the way: permits that others hold, else the rate that takes longest.
    fn bottleneck(&self) -> Option<LimitStatus<'_>> {
        // `None` is the longest wait here: nobody knows how long.
        let wait = |status: &LimitStatus<'_>| status.retry_after.unwrap_or(Duration::MAX);
        self.iter().filter(|status| !status.passed).max_by_key(wait)
    }

    /// What this means as an answer to whoever was refused.
    pub(crate) fn into_refusal(self) -> AcquireError {
        match self.into_answer() {
            Ok(statuses) => AcquireError::Denied(Denial { statuses }),
            Err(error) => error,
        }
    }

    /// What this means as an answer: the statuses if everything fits.
    pub(crate) fn into_answer(self) -> Result<Self, AcquireError> {
        let never = self.judged.iter().position(|judged| judged.standing == Standing::Never);
        if let Some((limit, judged)) = never.and_then(|limit| Some((limit, self.judged.get(limit)?))) {
            let Judged { requested, most, .. } = *judged;
            return Err(AcquireError::Never { key: self.keys.shared_name(limit), requested, most });
        }
        if self.judged.iter().all(|judged| judged.standing == Standing::Passed) {
            return Ok(self);
        }
        Err(AcquireError::Denied(Denial { statuses: self }))
    }
}

impl Denial {
    /// All limits of the set, in the order of their definition.
    pub fn statuses(&self) -> &Statuses {
        &self.statuses
    }

    /// The limits that were in the way.
    pub fn violations(&self) -> impl Iterator<Item = LimitStatus<'_>> {
        self.statuses.iter().filter(|status| !status.passed)
    }

    /// The limit that was most in the way: permits that others hold, else the rate that takes longest.
    pub fn bottleneck(&self) -> Option<LimitStatus<'_>> {
        self.statuses.bottleneck()
    }

    /// How long to wait before the same request succeeds, if nobody else asks before. None if that depends on
    /// others who hold permits.
    pub fn retry_after(&self) -> Option<Duration> {
        self.bottleneck().and_then(|status| status.retry_after)
    }
}

impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(LimitStatus { key, requested, available, retry_after, .. }) = self.bottleneck() else {
            return f.write_str("denied");
        };
        write!(f, "{requested} of {key:?} wanted, {available} available: ")?;
        match retry_after {
            Some(wait) => write!(f, "try again in {wait:?}"),
            None => f.write_str("try again when others have given theirs back"),
        }
    }
}

/// Waiting came to an end without a grant.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TimedOut {
    /// How long it was.
    pub waited: Duration,
    /// How the limits stood to the request in the end. Empty if the set's lock was not to be had by then.
    pub statuses: Statuses,
    /// The process that held the set's lock when time was up: then the set could not be asked at all. 0 if its number is
    /// not known.
    pub lock_holder: Option<u64>,
    /// How many others still waited before this one, for the same limits.
    pub ahead: u64,
    /// How long the set would still have admitted nobody, if it was [cooling down](AcquireError::CoolingDown).
    pub cooling_down: Option<Duration>,
    /// Who held the permits that were in the way.
    pub holders: Vec<Holder>,
}

/// Somebody who holds permits that are in the way.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// Its process number; 0 if it is dead.
    pub pid: u64,
    /// Its name, at most 16 bytes.
    pub command: String,
    /// Whether it is this very process.
    pub is_this_process: bool,
    /// The limit.
    pub key: String,
    /// How many permits.
    pub amount: u64,
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
            Some(0) => f.write_str(": the set's lock was held by another process all the time")?,
            Some(pid) => write!(f, ": the set's lock was held by process {pid} all the time")?,
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

/// What went wrong with the set as such; every operation has its own words for it.
#[derive(Debug)]
pub(crate) enum Trouble {
    Unavailable(Unavailable),
    Removed,
    NotShared,
    /// What was to be changed was returned while this process waited for the lock.
    Returned,
}

/// Gives an operation's error its words for [`Trouble`].
macro_rules! from_trouble {
    ($error:ty, $not_shared:ident, $returned:ident) => {
        impl From<$crate::answer::Trouble> for $error {
            fn from(trouble: $crate::answer::Trouble) -> Self {
                use $crate::answer::Trouble;
                match trouble {
                    Trouble::Unavailable(why) => Self::Unavailable(Box::new(why)),
                    Trouble::Removed => Self::Removed,
                    Trouble::NotShared => Self::$not_shared,
                    Trouble::Returned => Self::$returned,
                }
            }
        }
    };
}
pub(crate) use from_trouble;

from_trouble!(AcquireError, NotShared, Returned);
// To manage a set no handle is needed, so none is ever returned.
from_trouble!(ManageError, NotShared, Removed);
from_trouble!(UsageError, Forked, Returned);
