//! The status of every limit: what a denial says, and what a look at the set says.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::api::error::AcquireError;
use crate::code::Code;
use crate::engine::{Judged, Standing};
use crate::limit::Limit;
use crate::shared::SharedSet;
use crate::shared::acquire::Judgement;
use crate::shared::keys::Keys;

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
    pub(crate) fn new(set: &SharedSet, judgement: Judgement) -> Self {
        let Judgement { judged, since } = judgement;
        Self { keys: set.keys().clone(), judged, since }
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
    pub(crate) fn bottleneck(&self) -> Option<LimitStatus<'_>> {
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
    /// Returns the stable code of this denial: [`DeniedRate`](Code::DeniedRate) if a rate refused, alone or with permits.
    pub fn code(&self) -> Code {
        let is_rate = self.violations().any(|status| status.retry_after.is_some());
        if is_rate { Code::DeniedRate } else { Code::DeniedPermits }
    }

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
