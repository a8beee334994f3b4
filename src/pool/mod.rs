//! Balance: several sets behind one front, for regions and accounts.

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
use crate::acquisition::Acquisition;
use crate::answer::AcquireError;
use crate::builder::OpenError;
use crate::error::AttachError;
use crate::events;
use crate::observe::Stats;
use crate::request::Request;
use crate::set::LimitSet;
use crate::sys::clock;

/// Which set of a pool is asked first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Balance {
    /// One after the other, each worker beginning with another one. Only the set whose turn it is is asked.
    #[default]
    RoundRobin,
    /// Any. Only that set is asked.
    Random,
    /// The first that has room, from the worker's own position on. If none has, the one that says it will have room
    /// first; where none can say, the first.
    FirstFree,
}

impl Balance {
    const ALL: [Self; 3] = [Self::RoundRobin, Self::Random, Self::FirstFree];

    /// Its name in small letters.
    pub const fn name(self) -> &'static str {
        match self {
            Self::RoundRobin => "round_robin",
            Self::Random => "random",
            Self::FirstFree => "first_free",
        }
    }
}

/// Several sets behind a balancer. The balancer is private to this value and its clones; the sets are shared as they
/// always are.
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

/// What the balancer knows: nothing that another worker would have to know.
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

/// Why there is no pool.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PoolError {
    /// There is nothing to balance.
    #[error("a pool needs at least one set: give it an empty one if there is nothing to limit")]
    NoSets,
    /// A set in private memory cannot be shared by processes.
    #[error(
        "set {index} lives in private memory and would be another set in every process: open it by name, or anonymous"
    )]
    ThreadMode {
        /// Its position.
        index: usize,
    },
    /// A set without a name cannot be found by another process.
    #[error("set {index} has no name by which another process could find it: open it by name")]
    NoName {
        /// Its position.
        index: usize,
    },
    /// A set could not be made.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A set could not be attached to.
    #[error(transparent)]
    Attach(#[from] AttachError),
}

impl LimitPool {
    /// A pool of these sets, in this order.
    ///
    /// # Errors
    ///
    /// [`PoolError::NoSets`] if there are none.
    pub fn new(sets: impl IntoIterator<Item = LimitSet>) -> Result<Self, PoolError> {
        let sets: Arc<[LimitSet]> = sets.into_iter().collect();
        if sets.is_empty() {
            return Err(PoolError::NoSets);
        }
        let counters = Arc::new(Counters::new(sets.len()));
        Ok(Self { sets, balance: Balance::default(), worker: 0, counters })
    }

    /// Which set is asked first: [`Balance::RoundRobin`] unless set.
    #[must_use]
    pub fn balance(mut self, balance: Balance) -> Self {
        self.balance = balance;
        self
    }

    /// The same sets for a worker, with a balancer of its own that begins at the worker's position.
    #[must_use]
    pub fn for_worker(&self, index: usize) -> Self {
        let counters = Arc::new(Counters::new(self.sets.len()));
        Self { sets: self.sets.clone(), balance: self.balance, worker: index, counters }
    }

    /// Acquires from one of the sets if it has room now; see [`LimitSet::try_acquire`].
    ///
    /// # Errors
    ///
    /// What the set that was asked answered; by [`Balance::FirstFree`], the one that will have room first. A set that
    /// was removed is skipped; [`AcquireError::Removed`] if all of them were.
    pub fn try_acquire<'r>(&self, request: impl Into<Request<'r>>) -> Result<Acquisition, AcquireError> {
        let request = request.into();
        match self.balance {
            Balance::FirstFree => self.first_free(&request).map_err(|(_, refusal)| refusal),
            _ => self.in_turn(|set| set.try_request(&request, LimitSet::clone)),
        }
    }

    /// Acquires from one of the sets, waiting for it if need be; see [`LimitSet::acquire`].
    ///
    /// # Errors
    ///
    /// As [`try_acquire`](Self::try_acquire), if waiting is of no use.
    pub fn acquire<'r>(&self, request: impl Into<Request<'r>>) -> Result<Acquisition, AcquireError> {
        self.wait(&request.into(), |set, request| set.acquire(request))
    }

    /// As [`acquire`](Self::acquire), for at most `timeout`.
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
            // One that is removed while we wait for it is found to be so in the next round.
            if let Some(answer) = self.counted(index, wait(set, request.clone())) {
                return answer;
            }
        }
    }

    /// Asks the set whose turn it is, and others only if it was removed.
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

    /// Asks one after the other until one grants; else the refusal of the one that will have room first.
    fn first_free(&self, request: &Request<'_>) -> Result<Acquisition, (usize, AcquireError)> {
        let mut best: Option<(usize, AcquireError)> = None;
        for index in self.turns() {
            let Some(set) = self.sets.get(index) else { continue };
            match self.counted(index, set.try_request(request, LimitSet::clone)) {
                None => {}
                Some(Ok(acquisition)) => return Ok(acquisition),
                Some(Err(refusal))
                    if best.as_ref().is_some_and(|(_, best)| !opens_before(&refusal, best)) => {}
                Some(Err(refusal)) => best = Some((index, refusal)),
            }
        }
        Err(best.unwrap_or((0, AcquireError::Removed)))
    }

    /// All positions once, from the one whose turn it is.
    fn turns(&self) -> impl Iterator<Item = usize> + use<> {
        let count = self.sets.len();
        let start = match self.balance {
            Balance::RoundRobin => self.counters.turn.fetch_add(1, Relaxed).wrapping_add(self.worker as u64),
            Balance::Random => self.counters.random(),
            Balance::FirstFree => self.worker as u64,
        };
        // Less than `count`, which is a usize.
        let start = usize::try_from(start % count.max(1) as u64).unwrap_or(0);
        (0..count).map(move |step| (start + step) % count)
    }

    /// Counts an answer; none if the set was removed.
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
                    events::skipped(set, index);
                }
                None
            }
            Err(refusal) => {
                counters.refused.fetch_add(1, Relaxed);
                Some(Err(refusal))
            }
        }
    }

    /// The set at a position.
    pub fn get(&self, index: usize) -> Option<&LimitSet> {
        self.sets.get(index)
    }

    /// The sets, in order.
    pub fn sets(&self) -> &[LimitSet] {
        &self.sets
    }

    /// How many sets there are: never 0.
    #[expect(clippy::len_without_is_empty, reason = "it never is")]
    pub fn len(&self) -> usize {
        self.sets.len()
    }

    /// The worker that this pool's balancer belongs to.
    pub fn worker(&self) -> usize {
        self.worker
    }

    /// The sets and the balancer at this moment.
    ///
    /// # Errors
    ///
    /// None for the pool; a set that cannot be read has its error in its place.
    pub fn stats(&self) -> PoolStats {
        let sets = self.sets.iter().zip(&self.counters.sets).map(|(set, counters)| PoolSetStats {
            set: set.stats(),
            granted: counters.granted.load(Relaxed),
            refused: counters.refused.load(Relaxed),
            skipped: counters.skipped.load(Relaxed),
        });
        PoolStats { balance: self.balance, worker: self.worker, sets: sets.collect() }
    }

    /// What another process needs to make the same pool.
    ///
    /// # Errors
    ///
    /// [`PoolError::NoName`] if a set cannot be found by other processes.
    pub fn describe(&self) -> Result<PoolDescription, PoolError> {
        let names = self
            .sets
            .iter()
            .enumerate()
            .map(|(index, set)| set.segment().name().ok_or(PoolError::NoName { index }));
        Ok(PoolDescription { names: names.collect::<Result<_, _>>()?, balance: self.balance })
    }
}

/// Whether the same request may succeed later.
fn is_worth_waiting(refusal: &AcquireError) -> bool {
    use AcquireError::{CoolingDown, Denied, Queued};
    matches!(refusal, Denied(_) | Queued { .. } | CoolingDown { .. })
}

/// How long somebody holds a permit, when nobody can say: so long that a rate which refills in a moment is better, and
/// not as long as a pause may be.
const A_HOLD: Duration = Duration::from_secs(1);

/// Whether whoever gave this refusal will have room before the other, as far as both can say.
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

    /// A random number: a counter whose steps are mixed (splitmix64), so that threads share it without a lock.
    fn random(&self) -> u64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut mixed = self.random.fetch_add(STEP, Relaxed).wrapping_add(STEP);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// A pool at one moment.
#[derive(Debug)]
#[non_exhaustive]
pub struct PoolStats {
    /// How it balances.
    pub balance: Balance,
    /// The worker that the balancer belongs to.
    pub worker: usize,
    /// The sets, in order.
    pub sets: Vec<PoolSetStats>,
}

/// A set of a pool at one moment. The counts are of this pool and its clones, not of other workers.
#[derive(Debug)]
#[non_exhaustive]
pub struct PoolSetStats {
    /// The set itself, or why it could not be read.
    pub set: Result<Stats, crate::answer::ManageError>,
    /// How often it granted.
    pub granted: u64,
    /// How often it refused.
    pub refused: u64,
    /// How often it was skipped because it was removed.
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
