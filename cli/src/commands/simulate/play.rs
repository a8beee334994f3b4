//! Runs a load against limits. The library's set decides; its clock is moved from one event to the next.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use limitset::{AcquireError, Acquisition, Clock, Limit, LimitSet};

use super::load::{Ask, Load};
use crate::failure::Failure;

/// The outcome of a request.
#[derive(Clone, Debug)]
pub(super) struct Played {
    pub(super) at: Duration,
    /// The time of admission; none if the request gave up.
    pub(super) admitted: Option<Duration>,
    /// The request exceeded the maximum of a limit.
    pub(super) is_never: bool,
    /// The charged amounts, by key.
    pub(super) taken: Vec<(String, u64)>,
}

/// A waiting request: its index in the load, and the time when it gives up.
struct Waiting {
    place: usize,
    until: Duration,
}

struct Stage<'a> {
    set: LimitSet,
    asks: &'a [Ask],
    fates: Vec<Played>,
    now: Duration,
    waiting: VecDeque<Waiting>,
    /// Held permits, ordered by the time of their release.
    releases: BinaryHeap<Reverse<(Duration, usize)>>,
    held: Vec<Option<Acquisition>>,
}

/// Runs the load to its end. Each request waits for at most `wait`.
pub(super) fn play(limits: &[Limit], load: &Load, wait: Duration) -> Result<Vec<Played>, Failure> {
    let set = LimitSet::builder().limits(limits.iter().cloned()).clock(Clock::Manual).in_memory()?;
    let fate = |ask: &Ask| Played { at: ask.at, admitted: None, is_never: false, taken: Vec::new() };
    let mut stage = Stage {
        set,
        asks: &load.asks,
        fates: load.asks.iter().map(fate).collect(),
        now: Duration::ZERO,
        waiting: VecDeque::new(),
        releases: BinaryHeap::new(),
        held: load.asks.iter().map(|_| None).collect(),
    };
    let mut next = 0;
    loop {
        stage.release();
        while let Some(ask) = load.asks.get(next).filter(|ask| ask.at <= stage.now) {
            stage.waiting.push_back(Waiting { place: next, until: ask.at.saturating_add(wait) });
            next += 1;
        }
        let retry = stage.serve()?;
        let now = stage.now;
        // All requests wait equally long, so the first to arrive is the first to give up.
        while stage.waiting.front().is_some_and(|it| it.until <= now) {
            stage.waiting.pop_front();
        }
        let deadline = stage.waiting.front().map(|it| it.until);
        let release = stage.releases.peek().map(|Reverse((at, _))| *at);
        let arrival = load.asks.get(next).map(|ask| ask.at);
        // If no request waits or arrives any more, later releases do not matter.
        let release = release.filter(|_| arrival.is_some() || !stage.waiting.is_empty());
        let Some(then) = [arrival, retry, release, deadline].into_iter().flatten().min() else {
            return Ok(stage.fates);
        };
        // Make sure that the time advances in spite of rounding.
        let then = then.max(now + Duration::from_nanos(u64::from(arrival != Some(now))));
        stage.set.advance(then - now)?;
        stage.now = then;
    }
}

impl Stage<'_> {
    fn release(&mut self) {
        while let Some(Reverse((at, place))) = self.releases.peek().copied() {
            if at > self.now {
                break;
            }
            self.releases.pop();
            if let Some(held) = self.held.get_mut(place) {
                drop(held.take());
            }
        }
    }

    /// Admits requests that the limits allow, in order. No request overtakes a conflicting waiter. Returns
    /// the time of the next attempt.
    fn serve(&mut self) -> Result<Option<Duration>, Failure> {
        let mut wanted_by_earlier: Vec<String> = Vec::new();
        let mut retry: Option<Duration> = None;
        let mut index = 0;
        while let Some(place) = self.waiting.get(index).map(|it| it.place) {
            if wanted_by_earlier.len() >= self.set.limits().len() {
                break;
            }
            let Some(ask) = self.asks.get(place) else { break };
            let wanted = self.keys(ask);
            if wanted.iter().any(|key| wanted_by_earlier.contains(key)) {
                index += 1;
                continue;
            }
            let amounts: Vec<_> = ask.amounts.iter().map(|(key, amount)| (key.as_str(), *amount)).collect();
            match self.set.try_acquire(&amounts[..]) {
                Ok(held) => {
                    self.admit(place, ask.hold, held);
                    self.waiting.remove(index);
                }
                Err(AcquireError::Never { .. }) => {
                    if let Some(fate) = self.fates.get_mut(place) {
                        fate.is_never = true;
                    }
                    self.waiting.remove(index);
                }
                Err(error @ AcquireError::BadRequest(_)) => {
                    let failure = Failure::from(error);
                    return Err(match ask.line {
                        Some(line) => failure.about(format!("line {line} of the trace")),
                        None => failure,
                    });
                }
                Err(error @ (AcquireError::Denied(_) | AcquireError::CoolingDown { .. })) => {
                    let at = error.retry_after().map(|after| self.now.saturating_add(after));
                    retry = [retry, at].into_iter().flatten().min();
                    wanted_by_earlier.extend(wanted);
                    index += 1;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(retry)
    }

    /// Returns the keys of which a request needs more than 0.
    fn keys(&self, ask: &Ask) -> Vec<String> {
        let amount = |limit: &Limit| {
            let named = ask.amounts.iter().find(|(key, _)| key == limit.name());
            named.map_or(u64::from(!matches!(limit, Limit::Rate(_))), |(_, amount)| *amount)
        };
        self.set.limits().iter().filter(|limit| amount(limit) > 0).map(|it| it.name().to_owned()).collect()
    }

    fn admit(&mut self, place: usize, hold: Duration, held: Acquisition) {
        if let Some(fate) = self.fates.get_mut(place) {
            fate.admitted = Some(self.now);
            let keys = self.set.limits().iter().map(Limit::name);
            fate.taken = keys.filter_map(|key| Some((key.to_owned(), held.charged(key)?))).collect();
        }
        if hold.is_zero() {
            return drop(held);
        }
        self.releases.push(Reverse((self.now.saturating_add(hold), place)));
        if let Some(slot) = self.held.get_mut(place) {
            *slot = Some(held);
        }
    }
}

#[cfg(test)]
mod tests {
    use limitset::{CallLimit, RateLimit, ResourceLimit};

    use super::*;

    fn load(every: u64, count: u64, amounts: &[(&str, u64)], hold: u64) -> Load {
        let ask = |index: u64| Ask {
            at: Duration::from_millis(index * every),
            amounts: amounts.iter().map(|(key, amount)| ((*key).to_owned(), *amount)).collect(),
            hold: Duration::from_millis(hold),
            line: None,
        };
        Load { asks: (0..count).map(ask).collect(), end: Duration::from_millis(count * every) }
    }

    fn admissions(fates: &[Played]) -> Vec<u128> {
        fates.iter().filter_map(|it| it.admitted).map(|at| at.as_millis()).collect()
    }

    #[test]
    fn a_bucket_admits_its_burst_and_then_its_rate() {
        let limit = CallLimit::new(10, Duration::from_secs(1)).burst(5).into();
        let fates = play(&[limit], &load(10, 100, &[], 0), Duration::ZERO).unwrap();
        let expected: Vec<_> = [0, 10, 20, 30, 40].into_iter().chain((1..10).map(|it| it * 100)).collect();
        assert_eq!(admissions(&fates), expected);
    }

    #[test]
    fn those_who_wait_are_admitted_in_order_as_soon_as_there_is_room() {
        let limit = CallLimit::new(10, Duration::from_secs(1)).burst(1).into();
        let fates = play(&[limit], &load(0, 5, &[], 0), Duration::from_millis(350)).unwrap();
        assert_eq!(admissions(&fates), [0, 100, 200, 300]);
        assert!(fates[4].admitted.is_none());
    }

    #[test]
    fn permits_come_back_when_they_are_released() {
        let limit = ResourceLimit::new("db", 2).into();
        let fates = play(&[limit], &load(10, 6, &[], 100), Duration::from_secs(10)).unwrap();
        assert_eq!(admissions(&fates), [0, 10, 100, 110, 200, 210]);
    }

    #[test]
    fn who_wants_too_much_is_told_never_and_keeps_nobody_waiting() {
        let limits = [RateLimit::per_second("tokens", 5).into(), ResourceLimit::new("db", 1).into()];
        let fates = play(&limits, &load(1, 2, &[("tokens", 6)], 0), Duration::from_secs(1)).unwrap();
        assert!(fates.iter().all(|it| it.is_never));
        assert!(play(&limits, &load(1, 1, &[("other", 6)], 0), Duration::ZERO).is_err());
    }
}
