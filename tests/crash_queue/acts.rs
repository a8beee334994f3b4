//! What victims do to a queue, and who else is there when they do it.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use limitset::engine::Wants;
use limitset::{
    AcquireError, AcquireFuture, Acquisition, Algorithm, Clock, LimitSet, LimitSetBuilder, RateLimit, Report,
    ResourceLimit, Segment,
};

use crate::queue::{BYTES, CONNECTIONS, SLOTS, TOKENS, WAITERS};
use crate::support::Random;

pub(crate) const TOKEN_CAPACITY: u64 = 100;
pub(crate) const BYTE_CAPACITY: u64 = 60;
pub(crate) const PERMITS: u64 = 2;
/// Nobody looks for the dead who is not told to.
pub(crate) const NO_SLICE: Duration = Duration::from_secs(1 << 33);
/// Long enough for all rates to be full again.
pub(crate) const A_WHILE: Duration = Duration::from_secs(200);

/// Permits, a rate whose use need not be reported, and one whose use must be.
pub(crate) fn builder(doorbell_slice: Duration) -> LimitSetBuilder {
    let rate = |key: &str, capacity: u64| RateLimit::new(key, capacity, Duration::from_secs(capacity));
    LimitSet::builder()
        .limit(rate("tokens", TOKEN_CAPACITY).report(Report::Optional))
        .limit(rate("bytes", BYTE_CAPACITY).algorithm(Algorithm::Gcra))
        .limit(ResourceLimit::new("connections", PERMITS))
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

/// What somebody asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ask {
    pub(crate) tokens: u64,
    pub(crate) bytes: u64,
    pub(crate) connections: u64,
}

impl Ask {
    /// So many permits and a little of the rates.
    pub(crate) fn random(connections: u64, random: &mut Random) -> Self {
        Self { tokens: 1 + random.below(20), bytes: 1 + random.below(10), connections }
    }

    pub(crate) fn request(&self) -> [(&'static str, u64); 3] {
        [("tokens", self.tokens), ("bytes", self.bytes), ("connections", self.connections)]
    }

    pub(crate) fn wants(&self) -> Wants {
        let mut wants = Wants::none();
        wants.set(TOKENS, self.tokens);
        wants.set(BYTES, self.bytes);
        wants.set(CONNECTIONS, self.connections);
        wants
    }

    pub(crate) fn to_text(self) -> String {
        format!("{} {} {}", self.tokens, self.bytes, self.connections)
    }

    pub(crate) fn from_text(text: &str) -> Self {
        let numbers: Vec<u64> = text.split(' ').map(|number| number.parse().unwrap()).collect();
        Self { tokens: numbers[0], bytes: numbers[1], connections: numbers[2] }
    }
}

/// What a victim does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// Joins the queue.
    Enqueue,
    /// Joins it, and leaves at once because its time is up.
    GiveUp,
    /// Makes room for two who wait, in different ways.
    Release,
    Refund,
    Reconfigure,
    Advance,
    /// Fetches what it was granted.
    Collect,
    /// Stops waiting, with somebody behind who fits.
    Cancel,
    /// Does not want what it was granted; the next one does.
    CancelGranted,
    /// Cleans up after somebody who died waiting.
    Reap,
    /// Cleans up after somebody who never knew of its grant.
    ReapGranted,
    /// Attaches, in the slot of such a one.
    Enrol,
}

impl Act {
    pub(crate) const ALL: [Self; 12] = [
        Self::Enqueue,
        Self::GiveUp,
        Self::Release,
        Self::Refund,
        Self::Reconfigure,
        Self::Advance,
        Self::Collect,
        Self::Cancel,
        Self::CancelGranted,
        Self::Reap,
        Self::ReapGranted,
        Self::Enrol,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Enqueue => "joining the queue",
            Self::GiveUp => "joining the queue and leaving it",
            Self::Release => "release with two waiting",
            Self::Refund => "refund with two waiting",
            Self::Reconfigure => "reconfigure with two waiting",
            Self::Advance => "advance with two waiting",
            Self::Collect => "collecting a grant",
            Self::Cancel => "dropping a waiting future",
            Self::CancelGranted => "dropping a granted future",
            Self::Reap => "reaping a waiter",
            Self::ReapGranted => "reaping a waiter with a grant",
            Self::Enrol => "attaching in the slot of a waiter with a grant",
        }
    }

    pub(crate) fn named(name: &str) -> Self {
        Self::ALL.into_iter().find(|act| act.name() == name).unwrap()
    }

    /// How many whole states there are from before it to after it: one more than it has transactions.
    pub(crate) fn states(self) -> usize {
        match self {
            Self::Enqueue | Self::Collect => 2,
            // Join and leave; or leave, and a grant to the next.
            Self::GiveUp | Self::Cancel => 3,
            // What makes room, and two grants; or collect, give back, a grant; or the place, the name, a grant.
            Self::Release | Self::Refund | Self::Reconfigure | Self::Advance => 4,
            Self::CancelGranted | Self::Reap => 4,
            // The place and what it was charged, permits, the name, a grant.
            Self::ReapGranted | Self::Enrol => 5,
        }
    }

    /// Whether the dead may leave the rates so that those who wait have to wait for time to pass.
    pub(crate) fn may_need_time(self) -> bool {
        matches!(self, Self::Refund | Self::Advance)
    }

    /// Whether somebody waits and dies before the victim acts on it.
    pub(crate) fn reaps(self) -> bool {
        matches!(self, Self::Reap | Self::ReapGranted | Self::Enrol)
    }

    /// What the mover holds when the victim comes.
    pub(crate) fn mover_holds(self) -> Option<Ask> {
        let connections = match self {
            Self::Enqueue | Self::GiveUp | Self::Collect => 2,
            Self::CancelGranted | Self::ReapGranted | Self::Enrol => 2,
            Self::Cancel | Self::Reap => 1,
            Self::Advance => 0,
            _ => return None,
        };
        let tokens = if self == Self::Advance { TOKEN_CAPACITY } else { 1 };
        Some(Ask { tokens, bytes: 1, connections })
    }

    /// Whether it gives that back before the victim acts, so that whoever is first in the queue is granted it.
    pub(crate) fn mover_releases(self) -> bool {
        matches!(self, Self::Collect | Self::CancelGranted | Self::ReapGranted | Self::Enrol)
    }

    /// What the victim asks for, now or before.
    pub(crate) fn victim_asks(self, random: &mut Random) -> Ask {
        match self {
            Self::Refund => Ask { tokens: TOKEN_CAPACITY, bytes: 1, connections: 0 },
            Self::Release | Self::Reconfigure | Self::Cancel | Self::CancelGranted => Ask::random(2, random),
            _ => Ask::random(1, random),
        }
    }

    /// How many permits another process wants, who waits before the last one; none if there is no such process.
    pub(crate) fn other_wants(self) -> Option<u64> {
        match self {
            Self::Release | Self::Refund | Self::Reconfigure | Self::Advance => Some(1),
            Self::Reap | Self::ReapGranted | Self::Enrol => Some(2),
            _ => None,
        }
    }

    /// How many permits the last in the queue wants.
    pub(crate) fn last_wants(self) -> u64 {
        if self == Self::Collect { 2 } else { 1 }
    }

    /// Whether the last one waits already when the victim starts.
    pub(crate) fn comes_after_the_last(self) -> bool {
        matches!(self, Self::Enqueue | Self::GiveUp)
    }

    /// Gets the victim to where it acts.
    pub(crate) fn prepare(self, set: &LimitSet, ask: &Ask) -> Has {
        // From here on it has a row.
        let nothing = Ask { tokens: 0, bytes: 0, connections: 0 };
        set.try_acquire(nothing.request()).unwrap().release().unwrap();
        match self {
            Self::Release | Self::Refund | Self::Reconfigure => {
                let mut held = set.try_acquire(ask.request()).unwrap();
                held.settle("bytes", ask.bytes).unwrap();
                Has::Held(held)
            }
            Self::Collect | Self::Cancel | Self::CancelGranted => Has::Asked(ask_for(set, ask)),
            _ => Has::Nothing,
        }
    }

    /// Does it. Nothing is given back afterwards.
    pub(crate) fn perform(self, set: &LimitSet, ask: &Ask, has: Has) {
        match (self, has) {
            (Self::Enqueue, _) => std::mem::forget(ask_for(set, ask)),
            (Self::GiveUp, _) => {
                let late = set.acquire_timeout(ask.request(), Duration::ZERO);
                assert!(matches!(late, Err(AcquireError::TimedOut(_))));
            }
            (Self::Release, Has::Held(held)) => held.release().unwrap(),
            (Self::Refund, Has::Held(mut held)) => {
                held.update("tokens", 1).unwrap();
                std::mem::forget(held);
            }
            (Self::Reconfigure, has) => {
                set.reconfigure([ResourceLimit::new("connections", 2 * PERMITS)]).unwrap();
                std::mem::forget(has);
            }
            (Self::Advance, _) => set.advance(A_WHILE).unwrap(),
            (Self::Collect, Has::Asked(asked)) => std::mem::forget(wait_for(asked)),
            (Self::Cancel | Self::CancelGranted, Has::Asked(asked)) => drop(asked),
            (Self::Reap | Self::ReapGranted, _) => {
                set.reap().unwrap();
            }
            (act, _) => panic!("{act:?} was prepared otherwise"),
        }
    }
}

/// What a victim has before it acts.
pub(crate) enum Has {
    Nothing,
    Held(Acquisition),
    Asked(Pin<Box<AcquireFuture>>),
}

/// Joins the queue: whoever asks here cannot have it at once.
pub(crate) fn ask_for(set: &LimitSet, ask: &Ask) -> Pin<Box<AcquireFuture>> {
    let mut asked = Box::pin(set.acquire_async(ask.request()));
    assert!(asked.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    asked
}

/// Polls until it is there: as soon as the helper thread has heard the doorbell.
fn wait_for(mut asked: Pin<Box<AcquireFuture>>) -> Acquisition {
    loop {
        match asked.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(held) => return held.unwrap(),
            Poll::Pending => std::thread::yield_now(),
        }
    }
}

/// Does the act elsewhere, so that later there is no first-time work of loader and runtime. Leaves a future waiting,
/// which keeps the helper thread there.
pub(crate) fn rehearse(act: Act) {
    let set = builder(NO_SLICE).in_memory().unwrap();
    let all = Ask { tokens: 1, bytes: 1, connections: PERMITS };
    let holder = act.mover_holds().map(|_| set.try_acquire(all.request()).unwrap());
    let has = act.prepare(&set, &all);
    if act.mover_releases() {
        drop(holder);
    } else {
        std::mem::forget(holder);
    }
    act.perform(&set, &all, has);
    let other = builder(NO_SLICE).in_memory().unwrap();
    std::mem::forget(other.try_acquire(all.request()).unwrap());
    std::mem::forget(ask_for(&other, &all));
}
