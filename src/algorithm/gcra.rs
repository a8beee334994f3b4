//! Generic cell rate algorithm: remembers when the next unit would arrive if units came evenly,
//! window/capacity apart. A request may be ahead of that instant by the time that a burst takes.
//!
//! | word | meaning |
//! | --- | --- |
//! | level | theoretical arrival time, whole nanoseconds |
//! | at | latest instant at which a decision was made |
//! | remainder | theoretical arrival time, part of a nanosecond, in units of 1/capacity |
//!
//! The interval between units is a fraction, window/capacity nanoseconds, and never rounded: all sums here
//! are in units of 1/capacity nanoseconds, in which a unit takes `window` and a nanosecond is `capacity`.

use super::parts::{Changes, Method, Rule, State, Verdict, Word, divide, divide_up, left, low, signed};

pub(crate) struct Gcra;

/// The time from an instant to the theoretical arrival time.
struct Arrival {
    ahead: u128,
    at: u64,
}

impl Arrival {
    #[inline(always)]
    fn read(rule: &Rule, state: &impl State, now: u64) -> Self {
        let at = state.word(Word::At).max(now);
        let part = state.word(Word::Remainder).min(rule.capacity - 1);
        let ahead = match state.word(Word::Level).checked_sub(at) {
            Some(nanos) => u128::from(nanos) * u128::from(rule.capacity) + u128::from(part),
            None => 0,
        };
        Self { ahead, at }
    }

    #[inline(always)]
    fn changes(&self, rule: &Rule) -> Changes {
        let (nanos, part) = divide(self.ahead, rule.capacity);
        Changes::NONE
            .set(Word::Level, self.at.saturating_add(low(nanos)))
            .set(Word::At, self.at)
            .set(Word::Remainder, part)
    }
}

/// Returns the time that `units` take, in units of 1/capacity nanoseconds.
#[inline(always)]
fn time_of(rule: &Rule, units: u64) -> u128 {
    u128::from(units) * u128::from(rule.window)
}

impl Method for Gcra {
    const REFUNDS: bool = true;
    const HAS_BURST: bool = true;
    const IS_PLAIN: bool = true;

    fn start(rule: &Rule, now: u64) -> Changes {
        Arrival { ahead: 0, at: now }.changes(rule)
    }

    #[inline(always)]
    fn admit(rule: &Rule, state: &impl State, now: u64, amount: u64) -> Verdict {
        let mut arrival = Arrival::read(rule, state, now);
        arrival.ahead += time_of(rule, amount);
        let too_far = arrival.ahead.saturating_sub(time_of(rule, rule.burst));
        if too_far > 0 {
            let wait = low(divide_up(too_far, rule.capacity));
            return Verdict::Later { at: arrival.at.saturating_add(wait) };
        }
        Verdict::Admit(arrival.changes(rule))
    }

    fn charge(rule: &Rule, state: &impl State, now: u64, amount: u64) -> Changes {
        let mut arrival = Arrival::read(rule, state, now);
        arrival.ahead += time_of(rule, amount);
        arrival.changes(rule)
    }

    fn give_back(rule: &Rule, state: &impl State, now: u64, amount: u64) -> Changes {
        let mut arrival = Arrival::read(rule, state, now);
        arrival.ahead = arrival.ahead.saturating_sub(time_of(rule, amount));
        arrival.changes(rule)
    }

    fn available(rule: &Rule, state: &impl State, now: u64) -> i64 {
        left(rule.burst, divide_up(Arrival::read(rule, state, now).ahead, rule.window))
    }

    fn reconfigure(rule: &Rule, new: &Rule, state: &impl State, now: u64) -> Changes {
        let units = Self::available(rule, state, now).min(new.burst.cast_signed());
        let used = signed(i128::from(new.burst) - i128::from(units)).unsigned_abs();
        Arrival { ahead: time_of(new, used), at: state.word(Word::At).max(now) }.changes(new)
    }
}
