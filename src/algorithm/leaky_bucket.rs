//! Leaky bucket, as a meter: each admission raises the level, which leaks at a constant rate and must not
//! rise above the burst. With a burst of 1, units are strictly spaced, window/capacity apart.
//!
//! | word | meaning |
//! | --- | --- |
//! | level | units in the bucket; above the burst is debt |
//! | at | instant the level belongs to |
//! | remainder | part of the next unit that has leaked, in units of 1/window |

use super::parts::{Changes, Method, Rule, State, Verdict, Word, carried_over, left, low};

pub(crate) struct LeakyBucket;

/// The three words, brought up to an instant.
struct Meter {
    level: u64,
    at: u64,
    remainder: u64,
}

impl Meter {
    #[inline(always)]
    fn read(rule: &Rule, state: &impl State, now: u64) -> Self {
        let at = state.word(Word::At);
        let (leaked, remainder) = rule.flow(now.saturating_sub(at), state.word(Word::Remainder));
        let level = low(u128::from(state.word(Word::Level)).saturating_sub(leaked));
        // An empty bucket leaks nothing.
        let remainder = if level == 0 { 0 } else { remainder };
        Self { level, at: at.max(now), remainder }
    }

    #[inline(always)]
    fn changes(&self) -> Changes {
        Changes::NONE.set(Word::Level, self.level).set(Word::At, self.at).set(Word::Remainder, self.remainder)
    }
}

impl Method for LeakyBucket {
    const REFUNDS: bool = false;
    const HAS_BURST: bool = true;
    const IS_PLAIN: bool = true;

    fn start(_rule: &Rule, now: u64) -> Changes {
        Meter { level: 0, at: now, remainder: 0 }.changes()
    }

    #[inline(always)]
    fn admit(rule: &Rule, state: &impl State, now: u64, amount: u64) -> Verdict {
        let mut meter = Meter::read(rule, state, now);
        let level = u128::from(meter.level) + u128::from(amount);
        let above = level.saturating_sub(u128::from(rule.burst));
        if above > 0 {
            let wait = rule.time_for(above, meter.remainder);
            return Verdict::Later { at: meter.at.saturating_add(wait) };
        }
        meter.level = low(level);
        Verdict::Admit(meter.changes())
    }

    fn charge(rule: &Rule, state: &impl State, now: u64, amount: u64) -> Changes {
        let mut meter = Meter::read(rule, state, now);
        meter.level = meter.level.saturating_add(amount);
        meter.changes()
    }

    fn available(rule: &Rule, state: &impl State, now: u64) -> i64 {
        left(rule.burst, Meter::read(rule, state, now).level.into())
    }

    fn reconfigure(rule: &Rule, new: &Rule, state: &impl State, now: u64) -> Changes {
        let mut meter = Meter::read(rule, state, now);
        meter.level = carried_over(meter.level.into(), rule.burst, new.burst);
        meter.remainder = 0;
        meter.changes()
    }
}
