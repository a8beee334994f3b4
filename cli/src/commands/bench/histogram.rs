//! A compact histogram: sixteen steps per doubling, so that a value is off by at most a sixteenth. It is kept
//! in words that several processes can write.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// The number of steps per doubling, as a power of two.
const STEP_BITS: u32 = 4;
const STEPS: u64 = 1 << STEP_BITS;

/// The number of words of a histogram, including the one for the maximum.
pub(super) const WORDS: usize = 1 + ((64 - STEP_BITS as usize + 1) << STEP_BITS);

/// Adds a value.
pub(super) fn count(words: &[AtomicU64], value: u64) {
    let Some((max, counts)) = words.split_first() else { return };
    // Each histogram has one writer, so no update is lost between load and store.
    if value > max.load(Relaxed) {
        max.store(value, Relaxed);
    }
    if let Some(word) = counts.get(place(value)) {
        word.store(word.load(Relaxed) + 1, Relaxed);
    }
}

fn place(value: u64) -> usize {
    let place = if value < STEPS {
        value
    } else {
        let shift = value.ilog2() - STEP_BITS;
        (u64::from(shift) << STEP_BITS) + (value >> shift)
    };
    usize::try_from(place).unwrap_or(usize::MAX)
}

/// Returns the largest value that a step counts.
fn value(place: usize) -> u64 {
    let place = place as u64;
    if place < 2 * STEPS {
        return place;
    }
    let shift = u32::try_from((place >> STEP_BITS) - 1).unwrap_or(0);
    let from = u128::from(STEPS + (place & (STEPS - 1)));
    u64::try_from(((from + 1) << shift) - 1).unwrap_or(u64::MAX)
}

/// The sum of several histograms.
#[derive(Clone, Debug)]
pub(super) struct Histogram {
    max: u64,
    counts: Vec<u64>,
}

impl Histogram {
    pub(super) fn sum<'a>(parts: impl Iterator<Item = &'a [AtomicU64]>) -> Self {
        let mut sum = Self { max: 0, counts: vec![0; WORDS - 1] };
        for part in parts {
            let Some((max, counts)) = part.split_first() else { continue };
            sum.max = sum.max.max(max.load(Relaxed));
            for (to, from) in sum.counts.iter_mut().zip(counts) {
                *to += from.load(Relaxed);
            }
        }
        sum
    }

    pub(super) fn max(&self) -> u64 {
        self.max
    }

    /// Returns the value that this many of a thousand values do not exceed.
    pub(super) fn at(&self, per_thousand: u64) -> u64 {
        let total: u64 = self.counts.iter().sum();
        let wanted = u128::from(total) * u128::from(per_thousand);
        let mut seen = 0;
        for (place, count) in self.counts.iter().enumerate() {
            seen += count;
            if *count > 0 && u128::from(seen) * 1_000 >= wanted {
                return value(place).min(self.max);
            }
        }
        self.max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_has_a_place_that_is_off_by_at_most_a_sixteenth() {
        let mut last = 0;
        let values = (0..64u32)
            .flat_map(|bit| [1u64 << bit, (1 << bit) + (1 << bit) / 3, (1 << bit) - 1 + (1 << bit)]);
        for it in [0].into_iter().chain(values) {
            let there = value(place(it));
            assert!(place(it) < WORDS - 1, "{it}");
            assert!(there >= it && there - it <= it / 16, "{it} became {there}");
            assert!(place(it) >= last, "{it}");
            last = place(it);
        }
    }

    #[test]
    fn percentiles_are_those_of_all_parts_together() {
        let words = || (0..WORDS).map(|_| AtomicU64::new(0)).collect::<Vec<_>>();
        let (a, b) = (words(), words());
        for it in 1..=10 {
            count(&a, it);
        }
        count(&b, 5_000);
        let sum = Histogram::sum([&a[..], &b[..]].into_iter());
        assert_eq!((sum.at(500), sum.at(900), sum.at(999), sum.max()), (6, 10, 5_000, 5_000));
        assert_eq!(Histogram::sum(std::iter::empty()).at(500), 0);
    }
}
