//! Sliding window: never more than the capacity in any window of that length, no matter when the window
//! begins.
//!
//! Admissions are kept in a ring of `resolution + 1` cells, one for each sub-window with admissions: the
//! number of units and the instant of the latest admission. A cell counts until its latest admission is a
//! window old. So an earlier admission of the same sub-window may count too long, by less than
//! window/resolution, and none ever counts too short.
//!
//! | word | meaning |
//! | --- | --- |
//! | level | nanoseconds the window's clock is behind set time, signed |
//! | at | latest instant at which a decision was made |
//! | remainder | amount by which `paid_at` was rounded up, in units of 1/capacity nanoseconds |
//! | cell 0 | `paid_at`: the instant at which all debt is paid |
//! | cells 1 + 2i, 2 + 2i | instant of the latest admission in cell i, by the window's clock; units in it |
//!
//! **Debt** stops the window's clock: for each unit that did not fit, window/capacity nanoseconds, the time
//! in which a full window makes room for one unit. While the clock stands, nothing is admitted and no cell
//! grows older, so the following windows pay for the debt. A clock that is only ever late keeps the promise:
//! admissions within one window by set time are within one window by the window's clock too.
//!
//! **Cells are never cleared.** The ring is written in order, so old cells come before newer ones, and a cell
//! is reused when it no longer counts. If the next cell still counts, because the window was made longer,
//! admissions go to the newest cell instead. To forget all admissions, the clock jumps ahead by a window.

use super::parts::{Changes, Method, Rule, State, Verdict, Word, instant, left, low, signed};

pub(crate) struct SlidingWindow;

const PAID_AT: Word = Word::Cell(0);

/// The instant of a cell's latest admission.
fn latest_in(cell: u32) -> Word {
    Word::Cell(1 + 2 * cell)
}

fn units_in(cell: u32) -> Word {
    Word::Cell(2 + 2 * cell)
}

fn ring(rule: &Rule) -> u32 {
    rule.resolution + 1
}

/// The words, brought up to an instant, and the units that count at it.
struct Window {
    /// Set time: now, or the latest decision if that is later.
    at: u64,
    /// The instant `at` by the window's clock.
    own: u64,
    behind: i64,
    paid_at: u64,
    rounded_by: u64,
    newest: u32,
    counted: u128,
}

impl Window {
    fn read(rule: &Rule, state: &impl State, now: u64) -> Self {
        let at = state.word(Word::At).max(now);
        let behind = state.word(Word::Level).cast_signed();
        let paid_at = state.word(PAID_AT);
        let own = instant(i128::from(at.max(paid_at)) - i128::from(behind));
        let rounded_by = state.word(Word::Remainder).min(rule.capacity - 1);
        let (mut newest, mut newest_at, mut counted) = (0, 0, 0);
        for cell in 0..ring(rule) {
            let latest = state.word(latest_in(cell));
            if counts(rule, latest, own) {
                counted += u128::from(state.word(units_in(cell)));
            }
            if latest > newest_at {
                (newest, newest_at) = (cell, latest);
            }
        }
        Self { at, own, behind, paid_at, rounded_by, newest, counted }
    }

    fn in_debt(&self) -> bool {
        self.at < self.paid_at
    }

    /// Returns the units owed, rounded up.
    fn debt(&self, rule: &Rule) -> u128 {
        let nanos = u128::from(self.paid_at.saturating_sub(self.at));
        let owed = (nanos * u128::from(rule.capacity)).saturating_sub(u128::from(self.rounded_by));
        owed.div_ceil(u128::from(rule.window))
    }

    fn room(&self, rule: &Rule) -> u64 {
        if self.in_debt() { 0 } else { low(u128::from(rule.capacity).saturating_sub(self.counted)) }
    }

    /// Adds units to the cell of this sub-window.
    fn put(&self, rule: &Rule, state: &impl State, amount: u64, changes: Changes) -> Changes {
        let sub_window = rule.window.div_ceil(rule.resolution.into());
        let newest_at = state.word(latest_in(self.newest));
        let next = (self.newest + 1) % ring(rule);
        let next_is_free =
            !counts(rule, state.word(latest_in(next)), self.own) || state.word(units_in(next)) == 0;
        let (cell, before) = if newest_at / sub_window != self.own / sub_window && next_is_free {
            (next, 0)
        } else if counts(rule, newest_at, self.own) {
            (self.newest, state.word(units_in(self.newest)))
        } else {
            (self.newest, 0)
        };
        changes.set(latest_in(cell), self.own).set(units_in(cell), before.saturating_add(amount))
    }

    /// Stops the window's clock for the cost of `units`, from now on or from the instant at which older debt
    /// is paid.
    fn stop(&self, rule: &Rule, units: u128, changes: Changes) -> Changes {
        let (from, credit) = if self.in_debt() { (self.paid_at, self.rounded_by) } else { (self.at, 0) };
        let capacity = u128::from(rule.capacity);
        let cost = units.saturating_mul(u128::from(rule.window));
        let nanos = cost.saturating_sub(u128::from(credit)).div_ceil(capacity);
        let rounded_by = (nanos.saturating_mul(capacity) + u128::from(credit)).saturating_sub(cost);
        let paid_at = from.saturating_add(low(nanos));
        let behind = i128::from(self.behind) + i128::from(paid_at - from);
        changes
            .set(Word::Level, signed(behind).cast_unsigned())
            .set(Word::Remainder, low(rounded_by))
            .set(PAID_AT, paid_at)
    }

    /// Returns the earliest instant, by the window's clock, at which not more than `allowed` units count.
    fn falls_to(&self, rule: &Rule, state: &impl State, allowed: u128) -> u64 {
        let mut counted = self.counted;
        let mut falls_at = self.own;
        for step in 1..=ring(rule) {
            if counted <= allowed {
                break;
            }
            let cell = (self.newest + step) % ring(rule);
            let latest = state.word(latest_in(cell));
            if counts(rule, latest, self.own) {
                counted = counted.saturating_sub(state.word(units_in(cell)).into());
                falls_at = latest.saturating_add(rule.window);
            }
        }
        falls_at
    }
}

/// Returns whether a cell with this latest admission counts at `own`; both instants are by the window's
/// clock.
fn counts(rule: &Rule, latest: u64, own: u64) -> bool {
    latest.saturating_add(rule.window) > own
}

#[inline(never)]
fn admit(rule: Rule, state: impl State, now: u64, amount: u64) -> Verdict {
    let window = Window::read(&rule, &state, now);
    if amount <= window.room(&rule) {
        let changes = Changes::NONE.set(Word::At, window.at);
        return Verdict::Admit(window.put(&rule, &state, amount, changes));
    }
    let allowed = u128::from(rule.capacity.saturating_sub(amount));
    // In debt, the window's clock already shows its time at the end of the debt, so the result is never too
    // early.
    let falls_at = window.falls_to(&rule, &state, allowed);
    Verdict::Later { at: instant(i128::from(falls_at) + i128::from(window.behind)) }
}

impl Method for SlidingWindow {
    const REFUNDS: bool = false;
    const HAS_BURST: bool = false;
    const HAS_RESOLUTION: bool = true;

    fn cells(rule: &Rule) -> u32 {
        1 + 2 * ring(rule)
    }

    fn start(_rule: &Rule, now: u64) -> Changes {
        Changes::NONE.set(Word::Level, 0).set(Word::At, now).set(Word::Remainder, 0)
    }

    fn reset(rule: &Rule, state: &impl State, now: u64) -> Changes {
        let window = Window::read(rule, state, now);
        let forgotten_at = state.word(latest_in(window.newest)).saturating_add(rule.window);
        let own = if window.counted == 0 { window.own } else { window.own.max(forgotten_at) };
        let behind = i128::from(window.at) - i128::from(own);
        Changes::NONE
            .set(Word::Level, signed(behind).cast_unsigned())
            .set(Word::At, window.at)
            .set(Word::Remainder, 0)
            .set(PAID_AT, 0)
    }

    #[inline(always)]
    fn admit(rule: &Rule, state: &impl State, now: u64, amount: u64) -> Verdict {
        // Passes copies, so that the short algorithms dispatched beside this one can keep theirs in
        // registers.
        admit(*rule, *state, now, amount)
    }

    fn charge(rule: &Rule, state: &impl State, now: u64, amount: u64) -> Changes {
        let window = Window::read(rule, state, now);
        let fits = amount.min(window.room(rule));
        let mut changes = Changes::NONE.set(Word::At, window.at);
        if fits > 0 {
            changes = window.put(rule, state, fits, changes);
        }
        if amount > fits {
            changes = window.stop(rule, u128::from(amount - fits), changes);
        }
        changes
    }

    fn available(rule: &Rule, state: &impl State, now: u64) -> i64 {
        let window = Window::read(rule, state, now);
        if window.in_debt() {
            // Room made by a higher capacity cannot be used while the clock stands.
            left(rule.capacity, window.counted.max(rule.capacity.into()).saturating_add(window.debt(rule)))
        } else {
            left(rule.capacity, window.counted)
        }
    }

    fn time_for_more(rule: &Rule, units: u64) -> u64 {
        low(u128::from(units / rule.capacity) * u128::from(rule.window))
    }

    fn reconfigure(rule: &Rule, new: &Rule, state: &impl State, now: u64) -> Changes {
        let window = Window::read(rule, state, now);
        let changes = Changes::NONE.set(Word::At, window.at);
        if !window.in_debt() {
            return changes;
        }
        // Treats the stopped clock as if it had stood until now, and stops it again for the same units under
        // the new rule.
        let stood = i128::from(window.paid_at - window.at);
        let behind = signed(i128::from(window.behind) - stood);
        Window { behind, paid_at: window.at, ..window }.stop(new, window.debt(rule), changes)
    }
}
