//! What a rate must admit, worked out slowly and apart from the product: the judge of every count in these tests.

use std::time::Duration;

use limitset::limit::DEFAULT_RESOLUTION;
use limitset::{Algorithm, CallLimit, RateLimit};

/// The numbers of one rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Numbers {
    pub(crate) algorithm: Algorithm,
    pub(crate) capacity: u64,
    pub(crate) window: u64,
    pub(crate) burst: u64,
}

impl Numbers {
    pub(crate) fn units(&self) -> RateLimit {
        let limit = RateLimit::new("units", self.capacity, Duration::from_nanos(self.window));
        let limit = limit.algorithm(self.algorithm);
        if self.algorithm.has_burst() { limit.burst(self.burst) } else { limit }
    }

    pub(crate) fn calls(&self) -> CallLimit {
        let limit = CallLimit::new(self.capacity, Duration::from_nanos(self.window));
        let limit = limit.algorithm(self.algorithm);
        if self.algorithm.has_burst() { limit.burst(self.burst) } else { limit }
    }

    /// The same with smaller numbers.
    pub(crate) fn over(self, divisor: u64) -> Self {
        Self { capacity: self.capacity / divisor, burst: self.burst / divisor, ..self }
    }

    pub(crate) fn sub_window(&self) -> u64 {
        self.window.div_ceil(DEFAULT_RESOLUTION.into())
    }
}

/// One rate, asked at instants that never go back. Time begins with the first window.
#[derive(Clone, Debug)]
pub(crate) struct Reference {
    pub(crate) numbers: Numbers,
    /// What the clock reads.
    pub(crate) at: u64,
    used: Used,
}

#[derive(Clone, Debug)]
enum Used {
    /// The remaining units, in units of 1/window: nothing is ever rounded.
    Bucket { left: i128 },
    /// Number of the window, and units used in it.
    Fixed { window: u64, used: u64 },
    /// Latest admission and units of every sub-window with any, oldest first.
    Sliding { groups: Vec<(u64, u64)> },
}

impl Reference {
    pub(crate) fn new(numbers: Numbers) -> Self {
        let used = match numbers.algorithm {
            Algorithm::FixedWindow => Used::Fixed { window: 0, used: 0 },
            Algorithm::SlidingWindow => Used::Sliding { groups: Vec::new() },
            _ => Used::Bucket { left: i128::from(numbers.burst) * i128::from(numbers.window) },
        };
        Self { numbers, at: 0, used }
    }

    /// Moves the clock.
    pub(crate) fn advance(&mut self, nanos: u64) {
        self.at += nanos;
        let Numbers { capacity, window, burst, .. } = self.numbers;
        match &mut self.used {
            Used::Bucket { left } => {
                let full = i128::from(burst) * i128::from(window);
                *left = full.min(*left + i128::from(nanos) * i128::from(capacity));
            }
            Used::Fixed { window: number, used } => {
                if *number != self.at / window {
                    (*number, *used) = (self.at / window, 0);
                }
            }
            Used::Sliding { .. } => {}
        }
    }

    /// How many units can be had now.
    pub(crate) fn available(&self) -> u64 {
        let Numbers { capacity, window, .. } = self.numbers;
        match &self.used {
            Used::Bucket { left } => u64::try_from(left / i128::from(window)).unwrap(),
            Used::Fixed { used, .. } => capacity.saturating_sub(*used),
            Used::Sliding { groups } => {
                let counts = |group: &&(u64, u64)| group.0 + window > self.at;
                capacity.saturating_sub(groups.iter().filter(counts).map(|group| group.1).sum())
            }
        }
    }

    /// Takes units that must be there.
    pub(crate) fn take(&mut self, units: u64) {
        assert!(units <= self.available(), "{units} taken of {} in {self:?}", self.available());
        let (sub_window, at) = (self.numbers.sub_window(), self.at);
        match &mut self.used {
            Used::Bucket { left } => *left -= i128::from(units) * i128::from(self.numbers.window),
            Used::Fixed { used, .. } => *used += units,
            Used::Sliding { .. } if units == 0 => {}
            Used::Sliding { groups } => match groups.last_mut() {
                Some(last) if last.0 / sub_window == at / sub_window => *last = (at, last.1 + units),
                _ => groups.push((at, units)),
            },
        }
    }

    /// Goes over to other numbers, as docs/algorithms.md has it: what is left of a token bucket or GCRA is kept
    /// and cut to the new numbers; of the others there is left what both the old and the new numbers leave. A part of a
    /// unit is lost.
    pub(crate) fn reconfigure(&mut self, new: Numbers) {
        let available = self.available();
        let old = std::mem::replace(&mut self.numbers, new);
        match &mut self.used {
            Used::Bucket { left } => {
                let units = match new.algorithm {
                    Algorithm::LeakyBucket => available.min(new.burst.saturating_sub(old.burst - available)),
                    _ => available.min(new.burst),
                };
                *left = i128::from(units) * i128::from(new.window);
            }
            Used::Fixed { window, used } => {
                let left = available.min(new.capacity.saturating_sub(*used));
                (*window, *used) = (self.at / new.window, new.capacity - left)
            }
            Used::Sliding { .. } => assert_eq!(old.window, new.window, "groups are of one length of window"),
        }
    }
}

/// The two rates of a set, whose requests all ask for the same.
#[derive(Clone, Debug)]
pub(crate) struct Rates {
    pub(crate) units: Reference,
    pub(crate) calls: Reference,
}

impl Rates {
    pub(crate) fn new(units: Numbers, calls: Numbers) -> Self {
        Self { units: Reference::new(units), calls: Reference::new(calls) }
    }

    pub(crate) fn advance(&mut self, nanos: u64) {
        self.units.advance(nanos);
        self.calls.advance(nanos);
    }

    /// Grants requests until one of the rates has too little; says how many, and whether calls were in the way.
    pub(crate) fn drain(&mut self, units: u64, calls: u64) -> (u64, bool) {
        let by_units = self.units.available() / units;
        let by_calls = self.calls.available() / calls;
        let granted = by_units.min(by_calls);
        self.units.take(granted * units);
        self.calls.take(granted * calls);
        (granted, by_calls < by_units)
    }
}
