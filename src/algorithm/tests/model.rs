//! Slow exact models, in fractions of any size and independent of state words. The algorithms must equal
//! them.

use num_bigint::BigInt;
use num_rational::BigRational;

use super::{Answer, Rule};
use crate::algorithm::Algorithm;

pub(super) trait Model {
    /// Admits and charges, or returns when the request would be admitted.
    fn acquire(&mut self, now: u64, amount: u64) -> Answer;
    fn charge(&mut self, now: u64, amount: u64);
    fn refund(&mut self, now: u64, amount: u64) -> u64;
    fn available(&self, now: u64) -> i64;
    fn reset(&mut self, now: u64);
    fn reconfigure(&mut self, new: Rule, now: u64);
}

pub(super) fn of(rule: Rule, now: u64) -> Box<dyn Model> {
    match rule.algorithm() {
        Algorithm::SlidingWindow => {
            Box::new(Sliding { rule, at: now, own: now, debt: whole(0), groups: Vec::new() })
        }
        Algorithm::FixedWindow => {
            let mut fixed = Fixed { rule, window: 0, used: 0 };
            fixed.reset(now);
            Box::new(fixed)
        }
        _ => Box::new(Bucket { rule, tokens: whole(rule.burst()), at: now }),
    }
}

pub(super) fn whole(number: impl Into<BigInt>) -> BigRational {
    BigRational::from_integer(number.into())
}

/// Units per nanosecond.
pub(super) fn rate(rule: &Rule) -> BigRational {
    BigRational::new(rule.capacity().into(), rule.window_nanos().into())
}

fn small(number: &BigRational) -> i64 {
    i64::try_from(number.to_integer()).unwrap()
}

/// Returns the first whole nanosecond after `time`.
fn nanos(time: &BigRational) -> u64 {
    u64::try_from(time.ceil().to_integer()).unwrap()
}

/// Token bucket, leaky bucket and GCRA: a bucket of real numbers. They differ in refunds, and in whether a
/// change of parameters keeps the units left or the units used.
struct Bucket {
    rule: Rule,
    tokens: BigRational,
    at: u64,
}

impl Bucket {
    fn tokens(&self, now: u64) -> BigRational {
        let refill = whole(now.saturating_sub(self.at)) * rate(&self.rule);
        (&self.tokens + refill).min(whole(self.rule.burst()))
    }

    fn set(&mut self, now: u64, tokens: BigRational) {
        self.at = self.at.max(now);
        self.tokens = tokens.min(whole(self.rule.burst()));
    }
}

impl Model for Bucket {
    fn acquire(&mut self, now: u64, amount: u64) -> Answer {
        if amount == 0 {
            return Answer::Yes;
        }
        if amount > self.rule.burst() {
            return Answer::Never;
        }
        let missing = whole(amount) - self.tokens(now);
        if missing > whole(0) {
            return Answer::Later(now.max(self.at) + nanos(&(missing / rate(&self.rule))));
        }
        self.set(now, -missing);
        Answer::Yes
    }

    fn charge(&mut self, now: u64, amount: u64) {
        self.set(now, self.tokens(now) - whole(amount));
    }

    fn refund(&mut self, now: u64, amount: u64) -> u64 {
        if self.rule.algorithm() == Algorithm::LeakyBucket || amount == 0 {
            return 0;
        }
        self.set(now, self.tokens(now) + whole(amount));
        amount
    }

    fn available(&self, now: u64) -> i64 {
        small(&self.tokens(now).floor())
    }

    fn reset(&mut self, now: u64) {
        (self.tokens, self.at) = (whole(self.rule.burst()), now);
    }

    fn reconfigure(&mut self, new: Rule, now: u64) {
        let (tokens, old) = (self.tokens(now).floor(), whole(self.rule.burst()));
        self.rule = new;
        if new.algorithm() == Algorithm::LeakyBucket {
            // The units left are those that both limits leave; debt stays.
            let left = (whole(new.burst()) - (old - &tokens)).max(whole(0));
            self.set(now, left.min(tokens));
        } else {
            self.set(now, tokens);
        }
    }
}

/// A counter that walks from window to window.
struct Fixed {
    rule: Rule,
    window: u128,
    used: u64,
}

impl Fixed {
    fn window_at(&self, now: u64) -> u128 {
        let wall = u128::from(now) + u128::from(self.rule.wall_offset);
        (wall / u128::from(self.rule.window_nanos())).max(self.window)
    }

    fn used_in(&self, window: u128) -> u64 {
        let mut used = self.used;
        for _ in self.window..window {
            if used == 0 {
                break;
            }
            used = used.saturating_sub(self.rule.capacity());
        }
        used
    }

    fn set(&mut self, now: u64, used: u64) {
        (self.window, self.used) = (self.window_at(now), used);
    }
}

impl Model for Fixed {
    fn acquire(&mut self, now: u64, amount: u64) -> Answer {
        if amount == 0 {
            return Answer::Yes;
        }
        if amount > self.rule.capacity() {
            return Answer::Never;
        }
        let mut window = self.window_at(now);
        if self.used_in(window) + amount <= self.rule.capacity() {
            self.set(now, self.used_in(window) + amount);
            return Answer::Yes;
        }
        while self.used_in(window) + amount > self.rule.capacity() {
            window += 1;
        }
        let begins = window * u128::from(self.rule.window_nanos()) - u128::from(self.rule.wall_offset);
        Answer::Later(u64::try_from(begins).unwrap())
    }

    fn charge(&mut self, now: u64, amount: u64) {
        self.set(now, self.used_in(self.window_at(now)) + amount);
    }

    fn refund(&mut self, _now: u64, _amount: u64) -> u64 {
        0
    }

    fn available(&self, now: u64) -> i64 {
        let left = i128::from(self.rule.capacity()) - i128::from(self.used_in(self.window_at(now)));
        i64::try_from(left).unwrap()
    }

    fn reset(&mut self, now: u64) {
        self.window = 0;
        self.set(now, 0);
    }

    fn reconfigure(&mut self, new: Rule, now: u64) {
        assert_eq!(new.window_nanos(), self.rule.window_nanos(), "the model numbers windows of one length");
        let used = self.used_in(self.window_at(now));
        let left = |capacity: u64| i128::from(capacity) - i128::from(used);
        let left = left(self.rule.capacity()).min(left(new.capacity()).max(0));
        self.set(now, u64::try_from(i128::from(new.capacity()) - left).unwrap());
        self.rule = new;
    }
}

/// A log of all admissions, those of one sub-window in one group, beside a clock that debt stops.
struct Sliding {
    rule: Rule,
    at: u64,
    /// The window's own clock, at `at`.
    own: u64,
    debt: BigRational,
    /// Latest admission and units of each group, oldest first.
    groups: Vec<(u64, u64)>,
}

impl Sliding {
    /// Returns the instant, the window's own clock, the debt, and the nanoseconds until it is paid.
    fn read(&self, now: u64) -> (u64, u64, BigRational, u64) {
        let at = self.at.max(now);
        let (elapsed, pause) = (at - self.at, nanos(&(&self.debt / rate(&self.rule))));
        if elapsed >= pause {
            return (at, self.own + (elapsed - pause), whole(0), 0);
        }
        (at, self.own, &self.debt - whole(elapsed) * rate(&self.rule), pause - elapsed)
    }

    fn counted(&self, own: u64) -> u64 {
        let in_window = |group: &&(u64, u64)| group.0 + self.rule.window_nanos() > own;
        self.groups.iter().filter(in_window).map(|group| group.1).sum()
    }

    fn put(&mut self, own: u64, amount: u64) {
        let sub_window = self.rule.window_nanos().div_ceil(self.rule.resolution().into());
        match self.groups.last_mut() {
            Some(last) if last.0 / sub_window == own / sub_window => *last = (own, last.1 + amount),
            _ => self.groups.push((own, amount)),
        }
    }

    fn set(&mut self, now: u64) -> u64 {
        (self.at, self.own, self.debt, _) = self.read(now);
        self.own
    }
}

impl Model for Sliding {
    fn acquire(&mut self, now: u64, amount: u64) -> Answer {
        if amount == 0 {
            return Answer::Yes;
        }
        if amount > self.rule.capacity() {
            return Answer::Never;
        }
        let (at, own, debt, pause) = self.read(now);
        let fits = |own| self.counted(own) + amount <= self.rule.capacity();
        if debt == whole(0) && fits(own) {
            self.set(now);
            self.put(own, amount);
            return Answer::Yes;
        }
        let ends = self.groups.iter().map(|group| group.0 + self.rule.window_nanos());
        let end = ends.chain([own]).filter(|end| *end >= own && fits(*end)).min().unwrap();
        Answer::Later(at + pause + (end - own))
    }

    fn charge(&mut self, now: u64, amount: u64) {
        let own = self.set(now);
        let room = self.rule.capacity().saturating_sub(self.counted(own));
        let fits = if self.debt > whole(0) { 0 } else { room.min(amount) };
        if fits > 0 {
            self.put(own, fits);
        }
        self.debt += whole(amount - fits);
    }

    fn refund(&mut self, _now: u64, _amount: u64) -> u64 {
        0
    }

    fn available(&self, now: u64) -> i64 {
        let (_, own, debt, _) = self.read(now);
        let left = whole(self.rule.capacity()) - whole(self.counted(own));
        small(&(if debt > whole(0) { left.min(whole(0)) - debt.ceil() } else { left }))
    }

    fn reset(&mut self, now: u64) {
        self.set(now);
        if self.counted(self.own) > 0 {
            let forgotten_at = self.groups.last().unwrap().0 + self.rule.window_nanos();
            self.own = self.own.max(forgotten_at);
        }
        self.debt = whole(0);
        self.groups.clear();
    }

    fn reconfigure(&mut self, new: Rule, now: u64) {
        assert_eq!(new.window_nanos(), self.rule.window_nanos(), "the model has one length of window");
        self.set(now);
        self.debt = self.debt.ceil();
        self.rule = new;
    }
}
