//! Pools: several sets behind a balancer, for regions and accounts.

mod description;
mod source;
mod waiting;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use thiserror::Error;

pub use self::description::{BadDescription, PoolDescription};
pub use self::source::{AnyLimits, Sharing};
use crate::api::acquire::try_now;
use crate::api::acquisition::Acquisition;
use crate::api::builder::OpenError;
use crate::api::error::AcquireError;
use crate::api::request::Request;
use crate::api::set::LimitSet;
use crate::code::Code;
use crate::segment::error::AttachError;
use crate::shared::events;
use crate::shared::stats::Stats;
use crate::sys::clock;

/// Which set of a pool a request goes to first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Balance {
    /// The sets in turn, each worker starting with another one. A request goes only to the set whose turn it is.
    #[default]
    RoundRobin,
    /// A random set. A request goes only to that set.
    Random,
    /// The first set with room, from the worker's own position on. If no set has room, the set that expects room
    /// first; if no set can tell, the first one.
    FirstFree,
}

impl Balance {
    const ALL: [Self; 3] = [Self::RoundRobin, Self::Random, Self::FirstFree];

    /// Returns the name of the balance in small letters.
    pub const fn name(self) -> &'static str {
        match self {
            Self::RoundRobin => "round_robin",
            Self::Random => "random",
            Self::FirstFree => "first_free",
        }
    }
}

/// Several sets behind a balancer. The balancer is private to this value and its clones; the sets are shared as usual.
///
/// ```
/// use limitset::{Balance, CallLimit, LimitPool, LimitSet};
///
/// let region = |name: &str| {
///     LimitSet::builder().limit(CallLimit::per_minute(1)).config("region", name).in_memory()
/// };
/// let pool = LimitPool::new([region("eu")?, region("us")?])?.balance(Balance::FirstFree);
/// assert_eq!(pool.try_acquire(())?.config()["region"], "eu");
/// let held = pool.try_acquire(())?;
/// assert_eq!((held.pool_index(), held.config()["region"].as_str()), (Some(1), "us"));
/// assert!(pool.try_acquire(()).is_err());
/// # drop(held);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct LimitPool {
    sets: Arc<[LimitSet]>,
    balance: Balance,
    worker: usize,
    counters: Arc<Counters>,
}

/// The state of a balancer, which is not shared with other workers.
struct Counters {
    turn: AtomicU64,
    random: AtomicU64,
    sets: Box<[SetCounters]>,
}

#[derive(Default)]
struct SetCounters {
    granted: AtomicU64,
    refused: AtomicU64,
    skipped: AtomicU64,
}

/// Why a pool could not be made or described.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PoolError {
    /// The list of sets is empty.
    #[error("cannot make a pool of 0 sets: pass a set without limits if there is nothing to limit")]
    NoSets,
    /// A set in private memory cannot be shared by processes.
    #[error(
        "cannot share set {index} between processes: it lives in private memory and would be another set in every \
         process; open it by name, or anonymous"
    )]
    ThreadMode {
        /// The position of the set in the pool.
        index: usize,
    },
    /// Another process cannot find a set without a name.
    #[error(
        "cannot describe set {index}: it has no name by which another process could find it; open it by name"
    )]
    NoName {
        /// The position of the set in the pool.
        index: usize,
    },
    /// A set could not be created.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// This process could not attach to a set.
    #[error(transparent)]
    Attach(#[from] AttachError),
}

impl PoolError {
    /// Returns the stable code of this error.
    pub fn code(&self) -> Code {
        match self {
            Self::NoSets => Code::NoSets,
            Self::ThreadMode { .. } => Code::NotShared,
            Self::NoName { .. } => Code::NoName,
            Self::Open(error) => error.code(),
            Self::Attach(error) => error.code(),
        }
    }
}

impl LimitPool {
    /// Makes a pool of these sets, in this order.
    ///
    /// # Errors
    ///
    /// [`PoolError::NoSets`] if the list is empty.
    pub fn new(sets: impl IntoIterator<Item = LimitSet>) -> Result<Self, PoolError> {
        let sets: Arc<[LimitSet]> = sets.into_iter().collect();
        if sets.is_empty() {
            return Err(PoolError::NoSets);
        }
        let counters = Arc::new(Counters::new(sets.len()));
        Ok(Self { sets, balance: Balance::default(), worker: 0, counters })
    }

    /// Sets which set a request goes to first: [`Balance::RoundRobin`] unless set.
    #[must_use]
    pub fn balance(mut self, balance: Balance) -> Self {
        self.balance = balance;
        self
    }

    /// Returns a pool of the same sets for a worker, with a balancer of its own that starts at the worker's position.
    #[must_use]
    pub fn for_worker(&self, index: usize) -> Self {
        let counters = Arc::new(Counters::new(self.sets.len()));
        Self { sets: self.sets.clone(), balance: self.balance, worker: index, counters }
    }

    /// Acquires from one of the sets if it has room now; see [`LimitSet::try_acquire`].
    ///
    /// # Errors
    ///
    /// The error of the set that the request went to; by [`Balance::FirstFree`], of the set that expects room first. A
    /// set that was removed is skipped; [`AcquireError::Removed`] if all of them were removed.
    pub fn try_acquire<'r>(&self, request: impl Into<Request<'r>>) -> Result<Acquisition, AcquireError> {
        let request = request.into();
        match self.balance {
            Balance::FirstFree => self.first_free(&request).map_err(|(_, refusal)| refusal),
            _ => self.in_turn(|set| try_now(set, &request, LimitSet::clone)),
        }
    }

    /// Acquires from one of the sets, waiting for it if need be; see [`LimitSet::acquire`].
    ///
    /// # Errors
    ///
    /// As [`try_acquire`](Self::try_acquire), for errors that waiting does not help.
    pub fn acquire<'r>(&self, request: impl Into<Request<'r>>) -> Result<Acquisition, AcquireError> {
        self.wait(&request.into(), |set, request| set.acquire(request))
    }

    /// Acquires from one of the sets, waiting for at most `timeout`; see [`acquire`](Self::acquire).
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), and [`AcquireError::TimedOut`].
    pub fn acquire_timeout<'r>(
        &self,
        request: impl Into<Request<'r>>,
        timeout: Duration,
    ) -> Result<Acquisition, AcquireError> {
        let deadline = clock::deadline(timeout);
        self.wait(&request.into(), |set, request| {
            let left = Duration::from_nanos(deadline.saturating_sub(clock::monotonic()));
            set.acquire_timeout(request, left)
        })
    }

    fn wait(
        &self,
        request: &Request<'_>,
        wait: impl Fn(&LimitSet, Request<'_>) -> Result<Acquisition, AcquireError>,
    ) -> Result<Acquisition, AcquireError> {
        if self.balance != Balance::FirstFree {
            return self.in_turn(|set| wait(set, request.clone()));
        }
        loop {
            let index = match self.first_free(request) {
                Err((index, refusal)) if is_worth_waiting(&refusal) => index,
                answer => return answer.map_err(|(_, refusal)| refusal),
            };
            let set = self.sets.get(index).ok_or(AcquireError::Removed)?;
            // If the set was removed during the wait, the next round skips it.
            if let Some(answer) = self.counted(index, wait(set, request.clone())) {
                return answer;
            }
        }
    }

    /// Sends the request to the set whose turn it is, and to the next one only if that set was removed.
    fn in_turn(
        &self,
        ask: impl Fn(&LimitSet) -> Result<Acquisition, AcquireError>,
    ) -> Result<Acquisition, AcquireError> {
        for index in self.turns() {
            if let Some(set) = self.sets.get(index)
                && let Some(answer) = self.counted(index, ask(set))
            {
                return answer;
            }
        }
        Err(AcquireError::Removed)
    }

    /// Tries the sets in order until one grants the request. Otherwise returns the error of the set that expects room
    /// first, with its position.
    fn first_free(&self, request: &Request<'_>) -> Result<Acquisition, (usize, AcquireError)> {
        let mut best: Option<(usize, AcquireError)> = None;
        for index in self.turns() {
            let Some(set) = self.sets.get(index) else { continue };
            match self.counted(index, try_now(set, request, LimitSet::clone)) {
                None => {}
                Some(Ok(acquisition)) => return Ok(acquisition),
                Some(Err(refusal))
                    if best.as_ref().is_some_and(|(_, best)| !opens_before(&refusal, best)) => {}
                Some(Err(refusal)) => best = Some((index, refusal)),
            }
        }
        Err(best.unwrap_or((0, AcquireError::Removed)))
    }

    /// Returns all positions once, starting with the set whose turn it is.
    fn turns(&self) -> impl Iterator<Item = usize> + use<> {
        let count = self.sets.len();
        let start = match self.balance {
            Balance::RoundRobin => self.counters.turn.fetch_add(1, Relaxed).wrapping_add(self.worker as u64),
            Balance::Random => self.counters.random(),
            Balance::FirstFree => self.worker as u64,
        };
        // The remainder is less than `count`, which is a usize.
        let start = usize::try_from(start % count.max(1) as u64).unwrap_or(0);
        (0..count).map(move |step| (start + step) % count)
    }

    /// Counts the answer of a set and returns it; `None` if the set was removed.
    fn counted(
        &self,
        index: usize,
        answer: Result<Acquisition, AcquireError>,
    ) -> Option<Result<Acquisition, AcquireError>> {
        let counters = self.counters.sets.get(index)?;
        match answer {
            Ok(mut acquisition) => {
                counters.granted.fetch_add(1, Relaxed);
                acquisition.set_pool_index(index);
                Some(Ok(acquisition))
            }
            Err(AcquireError::Removed) => {
                counters.skipped.fetch_add(1, Relaxed);
                if let Some(set) = self.sets.get(index) {
                    events::skipped(set.shared(), index);
                }
                None
            }
            Err(refusal) => {
                counters.refused.fetch_add(1, Relaxed);
                Some(Err(refusal))
            }
        }
    }

    /// Returns the set at a position.
    pub fn get(&self, index: usize) -> Option<&LimitSet> {
        self.sets.get(index)
    }

    /// Returns the sets, in order.
    pub fn sets(&self) -> &[LimitSet] {
        &self.sets
    }

    /// Returns the number of sets, which is never 0.
    #[expect(clippy::len_without_is_empty, reason = "a pool is never empty")]
    pub fn len(&self) -> usize {
        self.sets.len()
    }

    /// Returns the number of the worker that this pool's balancer belongs to.
    pub fn worker(&self) -> usize {
        self.worker
    }

    /// Returns the statistics of the sets and of the balancer.
    ///
    /// It never fails as a whole: a set that cannot be read has its error in [`PoolSetStats::set`].
    pub fn stats(&self) -> PoolStats {
        let sets = self.sets.iter().zip(&self.counters.sets).map(|(set, counters)| PoolSetStats {
            set: set.stats(),
            granted: counters.granted.load(Relaxed),
            refused: counters.refused.load(Relaxed),
            skipped: counters.skipped.load(Relaxed),
        });
        PoolStats { balance: self.balance, worker: self.worker, sets: sets.collect() }
    }

    /// Returns the description by which another process makes the same pool.
    ///
    /// # Errors
    ///
    /// [`PoolError::NoName`] if a set has no name by which other processes could find it.
    pub fn describe(&self) -> Result<PoolDescription, PoolError> {
        let names = self
            .sets
            .iter()
            .enumerate()
            .map(|(index, set)| set.segment().name().ok_or(PoolError::NoName { index }));
        Ok(PoolDescription { names: names.collect::<Result<_, _>>()?, balance: self.balance })
    }
}

/// Returns whether the same request may succeed later.
fn is_worth_waiting(refusal: &AcquireError) -> bool {
    use AcquireError::{CoolingDown, Denied, Queued};
    matches!(refusal, Denied(_) | Queued { .. } | CoolingDown { .. })
}

/// The assumed time until a permit is released, which no set can tell. It is longer than the wait for a rate that
/// refills in a moment, and shorter than a pause may be.
const A_HOLD: Duration = Duration::from_secs(1);

/// Returns whether the set that gave the first answer expects room before the set that gave the other one.
fn opens_before(refusal: &AcquireError, other: &AcquireError) -> bool {
    match (is_worth_waiting(refusal), is_worth_waiting(other)) {
        (true, true) => refusal.retry_after().unwrap_or(A_HOLD) < other.retry_after().unwrap_or(A_HOLD),
        (ours, theirs) => ours && !theirs,
    }
}

impl Counters {
    fn new(sets: usize) -> Self {
        let [seed, _] = bytemuck::cast::<_, [u64; 2]>(clock::random());
        Self {
            turn: AtomicU64::new(0),
            random: AtomicU64::new(seed),
            sets: (0..sets).map(|_| SetCounters::default()).collect(),
        }
    }

    /// Returns a random number: a counter whose steps are mixed (splitmix64), so that threads share it without a lock.
    fn random(&self) -> u64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut mixed = self.random.fetch_add(STEP, Relaxed).wrapping_add(STEP);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// The statistics of a pool at one moment.
#[derive(Debug)]
#[non_exhaustive]
pub struct PoolStats {
    /// How the pool balances.
    pub balance: Balance,
    /// The worker that the balancer belongs to.
    pub worker: usize,
    /// The sets, in order.
    pub sets: Vec<PoolSetStats>,
}

/// The statistics of one set of a pool. The counts are those of this pool and its clones, not of other workers.
#[derive(Debug)]
#[non_exhaustive]
pub struct PoolSetStats {
    /// The statistics of the set, or why it could not be read.
    pub set: Result<Stats, crate::api::error::ManageError>,
    /// How many requests the set granted.
    pub granted: u64,
    /// How many requests the set denied or failed.
    pub refused: u64,
    /// How often the set was skipped because it was removed.
    pub skipped: u64,
}

impl fmt::Debug for LimitPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LimitPool")
            .field("balance", &self.balance)
            .field("worker", &self.worker)
            .field("sets", &self.sets)
            .finish()
    }
}
