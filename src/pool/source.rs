//! Conversion of limits, sets and pools into a pool, so that a worker always has one.

use super::{LimitPool, PoolError};
use crate::api::set::LimitSet;
use crate::limit::Limit;

/// Whether threads or processes share the limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sharing {
    /// The threads of this process.
    Threads,
    /// This process and others, at least the processes that it forks.
    Processes,
}

/// A source of limits: `()` for none, limits, a set, several sets, or a pool.
#[derive(Clone, Debug)]
pub struct AnyLimits(Source);

#[derive(Clone, Debug)]
enum Source {
    Limits(Vec<Limit>),
    Sets(Vec<LimitSet>),
    Pool(LimitPool),
}

impl AnyLimits {
    /// Makes a pool that threads or processes can share. Limits become a new set without a name; `()` becomes a set
    /// that grants every request.
    ///
    /// # Errors
    ///
    /// [`PoolError::ThreadMode`] if processes are to share a set in private memory; [`PoolError::NoSets`] for an empty
    /// list of sets; [`PoolError::Open`] if a new set cannot be created.
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
