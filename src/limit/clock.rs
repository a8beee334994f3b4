//! The clock by which a set counts time.

/// The clock of a set. The creator of the set chooses it, and all processes that use the set share it.
///
/// A [manual](Self::Manual) clock makes tests and simulations exact: time stands still until a process moves
/// it.
///
/// ```
/// use std::time::Duration;
/// use limitset::{CallLimit, Clock, LimitSet};
///
/// let limits = LimitSet::builder().limit(CallLimit::per_minute(1)).clock(Clock::Manual).in_memory()?;
/// limits.try_acquire(())?.release()?;
/// assert!(limits.try_acquire(()).is_err());
/// limits.advance(Duration::from_secs(60))?;
/// limits.try_acquire(())?.release()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Clock {
    /// CLOCK_MONOTONIC: exact to the nanosecond, about 30 ns to read. Stands still while the machine is
    /// suspended.
    #[default]
    Monotonic,
    /// CLOCK_MONOTONIC_COARSE: a few nanoseconds to read, a few milliseconds behind.
    Coarse,
    /// Stands still until [`LimitSet::advance`](crate::LimitSet::advance) moves it.
    Manual,
}

impl Clock {
    pub(crate) const ALL: [Self; 3] = [Self::Monotonic, Self::Coarse, Self::Manual];

    /// Returns the clock's number in a segment. Numbers never change.
    pub(crate) const fn number(self) -> u32 {
        match self {
            Self::Monotonic => 0,
            Self::Manual => 1,
            Self::Coarse => 2,
        }
    }

    pub(crate) fn from_number(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|clock| clock.number() == number)
    }

    /// Returns the clock's name in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Monotonic => "monotonic",
            Self::Coarse => "coarse",
            Self::Manual => "manual",
        }
    }
}
