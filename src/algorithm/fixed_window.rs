//! Fixed window: a counter that starts again with every window. Windows are aligned to the Unix epoch by the
//! wall clock at the set's creation, so a window of a day is a day of UTC.
//!
//! | word | meaning |
//! | --- | --- |
//! | level | units used in the window; above the capacity is debt |
//! | at | number of the window, from the epoch |
//! | remainder | unused |
//!
//! Each new window pays for at most one capacity of earlier use: for all of it, unless there is debt. Around
//! an edge, up to twice the capacity passes within one window's length.

use super::parts::{Changes, Method, Rule, State, Verdict, Word, carried_over, divide, divide_up, left, low};

pub(crate) struct FixedWindow;

/// The counter, brought up to a window.
struct Counter {
    used: u128,
    window: u64,
}

impl Counter {
    #[inline]
    fn read(rule: &Rule, state: &impl State, now: u64) -> Self {
        let counted_in = state.word(Word::At);
        let window = window_of(rule, now).max(counted_in);
        let paid = u128::from(window - counted_in) * u128::from(rule.capacity);
        Self { used: u128::from(state.word(Word::Level)).saturating_sub(paid), window }
    }

    #[inline]
    fn changes(&self) -> Changes {
        Changes::NONE.set(Word::Level, low(self.used)).set(Word::At, self.window)
    }
}

fn window_of(rule: &Rule, now: u64) -> u64 {
    low(divide(u128::from(now) + u128::from(rule.wall_offset), rule.window).0)
}

/// Returns the set time at which a window begins.
fn beginning(rule: &Rule, window: u128) -> u64 {
    low(window.saturating_mul(u128::from(rule.window)).saturating_sub(u128::from(rule.wall_offset)))
}

impl Method for FixedWindow {
    const REFUNDS: bool = false;
    const HAS_BURST: bool = false;

    fn start(rule: &Rule, now: u64) -> Changes {
        Counter { used: 0, window: window_of(rule, now) }.changes()
    }

    #[inline]
    fn admit(rule: &Rule, state: &impl State, now: u64, amount: u64) -> Verdict {
        let mut counter = Counter::read(rule, state, now);
        counter.used += u128::from(amount);
        let above = counter.used.saturating_sub(u128::from(rule.capacity));
        if above > 0 {
            let windows = divide_up(above, rule.capacity);
            return Verdict::Later { at: beginning(rule, u128::from(counter.window) + windows) };
        }
        Verdict::Admit(counter.changes())
    }

    fn charge(rule: &Rule, state: &impl State, now: u64, amount: u64) -> Changes {
        let mut counter = Counter::read(rule, state, now);
        counter.used += u128::from(amount);
        counter.changes()
    }

    fn available(rule: &Rule, state: &impl State, now: u64) -> i64 {
        left(rule.capacity, Counter::read(rule, state, now).used)
    }

    fn time_for_more(rule: &Rule, units: u64) -> u64 {
        low(u128::from(units / rule.capacity) * u128::from(rule.window))
    }

    fn decided_until(rule: &Rule, state: &impl State) -> u64 {
        beginning(rule, state.word(Word::At).into())
    }

    fn reconfigure(rule: &Rule, new: &Rule, state: &impl State, now: u64) -> Changes {
        let counter = Counter::read(rule, state, now);
        // The relevant instant lies in the counter's window, even if the clock is behind it.
        let now = now.max(beginning(rule, counter.window.into()));
        let used = carried_over(counter.used, rule.capacity, new.capacity).into();
        Counter { used, window: window_of(new, now) }.changes()
    }
}
