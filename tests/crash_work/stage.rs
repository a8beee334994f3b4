//! The set and the work that victims act on: what is in which list before they do, and what every item carries.

use std::time::Duration;

use limitset::core::NEVER;
use limitset::engine::{Charge, Lease, Taken, Wants};
use limitset::{
    CallLimit, Clock, Cooldown, LimitSet, LimitSetBuilder, QueueOptions, RateLimit, ResourceLimit, Segment,
    WorkItem,
};

use crate::acts::Act;
use crate::hands::{self, Waits};
use crate::queue::{BYTES, CONNECTIONS, SLOTS, TOKENS, WAITERS};
use crate::support::Random;

/// Places in the queue, and most bytes of a payload or result: not a whole number of words.
pub(crate) const ITEMS: u32 = 8;
pub(crate) const MOST_BYTES: u32 = 20;
/// An item that was tried or answered with a 429 so often is a dead letter.
pub(crate) const MOST_ATTEMPTS: u64 = 2;
pub(crate) const MOST_RATE_LIMITS: u64 = 2;
pub(crate) const PERMITS: u64 = 2;
/// Nobody looks for the dead who is not told to.
pub(crate) const NO_SLICE: Duration = Duration::from_secs(1 << 33);

/// The first pause; each further one is twice as long, up to the longest.
pub(crate) const FIRST_PAUSE: Duration = Duration::from_secs(10);
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(60);
pub(crate) const SLOW_ADMISSIONS: u32 = 3;
pub(crate) const FIRST_GAP: Duration = Duration::from_secs(4);
pub(crate) const LAST_GAP: Duration = Duration::from_secs(2);
/// Longer than any pause that is not asked for, and any gap.
const A_MOMENT: Duration = Duration::from_secs(100);
/// Longer than all moments of a scene together: for items whose time has not come.
const LATER: Duration = Duration::from_secs(2_000);
/// Longer than everything: rates are full again, pauses are over, items may be tried.
pub(crate) const A_WHILE: Duration = Duration::from_secs(5_000);

/// Calls, a rate whose use must be reported, permits, and a queue. Nothing is left to chance, so that it can be predicted.
pub(crate) fn builder(doorbell_slice: Duration) -> LimitSetBuilder {
    let cooldown = Cooldown::default().first(FIRST_PAUSE).longest(LONGEST_PAUSE).jitter(0.0);
    let queue = QueueOptions::new(ITEMS, MOST_BYTES);
    LimitSet::builder()
        .limit(CallLimit::new(100, Duration::from_secs(100)))
        .limit(RateLimit::new("tokens", 60, Duration::from_secs(60)))
        .limit(ResourceLimit::new("connections", PERMITS))
        .cooldown(cooldown.slow_start(SLOW_ADMISSIONS, FIRST_GAP, LAST_GAP))
        .queue(queue.attempts(most(MOST_ATTEMPTS)).rate_limits(most(MOST_RATE_LIMITS)))
        .clock(Clock::Manual)
        .segment(
            Segment::options()
                .slots(SLOTS)
                .waiters(WAITERS)
                .lock_slice(Duration::from_micros(20))
                .doorbell_slice(doorbell_slice)
                .patience(Duration::from_secs(300)),
        )
}

fn most(times: u64) -> u32 {
    u32::try_from(times).unwrap()
}

// ---- what items carry ----

fn bytes_of(seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    let length = random.below(u64::from(MOST_BYTES) + 1);
    (0..length).map(|_| random.next().to_ne_bytes()[2]).collect()
}

/// What an item is pushed with, what comes of it, and why it is given up: all by its number.
pub(crate) fn payload_of(id: u64) -> Vec<u8> {
    bytes_of(id)
}

pub(crate) fn result_of(id: u64) -> Vec<u8> {
    bytes_of(id ^ 0x5555)
}

pub(crate) fn why_of(id: u64) -> Vec<u8> {
    bytes_of(id ^ 0xaaaa)
}

// ---- what is asked of the limits ----

/// Calls, tokens, permits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask(pub(crate) u64, pub(crate) u64, pub(crate) u64);

impl Ask {
    pub(crate) fn request(self) -> [(&'static str, u64); 3] {
        [("call_count", self.0), ("tokens", self.1), ("connections", self.2)]
    }

    pub(crate) fn wants(self) -> Wants {
        let mut wants = Wants::none();
        for (limit, amount) in [(TOKENS, self.0), (BYTES, self.1), (CONNECTIONS, self.2)] {
            wants.set(limit, amount);
        }
        wants
    }
}

/// What the last of those who wait for a limit asks for.
pub(crate) const WAITER: Ask = Ask(1, 2, 1);

/// The same where it must not be in the way of the victim.
pub(crate) fn waiter_beside(act: Act) -> Ask {
    if act == Act::Admission { Ask(0, 0, 1) } else { WAITER }
}

// ---- before the victim acts ----

/// What a healthy participant has in the scene: the same in the original as in every copy.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mine {
    /// Permits.
    pub(crate) held: Option<Vec<Charge>>,
    /// A place among those who wait for a limit.
    pub(crate) waits: Option<Waits>,
    /// An item of work.
    pub(crate) lease: Option<Lease>,
}

/// Whoever prepares a scene.
pub(crate) struct Stage<'a> {
    pub(crate) set: &'a LimitSet,
    pub(crate) random: &'a mut Random,
    /// Nothing is to be had from the queue when the victim acts, but what it is about.
    pub(crate) is_bare: bool,
}

impl Stage<'_> {
    fn coin(&mut self) -> bool {
        self.random.below(2) == 0
    }

    fn advance(&self, by: Duration) {
        self.set.advance(by).unwrap();
    }

    pub(crate) fn push(&mut self) {
        let id = self.random.next();
        self.set.queue().unwrap().push(id, &payload_of(id)).unwrap();
    }

    fn take(&self) -> WorkItem {
        self.set.queue().unwrap().try_take().unwrap().unwrap()
    }

    /// Pushes an item and takes it; nothing else is to be had.
    fn push_and_take(&mut self) -> WorkItem {
        self.push();
        self.take()
    }

    /// Begins a pause, which others may have been admitted before.
    pub(crate) fn pause(&self) {
        self.set.try_acquire(Ask(1, 0, 0).request()).unwrap().rate_limited(None).unwrap();
    }

    /// Pushes an item and parks it: the set pauses.
    fn park(&mut self) {
        let mut item = self.push_and_take();
        let held = self.set.try_acquire(Ask(1, 3, 0).request()).unwrap();
        item.rate_limited(held, None).unwrap();
    }

    /// From a set at rest: another time, other places free in another order, other counts; then what the act needs.
    pub(crate) fn set_up(&mut self, act: Act) -> Mine {
        let more = Duration::from_nanos(self.random.below(1_000_000_000));
        self.advance(A_WHILE + more);
        let mut taken: Vec<_> = (0..1 + self.random.below(6)).map(|_| self.push_and_take()).collect();
        while !taken.is_empty() {
            let one = usize::try_from(self.random.below(taken.len() as u64)).unwrap();
            taken.swap_remove(one).done().unwrap();
        }
        let mut mine = Mine::default();
        for _ in 0..1 + u64::from(self.coin()) {
            let mut item = self.push_and_take();
            let result = result_of(item.id());
            item.done_with(&result).unwrap();
        }
        let mut item = self.push_and_take();
        let why = why_of(item.id());
        item.dead_letter(&why).unwrap();
        mine.lease = Some(self.lease());
        match act {
            Act::TakeParked | Act::ParkLast => self.park(),
            Act::TakeDelayed => self.push_and_take().retry(A_MOMENT + Duration::from_secs(5)).unwrap(),
            Act::Admission => mine.held = Some(hands::hold(self.set, &Ask(0, 0, PERMITS).wants())),
            _ => {}
        }
        if matches!(act, Act::Resume | Act::Success | Act::Admission) {
            self.pause_in_a_row();
        }
        self.advance(A_MOMENT);
        if matches!(act, Act::TakeDelayed | Act::Retry) {
            // With this one the heap of delayed items has several levels.
            self.push_and_take().retry(2 * LATER).unwrap();
        }
        if !matches!(act, Act::TakeParked | Act::ParkLast) && self.coin() {
            self.push_and_take().retry(LATER).unwrap();
        }
        if matches!(act, Act::TakeReady | Act::TakeDelayed) && self.coin() {
            self.park();
        }
        if act == Act::TakeDelayed {
            // Its time has come, and the pause still lasts.
            self.advance(Duration::from_secs(6));
        }
        if act.needs_ready() {
            self.push();
        }
        if act.takes_second_attempt() {
            drop(self.take());
        }
        if act == Act::PauseByHand {
            mine.held = Some(hands::hold(self.set, &Ask(0, 0, PERMITS).wants()));
        }
        mine
    }

    fn pause_in_a_row(&mut self) {
        for _ in 0..1 + u64::from(self.coin()) {
            self.advance(A_MOMENT);
            self.pause();
        }
    }

    /// A lease that is there in the original and in every copy.
    fn lease(&mut self) -> Lease {
        self.push();
        let parts = self.set.parts().unwrap();
        let mut guard = parts.lock(hands::me(self.set), NEVER).unwrap();
        let now = parts.now(&guard, 0).unwrap();
        let Taken::Item(lease) = parts.take_item(&mut guard, &Clock::Manual, now).unwrap() else {
            panic!("there is an item")
        };
        lease
    }

    /// When the victim has what it needs. True if what it reports is then about the time before a pause.
    pub(crate) fn set_up_around(&mut self, act: Act, mine: &mut Mine, waits: impl FnOnce(&mut Mine)) -> bool {
        let is_late = act == Act::Late || matches!(act, Act::Park | Act::ParkLast) && self.coin();
        if is_late || act == Act::Resume {
            self.advance(2 * FIRST_GAP);
            self.pause();
        }
        if act.is_of_the_pause() {
            waits(mine);
        } else if !self.is_bare && !matches!(act, Act::TakeDelayed | Act::TakeParked) && self.coin() {
            self.push();
        }
        is_late
    }
}
