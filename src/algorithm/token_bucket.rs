//! Token bucket: tokens flow in at a constant rate up to the burst; a request is admitted if its tokens are
//! there.
//!
//! | word | meaning |
//! | --- | --- |
//! | level | tokens, signed: negative is debt |
//! | at | instant the tokens belong to |
//! | remainder | part of the next token, in units of 1/window |
//!
//! `n = elapsed * capacity + remainder; tokens += n / window; remainder = n % window; at = now`. A full
//! bucket has no remainder.

use super::parts::{Changes, Method, Rule, State, Verdict, Word, signed};

pub(crate) struct TokenBucket;

/// The three words, brought up to an instant.
struct Bucket {
    tokens: i64,
    at: u64,
    remainder: u64,
}

impl Bucket {
    #[inline(always)]
    fn read(rule: &Rule, state: &impl State, now: u64) -> Self {
        let at = state.word(Word::At);
        let (flown, remainder) = rule.flow(now.saturating_sub(at), state.word(Word::Remainder));
        let tokens = i128::from(state.word(Word::Level).cast_signed()).saturating_add_unsigned(flown);
        Self { tokens: signed(tokens), at: at.max(now), remainder }.clamped(rule)
    }

    #[inline(always)]
    fn clamped(mut self, rule: &Rule) -> Self {
        if self.tokens >= rule.burst.cast_signed() {
            (self.tokens, self.remainder) = (rule.burst.cast_signed(), 0);
        }
        self
    }

    #[inline(always)]
    fn changes(&self) -> Changes {
        Changes::NONE
            .set(Word::Level, self.tokens.cast_unsigned())
            .set(Word::At, self.at)
            .set(Word::Remainder, self.remainder)
    }
}

impl Method for TokenBucket {
    const REFUNDS: bool = true;
    const HAS_BURST: bool = true;
    const IS_PLAIN: bool = true;

    fn start(rule: &Rule, now: u64) -> Changes {
        Bucket { tokens: rule.burst.cast_signed(), at: now, remainder: 0 }.changes()
    }

    #[inline(always)]
    fn admit(rule: &Rule, state: &impl State, now: u64, amount: u64) -> Verdict {
        let mut bucket = Bucket::read(rule, state, now);
        let missing = i128::from(amount) - i128::from(bucket.tokens);
        if missing > 0 {
            let wait = rule.time_for(missing.cast_unsigned(), bucket.remainder);
            return Verdict::Later { at: bucket.at.saturating_add(wait) };
        }
        bucket.tokens = bucket.tokens.saturating_sub_unsigned(amount);
        Verdict::Admit(bucket.changes())
    }

    fn charge(rule: &Rule, state: &impl State, now: u64, amount: u64) -> Changes {
        let mut bucket = Bucket::read(rule, state, now);
        bucket.tokens = bucket.tokens.saturating_sub_unsigned(amount);
        bucket.changes()
    }

    fn give_back(rule: &Rule, state: &impl State, now: u64, amount: u64) -> Changes {
        let mut bucket = Bucket::read(rule, state, now);
        bucket.tokens = bucket.tokens.saturating_add_unsigned(amount);
        bucket.clamped(rule).changes()
    }

    fn available(rule: &Rule, state: &impl State, now: u64) -> i64 {
        Bucket::read(rule, state, now).tokens
    }

    fn reconfigure(rule: &Rule, new: &Rule, state: &impl State, now: u64) -> Changes {
        // The remainder is in units of the old window, so it is dropped.
        Bucket { remainder: 0, ..Bucket::read(rule, state, now) }.clamped(new).changes()
    }
}
