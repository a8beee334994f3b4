//! A sixth algorithm, as `docs/extending.md` describes: a type that implements `Method`. Held to the common rules.
//!
//! A pacer: admits one request of any size up to the burst, then nothing for as long as its units take.

use super::garbage::withstands_garbage;
use super::rules::keeps_the_common_rules;
use super::{Operations, SECOND, Words, rules};
use crate::algorithm::parts::{left, low};
use crate::algorithm::{self, Algorithm, Changes, Method, Rule, State, Verdict, Word};

struct Pacer;

/// Instant, and nanoseconds from then until the pause is over.
fn pause(state: &impl State, now: u64) -> (u64, u64) {
    let at = state.word(Word::At).max(now);
    (at, state.word(Word::Level).saturating_sub(at))
}

fn time_of(rule: &Rule, units: u64) -> u64 {
    low((u128::from(units) * u128::from(rule.window_nanos())).div_ceil(u128::from(rule.capacity())))
}

impl Method for Pacer {
    const REFUNDS: bool = false;
    const HAS_BURST: bool = true;

    fn start(_rule: &Rule, now: u64) -> Changes {
        Changes::NONE.set(Word::Level, now).set(Word::At, now)
    }

    fn admit(rule: &Rule, state: &impl State, now: u64, amount: u64) -> Verdict {
        match pause(state, now) {
            (_, 0) => Verdict::Admit(Self::charge(rule, state, now, amount)),
            (at, wait) => Verdict::Later { at: at.saturating_add(wait) },
        }
    }

    fn charge(rule: &Rule, state: &impl State, now: u64, amount: u64) -> Changes {
        let (at, wait) = pause(state, now);
        let over_at = at.saturating_add(wait).saturating_add(time_of(rule, amount));
        Changes::NONE.set(Word::Level, over_at).set(Word::At, at)
    }

    fn available(rule: &Rule, state: &impl State, now: u64) -> i64 {
        match pause(state, now) {
            (_, 0) => left(rule.burst(), 0),
            (_, wait) => {
                let units = u128::from(wait) * u128::from(rule.capacity());
                left(0, units.div_ceil(u128::from(rule.window_nanos())))
            }
        }
    }

    fn reconfigure(_rule: &Rule, _new: &Rule, state: &impl State, now: u64) -> Changes {
        Changes::NONE.set(Word::At, pause(state, now).0)
    }
}

/// The operations of a method that is not in the table.
struct Alone<M>(M);

impl<M: Method> Operations for Alone<M> {
    fn cells(&self, rule: &Rule) -> u32 {
        M::cells(rule)
    }
    fn most(&self, rule: &Rule) -> u64 {
        M::most(rule)
    }
    fn start(&self, rule: &Rule, now: u64) -> Changes {
        M::start(rule, now)
    }
    fn reset(&self, rule: &Rule, words: &Words, now: u64) -> Changes {
        M::reset(rule, &words, now)
    }
    fn acquire(&self, rule: &Rule, words: &Words, now: u64, amount: u64) -> Verdict {
        algorithm::acquire::<M>(rule, &words, now, amount)
    }
    fn refund(&self, rule: &Rule, words: &Words, now: u64, amount: u64) -> (u64, Changes) {
        algorithm::refund::<M>(rule, &words, now, amount)
    }
    fn adjust(&self, rule: &Rule, words: &Words, now: u64, delta: i64) -> Changes {
        algorithm::adjust::<M>(rule, &words, now, delta)
    }
    fn available(&self, rule: &Rule, words: &Words, now: u64) -> i64 {
        M::available(rule, &words, now)
    }
    fn reconfigure(&self, rule: &Rule, new: &Rule, words: &Words, now: u64) -> Changes {
        M::reconfigure(rule, new, &words, now)
    }
}

#[test]
fn a_sixth_algorithm_is_one_type_and_keeps_the_common_rules() {
    // The algorithm named in the rules is of no account: these operations do not ask for it.
    keeps_the_common_rules(&Alone(Pacer), &rules(Algorithm::TokenBucket));
}

#[test]
fn a_sixth_algorithm_withstands_garbage() {
    withstands_garbage(&Alone(Pacer), Algorithm::TokenBucket);
}

/// Promises the end of its pause a nanosecond too early.
struct Hasty;

impl Method for Hasty {
    const REFUNDS: bool = false;
    const HAS_BURST: bool = true;

    fn start(rule: &Rule, now: u64) -> Changes {
        Pacer::start(rule, now)
    }
    fn admit(rule: &Rule, state: &impl State, now: u64, amount: u64) -> Verdict {
        match Pacer::admit(rule, state, now, amount) {
            Verdict::Later { at } => Verdict::Later { at: at - 1 },
            verdict => verdict,
        }
    }
    fn charge(rule: &Rule, state: &impl State, now: u64, amount: u64) -> Changes {
        Pacer::charge(rule, state, now, amount)
    }
    fn available(rule: &Rule, state: &impl State, now: u64) -> i64 {
        Pacer::available(rule, state, now)
    }
    fn reconfigure(rule: &Rule, new: &Rule, state: &impl State, now: u64) -> Changes {
        Pacer::reconfigure(rule, new, state, now)
    }
}

#[test]
#[should_panic(expected = "the wait was too short")]
fn the_common_rules_catch_a_wait_that_is_too_short() {
    keeps_the_common_rules(&Alone(Hasty), &[Rule::new(Algorithm::TokenBucket, 7, 3 * SECOND)]);
}
