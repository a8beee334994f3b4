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
            // In the segment.
            Self::Manual => 0,
        }
    }

    fn reached(&self, reading: u64) -> u64 {
        match self {
            Self::Monotonic => reading,
            Self::Coarse => {
                // Its next step may be late, and who looks before it looks in vain.
                let step = clock::coarse_step();
                reading.saturating_add(step).max(clock::monotonic().saturating_add(step / 2))
            }
            Self::Manual => NEVER,
        }
    }
}

impl Clock {
    /// How far it may be behind when it is read: who waits by another clock has to wait so much longer.
    pub(crate) fn lag(self) -> u64 {
        if self == Self::Coarse { clock::coarse_step() } else { 0 }
    }
}
