//! What the healthy find after a death, and how they go on.

use std::cell::RefCell;
use std::time::Instant;

use limitset::protocol::{Block, Env, Locked, NEVER, Participant};
use limitset::{Acquisition, LimitSet, LimitStats, SetObserver, Stats};

use crate::acts::{Act, Amounts, Which};
use crate::mutant::{Mutant, Mutation};
use crate::stepped::Tally;
use crate::support::TempName;

/// Words of the set that are statistics, and that of a limit which is: no journal restores them. The numbers are
/// those of docs/format.md.
const STATISTICS: std::ops::Range<usize> = 18..22;
const FIRST_LIMIT: usize = 32;
const LIMIT_STRIDE: usize = 8;
const DENIED: usize = 5;

/// A healthy participant, and an observer beside it who may not write.
pub(crate) struct Side {
    pub(crate) set: LimitSet,
    pub(crate) observer: SetObserver,
    pub(crate) held: RefCell<Vec<Acquisition>>,
}

/// A set at one instant, and every word of it that the journal guards.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Found {
    pub(crate) words: Vec<u64>,
    pub(crate) picture: Picture,
}

/// What a snapshot says of everything that the journal guards.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Picture {
    pub(crate) limits: Vec<LimitStats>,
    /// Who holds permits or owes reports.
    pub(crate) holders: Vec<(Participant, Amount, Amount)>,
}

type Amount = Vec<(String, u64)>;

impl Picture {
    pub(crate) fn of(stats: &Stats) -> Self {
        let mut limits = stats.limits.clone();
        limits.iter_mut().for_each(|limit| limit.denied = 0);
        let holders =
            stats.participants.iter().filter(|it| !it.holds.is_empty() || !it.owes_reports.is_empty());
        let holders = holders.map(|it| (it.participant, it.holds.clone(), it.owes_reports.clone()));
        Self { limits, holders: holders.collect() }
    }

    /// What all but `me` hold and owe of a limit.
    fn of_others(&self, me: Option<Participant>, key: &str) -> (u64, u64) {
        let of_key =
            |amounts: &Amount| amounts.iter().find(|(it, _)| it == key).map_or(0, |(_, amount)| *amount);
        let others = self.holders.iter().filter(|(who, ..)| Some(*who) != me);
        others.fold((0, 0), |(held, owed), (_, holds, owes)| (held + of_key(holds), owed + of_key(owes)))
    }

    /// How many reports are owed of a limit.
    pub(crate) fn owed(&self, key: &str) -> u64 {
        self.of_others(None, key).1
    }

    /// The limits once all but `me` are dead and cleaned up after.
    fn without_others(&self, me: Option<Participant>) -> Vec<LimitStats> {
        let mut limits = self.limits.clone();
        for limit in &mut limits {
            let (held, owed) = self.of_others(me, &limit.key);
            limit.unreported += owed;
            if limit.window.is_none() {
                limit.in_use -= held;
                limit.available = limit.capacity.saturating_sub(limit.in_use);
            }
        }
        limits
    }

    /// Totals equal holders.
    pub(crate) fn is_balanced(&self) -> bool {
        let permits = self.limits.iter().filter(|limit| limit.window.is_none());
        permits.into_iter().all(|limit| limit.in_use == self.of_others(None, &limit.key).0)
    }

    /// The limits once everybody is dead and cleaned up after: whoever reaps, and however far it gets, this stays.
    pub(crate) fn without_holders(&self) -> Vec<LimitStats> {
        self.without_others(None)
    }

    /// Whether the limits are as predicted.
    pub(crate) fn agrees(&self, predicted: &[LimitStats], act: Act) -> bool {
        let forget = |limits: &[LimitStats]| {
            let mut limits = limits.to_vec();
            if act.is_up_to_the_algorithm() {
                for limit in limits.iter_mut().filter(|limit| limit.window.is_some()) {
                    (limit.available, limit.in_use, limit.debt) = (0, 0, 0);
                }
            }
            limits
        };
        forget(&self.limits) == forget(predicted)
    }
}

impl Side {
    pub(crate) fn create(which: Which, name: &TempName) -> Self {
        Self::new(which.builder().create(name).unwrap(), name)
    }

    pub(crate) fn attach(which: Which, name: &TempName) -> Self {
        Self::new(which.builder().attach(name).unwrap(), name)
    }

    fn new(set: LimitSet, name: &TempName) -> Self {
        assert_eq!(set.segment().participant().unwrap().slot, 1);
        Self { set, observer: LimitSet::observe(name).unwrap(), held: RefCell::default() }
    }

    fn guarded(&self, mut words: Vec<u64>) -> Vec<u64> {
        words[STATISTICS].fill(0);
        for limit in 0..self.set.limits().len() {
            words[FIRST_LIMIT + limit * LIMIT_STRIDE + DENIED] = 0;
        }
        words
    }

    /// First looks as an observer who may not write, then takes the lock, as anybody would at the next use. Both must
    /// show the same. `defect` is one of the world that the lock is taken in.
    pub(crate) fn recover(&self, tally: &mut Tally, defect: Option<Mutation>) -> Found {
        let seen = self.observer.stats().map(|stats| Picture::of(&stats));
        let (block, _) = self.set.segment().state_block().unwrap();
        let seen_words = block.snapshot(1_000).map(|words| self.guarded(words));
        let me = self.set.segment().participant().unwrap();
        let words = match defect {
            None => locked_words(block, me, tally),
            Some(defect) => {
                let found = locked_words(Mutant::new(block, &[], defect).block(), me, tally);
                // Who comes without a defect makes whole what this one left: else nobody could look at it.
                locked_words(block, me, &mut Tally::default());
                found
            }
        };
        let words = self.guarded(words);
        let picture = Picture::of(&self.set.stats().unwrap());
        tally
            .whole(seen_words.as_ref() == Ok(&words), || format!("seen {seen_words:?}, recovered {words:?}"));
        tally.whole(seen.as_ref().ok() == Some(&picture), || format!("seen {seen:?}, recovered {picture:?}"));
        tally.whole(picture.is_balanced(), || format!("totals do not equal holders: {picture:?}"));
        tally.points += 1;
        Found { words, picture }
    }

    /// Reaps dead participants, and checks that the set still works.
    pub(crate) fn go_on(&self, which: Which, found: &Picture, tally: &mut Tally) {
        let me = self.set.segment().participant().unwrap();
        self.set.reap().unwrap();
        let reaped = self.picture();
        let expected = found.without_others(Some(me));
        let is_back = reaped.limits == expected && reaped.holders.iter().all(|(who, ..)| *who == me);
        tally.returned(is_back, || format!("{reaped:?} instead of {expected:?} after {found:?}"));

        self.held.borrow_mut().clear();
        self.set.reset().unwrap();
        let before = self.picture();
        let amounts = Amounts::of(tally.points);
        let mut held = self.set.try_acquire(which.request(&amounts).as_slice()).unwrap();
        let taken = self.picture();
        let expected = Act::Take.predict(which, &amounts, &before.limits);
        tally.whole(taken.limits == expected, || format!("{taken:?} instead of {expected:?}"));
        held.settle("tokens", 1).unwrap();
        held.release().unwrap();
        let after = self.picture();
        tally.returned(after.holders.is_empty() && after.is_balanced(), || {
            format!("held at the end: {after:?}")
        });
    }

    pub(crate) fn picture(&self) -> Picture {
        Picture::of(&self.set.stats().unwrap())
    }
}

/// Attaches after all others have died, to a segment without participants.
pub(crate) fn inherit(which: Which, name: &TempName, left: &Picture, tally: &mut Tally) {
    let heir = Side::attach(which, name).picture();
    let expected = left.without_holders();
    tally.whole(heir.limits == expected, || format!("inherited {heir:?} instead of {expected:?}"));
    tally.returned(heir.holders.is_empty(), || format!("inherited with holders: {heir:?}"));
}

fn locked_words<E: Env>(block: Block<'_, E>, me: Participant, tally: &mut Tally) -> Vec<u64> {
    let start = Instant::now();
    let locked = block.lock(me, NEVER).unwrap();
    tally.worst_wait = tally.worst_wait.max(start.elapsed());
    tally.steals += u64::from(matches!(locked, Locked::OwnerDied(_)));
    let guard = locked.guard();
    let words = (0..block.words.len()).map(|index| guard.get(index).unwrap()).collect();
    guard.unlock().unwrap();
    words
}
