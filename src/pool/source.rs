//! Anything into a pool: so that a worker has limits, whatever it was given.

use super::{LimitPool, PoolError};
use crate::api::set::LimitSet;
use crate::limit::Limit;

/// Who is to share limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sharing {
    /// The threads of this process.
    Threads,
    /// This process and others: those that it forks, at least.
    Processes,
}

/// Anything that limits can be made of: nothing, limits, a set, several sets, a pool.
#[derive(Clone, Debug)]
pub struct AnyLimits(Source);

#[derive(Clone, Debug)]
enum Source {
    Limits(Vec<Limit>),
    Sets(Vec<LimitSet>),
    Pool(LimitPool),
}

impl AnyLimits {
    /// Makes a pool of it, for those who share it. Limits become a new set without a name; nothing becomes a set that
    /// allows everything.
    ///
    /// # Errors
    ///
    /// [`PoolError::ThreadMode`] if processes are to share a set in private memory; or what is in the way of a new
    /// set.
    pub fn into_pool(self, sharing: Sharing) -> Result<LimitPool, PoolError> {
        let pool = match self.0 {
            Source::Pool(pool) => pool,
            Source::Sets(sets) => LimitPool::new(sets)?,
            Source::Limits(limits) => {
                let builder = LimitSet::builder().limits(limits);
                LimitPool::new([match sharing {
                    Sharing::Threads => builder.in_memory()?,
                    Sharing::Processes => builder.open_anonymous()?,
                }])?
            }
        };
        let private = pool.sets.iter().position(|set| !set.segment().is_shared());
        match private.filter(|_| sharing == Sharing::Processes) {
            Some(index) => Err(PoolError::ThreadMode { index }),
            None => Ok(pool),
        }
    }
}

impl From<()> for AnyLimits {
    fn from((): ()) -> Self {
        Self(Source::Limits(Vec::new()))
    }
}

impl<L: Into<Limit>> From<Vec<L>> for AnyLimits {
    fn from(limits: Vec<L>) -> Self {
        Self(Source::Limits(limits.into_iter().map(Into::into).collect()))
    }
}

impl<L: Into<Limit>, const N: usize> From<[L; N]> for AnyLimits {
    fn from(limits: [L; N]) -> Self {
        Self(Source::Limits(limits.into_iter().map(Into::into).collect()))
    }
}

impl From<LimitSet> for AnyLimits {
    fn from(set: LimitSet) -> Self {
        Self(Source::Sets(vec![set]))
    }
}

impl From<&LimitSet> for AnyLimits {
    fn from(set: &LimitSet) -> Self {
        set.clone().into()
    }
}

impl From<Vec<LimitSet>> for AnyLimits {
    fn from(sets: Vec<LimitSet>) -> Self {
        Self(Source::Sets(sets))
    }
}

impl<const N: usize> From<[LimitSet; N]> for AnyLimits {
    fn from(sets: [LimitSet; N]) -> Self {
        Self(Source::Sets(sets.into()))
    }
}

impl From<&[LimitSet]> for AnyLimits {
    fn from(sets: &[LimitSet]) -> Self {
        Self(Source::Sets(sets.to_vec()))
    }
}

impl From<LimitPool> for AnyLimits {
    fn from(pool: LimitPool) -> Self {
        Self(Source::Pool(pool))
    }
}

impl From<&LimitPool> for AnyLimits {
    fn from(pool: &LimitPool) -> Self {
        pool.clone().into()
    }
}
