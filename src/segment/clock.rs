//! Reading the clock of a set.

use crate::engine::Time;
use crate::limit::Clock;
use crate::protocol::NEVER;
use crate::sys::clock;

impl Time for Clock {
    #[inline]
    fn reading(&self) -> u64 {
        match self {
            Self::Monotonic => clock::monotonic(),
            Self::Coarse => clock::coarse(),
            // A manual clock is a word in the segment.
            Self::Manual => 0,
        }
    }

    fn reached(&self, reading: u64) -> u64 {
        match self {
            Self::Monotonic => reading,
            Self::Coarse => {
                // The next step of the coarse clock may be late. A poll before it would come too early.
                let step = clock::coarse_step();
                reading.saturating_add(step).max(clock::monotonic().saturating_add(step / 2))
            }
            Self::Manual => NEVER,
        }
    }
}

impl Clock {
    /// Returns how far a reading may lag behind real time. A wait by another clock has to last that much longer.
    pub(crate) fn lag(self) -> u64 {
        if self == Self::Coarse { clock::coarse_step() } else { 0 }
    }
}
