//! What victims do to a set, and what must come of it: each act is done by one process and predicted by another.

use std::time::Duration;

use limitset::{
    AcquireError, Acquisition, Algorithm, CallLimit, Clock, Limit, LimitSet, LimitSetBuilder, LimitStats,
    RateLimit, Report, ResourceLimit, Segment, UsageError,
};

use crate::support::Random;

/// The least number of permits; no act takes more than two at a time.
pub(crate) const CONNECTIONS: u64 = 8;

/// The sets under test. Between them they have every kind of limit and every algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    /// Three limits of different kinds.
    Kinds,
    /// Rates of all the other algorithms, and permits behind them.
    Windows,
}

impl Which {
    pub(crate) const ALL: [Self; 2] = [Self::Kinds, Self::Windows];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Kinds => "three kinds",
            Self::Windows => "windows, GCRA, leaky bucket",
        }
    }

    pub(crate) fn named(name: &str) -> Self {
        Self::ALL.into_iter().find(|which| which.name() == name).unwrap()
    }

    /// The limits with these numbers. Permits come last: a request that they deny has been charged to the others.
    pub(crate) fn limits(self, numbers: &Numbers) -> Vec<Limit> {
        let Numbers { capacity, window, connections } = *numbers;
        let rate = |key: &str, more: u64| RateLimit::new(key, capacity + more, window);
        let calls = CallLimit::new(capacity, window);
        let permits = ResourceLimit::new("connections", connections);
        match self {
            Self::Kinds => vec![calls.into(), rate("tokens", 1).into(), permits.into()],
            Self::Windows => vec![
                calls.algorithm(Algorithm::FixedWindow).into(),
                rate("tokens", 1).algorithm(Algorithm::SlidingWindow).resolution(5).into(),
                rate("bytes", 2).algorithm(Algorithm::Gcra).report(Report::Optional).into(),
                rate("pages", 3).algorithm(Algorithm::LeakyBucket).report(Report::Optional).into(),
                permits.into(),
            ],
        }
    }

    pub(crate) fn builder(self) -> LimitSetBuilder {
        let numbers = Numbers { capacity: 2_000, window: Duration::from_secs(60), connections: CONNECTIONS };
        LimitSet::builder().limits(self.limits(&numbers)).clock(Clock::Manual).segment(
            // A sweep is always due, so that every run of an act is the same.
            Segment::options()
                .slots(4)
                .waiters(2)
                .lock_slice(Duration::from_micros(20))
                .doorbell_slice(Duration::from_nanos(1)),
        )
    }

    /// Whether a rate refunds unused units.
    fn refunds(self, key: &str) -> bool {
        match self {
            Self::Kinds => key != "connections",
            Self::Windows => key == "bytes",
        }
    }

    /// What the acts ask for: something of every limit.
    pub(crate) fn request(self, amounts: &Amounts) -> Vec<(&'static str, u64)> {
        let Amounts { calls, tokens, connections, .. } = *amounts;
        let mut request = vec![("call_count", calls), ("tokens", tokens), ("connections", connections)];
        if self == Self::Windows {
            request.extend([("bytes", tokens + 3), ("pages", tokens + 5)]);
        }
        request
    }
}

/// Numbers of the limits of a set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numbers {
    capacity: u64,
    window: Duration,
    connections: u64,
}

impl Numbers {
    pub(crate) fn random(random: &mut Random) -> Self {
        Self {
            capacity: 1_000 + random.below(2_000),
            window: Duration::from_nanos(30_000_000_000 + random.below(60_000_000_000)),
            connections: CONNECTIONS + random.below(8),
        }
    }
}

/// How much of everything: the same for a seed, in whichever process.
#[derive(Clone, Debug)]
pub(crate) struct Amounts {
    calls: u64,
    tokens: u64,
    connections: u64,
    less: u64,
    more: u64,
    numbers: Numbers,
    nanos: u64,
}

impl Amounts {
    pub(crate) fn of(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let tokens = 20 + random.below(100);
        Self {
            calls: 1 + random.below(20),
            tokens,
            connections: 1 + random.below(2),
            less: 1 + random.below(tokens - 2),
            more: 1 + random.below(50),
            numbers: Numbers::random(&mut random),
            nanos: 1 + random.below(5_000_000_000),
        }
    }
}

/// What a victim does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    Take,
    Deny,
    Update,
    Debt,
    Settle,
    Release,
    Drop,
    Cancel,
    More,
    Reconfigure,
    Reset,
    Advance,
    Reap,
}

impl Act {
    const ALL: [Self; 13] = [
        Self::Take,
        Self::Deny,
        Self::Update,
        Self::Debt,
        Self::Settle,
        Self::Release,
        Self::Drop,
        Self::Cancel,
        Self::More,
        Self::Reconfigure,
        Self::Reset,
        Self::Advance,
        Self::Reap,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Take => "try_acquire",
            Self::Deny => "try_acquire, denied",
            Self::Update => "update",
            Self::Debt => "adjust into debt",
            Self::Settle => "settle",
            Self::Release => "release, unreported",
            Self::Drop => "drop",
            Self::Cancel => "cancel",
            Self::More => "acquire_more",
            Self::Reconfigure => "reconfigure",
            Self::Reset => "reset",
            Self::Advance => "advance",
            Self::Reap => "reap",
        }
    }

    pub(crate) fn named(name: &str) -> Self {
        Self::ALL.into_iter().find(|act| act.name() == name).unwrap()
    }

    /// How many whole states there are from before it to after it.
    pub(crate) fn states(self) -> usize {
        match self {
            Self::Deny => 1,
            // The report it owed, the permits it held, its name: a transaction each.
            Self::Reap => 4,
            _ => 2,
        }
    }

    /// Gets what the act needs to have been acquired.
    pub(crate) fn prepare(self, set: &LimitSet, which: Which, amounts: &Amounts) -> Option<Acquisition> {
        let needs_one = matches!(
            self,
            Self::Update | Self::Debt | Self::Settle | Self::Release | Self::Drop | Self::Cancel | Self::More
        );
        let mut held = needs_one.then(|| set.try_acquire(which.request(amounts).as_slice()).unwrap())?;
        if self == Self::Drop {
            held.settle("tokens", amounts.less).unwrap();
        }
        Some(held)
    }

    /// Does it. Nothing is given back afterwards.
    pub(crate) fn perform(self, set: &LimitSet, which: Which, amounts: &Amounts, held: Option<Acquisition>) {
        let kept = match (self, held) {
            (Self::Take, _) => Some(set.try_acquire(which.request(amounts).as_slice()).unwrap()),
            (Self::Deny, _) => {
                let denied = set.try_acquire(which.request(amounts).as_slice());
                assert!(matches!(denied, Err(AcquireError::Denied(_))));
                None
            }
            (Self::Update, Some(mut held)) => {
                held.update("tokens", amounts.less).unwrap();
                Some(held)
            }
            (Self::Debt, Some(mut held)) => {
                held.adjust("tokens", DEBT + i64::try_from(amounts.more).unwrap()).unwrap();
                Some(held)
            }
            (Self::Settle, Some(mut held)) => {
                held.settle("tokens", amounts.tokens + amounts.more).unwrap();
                Some(held)
            }
            (Self::Release, Some(held)) => {
                assert!(matches!(held.release(), Err(UsageError::Unreported { .. })));
                None
            }
            (Self::Drop, Some(held)) => {
                drop(held);
                None
            }
            (Self::Cancel, Some(held)) => {
                held.cancel().unwrap();
                None
            }
            (Self::More, Some(mut held)) => {
                held.acquire_more([("tokens", amounts.more), ("connections", 1)]).unwrap();
                Some(held)
            }
            (Self::Reconfigure, _) => {
                set.reconfigure(new_limits(which, amounts)).unwrap();
                None
            }
            (Self::Reset, _) => {
                set.reset().unwrap();
                None
            }
            (Self::Advance, _) => {
                set.advance(Duration::from_nanos(amounts.nanos)).unwrap();
                None
            }
            (Self::Reap, _) => {
                set.reap().unwrap();
                None
            }
            (_, None) => unreachable!("{self:?} needs something held"),
        };
        std::mem::forget(kept);
    }

    /// The limits after the act, given those before it.
    pub(crate) fn predict(self, which: Which, amounts: &Amounts, before: &[LimitStats]) -> Vec<LimitStats> {
        let mut after = before.to_vec();
        let requested = which.request(amounts);
        let request_of =
            |key: &str| requested.iter().find(|(it, _)| *it == key).map_or(0, |(_, amount)| *amount);
        for limit in &mut after {
            let key = limit.key.clone();
            let (is_tokens, is_permit) = (key == "tokens", key == "connections");
            match self {
                Self::Take => take(limit, request_of(&key)),
                Self::More if is_tokens => take(limit, amounts.more),
                Self::More if is_permit => take(limit, 1),
                Self::Update if is_tokens => give(limit, which, amounts.tokens - amounts.less),
                Self::Debt if is_tokens => charge(limit, DEBT.unsigned_abs() + amounts.more),
                Self::Settle if is_tokens => charge(limit, amounts.more),
                Self::Release | Self::Drop | Self::Cancel if is_permit => {
                    give(limit, which, amounts.connections);
                }
                Self::Release if is_tokens => limit.unreported += 1,
                Self::Cancel => give(limit, which, request_of(&key)),
                Self::Reset if !is_permit => {
                    let most = limit.burst;
                    set_left(limit, i128::from(most));
                }
                Self::Reconfigure => reconfigure(limit, which, amounts),
                // Another process took the amounts of `Take`, and died.
                Self::Reap if is_permit => give(limit, which, amounts.connections),
                Self::Reap if is_tokens => limit.unreported += 1,
                _ => {}
            }
        }
        after
    }

    /// How many more reports on tokens are owed after it.
    pub(crate) fn owes(self) -> i64 {
        match self {
            Self::Take => 1,
            Self::Update | Self::Debt | Self::Settle | Self::Release | Self::Cancel | Self::Reap => -1,
            Self::Deny | Self::Drop | Self::More | Self::Reconfigure | Self::Reset | Self::Advance => 0,
        }
    }

    /// Whether it changes how much there is in a way that only the algorithms can tell. That is compared word by
    /// word where the whole act is seen.
    pub(crate) fn is_up_to_the_algorithm(self) -> bool {
        matches!(self, Self::Advance | Self::Reconfigure)
    }
}

/// More than any limit here has.
const DEBT: i64 = 5_000;

/// What a victim reconfigures: two limits of different kinds, or every rate.
pub(crate) fn new_limits(which: Which, amounts: &Amounts) -> Vec<Limit> {
    let limits = which.limits(&amounts.numbers).into_iter();
    limits
        .filter(|limit| match which {
            Which::Kinds => ["tokens", "connections"].contains(&limit.name()),
            Which::Windows => limit.name() != "connections",
        })
        .collect()
}

fn reconfigure(limit: &mut LimitStats, which: Which, amounts: &Amounts) {
    let Some(new) = new_limits(which, amounts).into_iter().find(|new| new.name() == limit.key) else {
        return;
    };
    (limit.capacity, limit.burst) = (new.capacity(), new.capacity());
    limit.revision += 1;
    match limit.window {
        Some(_) => limit.window = Some(amounts.numbers.window),
        None => limit.available = limit.capacity.saturating_sub(limit.in_use),
    }
}

fn take(limit: &mut LimitStats, amount: u64) {
    charge(limit, amount);
    limit.granted += u64::from(amount > 0);
}

fn charge(limit: &mut LimitStats, amount: u64) {
    let left = i128::from(limit.available) - i128::from(limit.debt) - i128::from(amount);
    set_left(limit, left);
    limit.consumed += amount;
}

fn give(limit: &mut LimitStats, which: Which, amount: u64) {
    let left = i128::from(limit.available) - i128::from(limit.debt) + i128::from(amount);
    if limit.window.is_none() {
        set_left(limit, left);
    } else if which.refunds(&limit.key) {
        set_left(limit, left);
        limit.consumed -= amount;
        limit.refunded += amount;
    }
}

fn set_left(limit: &mut LimitStats, left: i128) {
    limit.available = u64::try_from(left.max(0)).unwrap();
    limit.debt = u64::try_from((-left).max(0)).unwrap();
    limit.in_use = limit.burst - limit.available;
}

/// Gives a set other numbers, another time, and charges and permits that stay with the caller.
pub(crate) fn move_state(set: &LimitSet, which: Which, random: &mut Random) -> Vec<Acquisition> {
    set.reset().unwrap();
    set.reconfigure(which.limits(&Numbers::random(random))).unwrap();
    let pass = |most: u64, random: &mut Random| {
        set.advance(Duration::from_nanos(random.below(most))).unwrap();
    };
    pass(90_000_000_000, random);
    let mut held = Vec::new();
    for _ in 0..2 {
        let amounts = Amounts::of(random.next());
        let mut acquired = set.try_acquire(which.request(&amounts).as_slice()).unwrap();
        if random.below(2) == 0 {
            acquired.settle("tokens", amounts.less).unwrap();
        }
        held.push(acquired);
        pass(3_000_000_000, random);
    }
    // One of them ends; of the other it may be that the report is still owed.
    drop(held.swap_remove(0));
    held
}

/// Takes every permit that is left.
pub(crate) fn take_the_rest(set: &LimitSet) -> Acquisition {
    let left = set.stats().unwrap().limit("connections").unwrap().available;
    set.try_acquire([("call_count", 0), ("tokens", 0), ("connections", left)]).unwrap()
}
