//! What the healthy find after a death, and how they and their own waiter go on.

use std::time::Instant;

use limitset::core::Participant;
use limitset::engine::{Charge, Engine};
use limitset::{LimitSet, LimitStats, ResourceLimit, SetObserver, Stats};

use crate::acts::{self, A_WHILE, Act, Ask, NO_SLICE, PERMITS};
use crate::hands::{self, Waits, locked_words};
use crate::mutant::{Mutant, Mutation};
use crate::queue::{BYTES, Bells, CONNECTIONS, GRANTED, LIMITS, WAITERS, WAITING, Words};
use crate::stepped::Tally;
use crate::support::TempName;

/// A healthy participant, and an observer beside it who may not write.
pub(crate) struct Side {
    pub(crate) set: LimitSet,
    pub(crate) observer: SetObserver,
}

/// What a healthy participant has in the scene: the same in the original as in every copy.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mine {
    pub(crate) held: Option<Vec<Charge>>,
    pub(crate) waits: Option<Waits>,
}

/// A set at one instant.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) words: Words,
    pub(crate) limits: Vec<LimitStats>,
}

/// How things were before the victim acted.
pub(crate) struct Before {
    pub(crate) words: Words,
    pub(crate) bells: Bells,
}

impl Before {
    pub(crate) fn of(side: &Side) -> Self {
        Self { words: side.words(), bells: Bells::of(&side.set) }
    }
}

fn limits_of(stats: &Stats) -> Vec<LimitStats> {
    let mut limits = stats.limits.clone();
    limits.iter_mut().for_each(|limit| limit.denied = 0);
    limits
}

impl Side {
    pub(crate) fn create(name: &TempName) -> Self {
        Self::new(acts::builder(NO_SLICE).create(name).unwrap(), name)
    }

    pub(crate) fn attach(name: &TempName) -> Self {
        Self::new(acts::builder(NO_SLICE).attach(name).unwrap(), name)
    }

    fn new(set: LimitSet, name: &TempName) -> Self {
        Self { set, observer: LimitSet::observe(name).unwrap() }
    }

    pub(crate) fn me(&self) -> Participant {
        self.set.segment().participant().unwrap()
    }

    /// The words as they are when nobody is at them.
    pub(crate) fn words(&self) -> Words {
        let (block, _) = self.set.segment().state_block().unwrap();
        Words::new(&self.set, block.snapshot(1_000).unwrap())
    }

    /// First looks as an observer who may not write, then takes the lock, as anybody would at the next use. Both must
    /// show the same. `defect` is one of the world that the lock is taken in.
    pub(crate) fn recover(&self, before: &Before, tally: &mut Tally, defect: Option<Mutation>) -> Found {
        let seen = self.observer.stats().map(|stats| (limits_of(&stats), stats.waiters));
        let (block, _) = self.set.segment().state_block().unwrap();
        let seen_words = block.snapshot(1_000).map(|words| Words::new(&self.set, words));
        let parts = self.set.parts().unwrap();
        let start = Instant::now();
        let (words, is_stolen) = match defect {
            None => locked_words(&parts, self.me()),
            Some(defect) => {
                let mutant = Mutant::new(parts.block, &[], defect);
                let engine = Engine::new(mutant.block(), parts.waiters.with_env(), parts.table);
                let found = locked_words(&engine, self.me());
                // Who comes without a defect makes whole what this one left: else nobody could look at it.
                locked_words(&parts, self.me());
                found
            }
        };
        tally.worst_wait = tally.worst_wait.max(start.elapsed());
        tally.steals += u64::from(is_stolen);
        tally.points += 1;
        let words = Words::new(&self.set, words);
        tally
            .whole(seen_words.as_ref() == Ok(&words), || format!("seen {seen_words:?}, recovered {words:?}"));
        self.check(&words, tally);
        // Whoever recovers the lock has handed out what the dead one had made room for, and rung.
        let served = self.words();
        self.check(&served, tally);
        let rings = served.check_rings(&self.set, &before.words, &before.bells);
        tally.whole(rings.is_ok(), || format!("{rings:?}"));
        let stats = self.set.stats().unwrap();
        let shown = (limits_of(&stats), stats.waiters);
        if served.are(&words) {
            tally.whole(seen.as_ref().ok() == Some(&shown), || format!("seen {seen:?}, recovered {shown:?}"));
        }
        Found { words, limits: seen.map_or(shown.0, |(limits, _)| limits) }
    }

    fn check(&self, words: &Words, tally: &mut Tally) {
        let checked = words.check();
        tally.whole(checked.is_ok(), || format!("{checked:?}: {words:?}"));
    }

    // ---- what a healthy one does ----

    pub(crate) fn hold(&self, ask: &Ask) -> Vec<Charge> {
        hands::hold(&self.set, &ask.wants())
    }

    /// Joins the queue as `acquire` does; none if there is no room.
    pub(crate) fn wait(&self, ask: &Ask) -> Option<Waits> {
        hands::wait(&self.set, ask.wants())
    }

    pub(crate) fn leave(&self, waits: &Waits) {
        hands::leave(&self.set, waits);
    }

    /// Reports, and releases or cancels.
    pub(crate) fn finish(&self, charges: &[Charge], cancel: bool) {
        hands::finish(&self.set, charges, cancel);
    }

    /// What a sleeper does: looks if it was rung. Gives what it was granted.
    pub(crate) fn look(&self, waits: &mut Waits) -> Option<Vec<Charge>> {
        hands::look(&self.set, waits)
    }

    // ---- how it goes on ----

    /// Returns what the dead held; whoever healthy waits must get through. Then sees whether the set still works.
    pub(crate) fn go_on(&self, act: Act, found: &Found, mut mine: Mine, tally: &mut Tally) {
        let mut granted = mine.waits.as_mut().and_then(|waits| self.look(waits));
        let looked = self.words();
        self.check(&looked, tally);
        let expected = self.without_others(&looked);
        self.set.reap().unwrap();
        let reaped = self.words();
        self.check(&reaped, tally);
        let got = self.after_reaping(&looked, &reaped);
        tally.returned(got == expected, || {
            format!("{got:?} instead of {expected:?} in {reaped:?}, {found:?}")
        });
        let is_alone = reaped.entries.iter().all(|entry| entry.state == 0 || self.is_mine(entry.slot))
            && reaped.rows().all(|(slot, row)| self.is_mine(slot) || row[1..].iter().all(|word| *word == 0));
        tally.returned(is_alone, || format!("the dead are still there: {reaped:?}"));

        let mut go_to = |granted: &mut Option<Vec<Charge>>| {
            if granted.is_none() {
                *granted = mine.waits.as_mut().and_then(|waits| self.look(waits));
            }
        };
        go_to(&mut granted);
        if let Some(held) = &mine.held {
            self.finish(held, false);
            go_to(&mut granted);
        }
        if act.may_need_time() {
            self.set.advance(A_WHILE).unwrap();
            go_to(&mut granted);
        }
        let is_stranded = mine.waits.is_some() && granted.is_none();
        tally.returned(!is_stranded, || format!("stranded: {mine:?} in {:?} after {found:?}", self.words()));
        if is_stranded {
            return;
        }
        granted.iter().for_each(|charges| self.finish(charges, true));
        self.works(tally);
    }

    /// The same when the one who waited is through already.
    pub(crate) fn go_on_after_kill(&self, found: &Found, tally: &mut Tally) {
        self.go_on(Act::Release, found, Mine::default(), tally);
    }

    fn is_mine(&self, slot: u64) -> bool {
        slot == u64::from(self.me().slot)
    }

    /// Unreported, permits in use, and what is consumed of the rates, once all others are dead and cleaned up after.
    fn without_others(&self, words: &Words) -> (u64, u64, Vec<u64>) {
        let others = || words.in_state(GRANTED).filter(|entry| !self.is_mine(entry.slot));
        let owed: u64 =
            words.rows().filter(|(slot, _)| !self.is_mine(*slot)).map(|(_, row)| row[1 + BYTES]).sum();
        let not_collected = others().filter(|entry| entry.amounts[BYTES] > 0).count() as u64;
        let held = words.row(self.me().slot.into())[1 + CONNECTIONS];
        let rates = (0..CONNECTIONS)
            .map(|limit| words.consumed(limit) - others().map(|entry| entry.amounts[limit]).sum::<u64>());
        (words.unreported() + owed - not_collected, held, rates.collect())
    }

    /// The same, as it is now, without what was granted meanwhile.
    fn after_reaping(&self, before: &Words, words: &Words) -> (u64, u64, Vec<u64>) {
        let waited = |ticket: u64| before.in_state(WAITING).any(|entry| entry.ticket == ticket);
        let new = || words.in_state(GRANTED).filter(|entry| waited(entry.ticket));
        let amount = |limit: usize| new().map(|entry| entry.amounts[limit]).sum::<u64>();
        let rates = (0..CONNECTIONS).map(|limit| words.consumed(limit) - amount(limit));
        (words.unreported(), words.in_use() - amount(CONNECTIONS), rates.collect())
    }

    /// From a state of rest back to one, through everything that the queue can do.
    fn works(&self, tally: &mut Tally) {
        let rest = self.words();
        self.check(&rest, tally);
        tally.returned(rest.is_at_rest(), || format!("not at rest: {rest:?}"));
        if !rest.is_at_rest() {
            return;
        }
        self.set.advance(A_WHILE).unwrap();
        let all = Ask { tokens: 1, bytes: 1, connections: rest.capacity() };
        let one = Ask { tokens: 1, bytes: 1, connections: 1 };
        let held = self.hold(&all);
        let mut waiting: Vec<_> = (0..WAITERS).map_while(|_| self.wait(&one)).collect();
        tally.returned(waiting.len() == WAITERS as usize, || format!("room for {} only", waiting.len()));
        tally.returned(self.wait(&one).is_none(), || "room for too many".to_owned());
        self.finish(&held, false);
        // In their order, each as soon as there is a permit.
        while !waiting.is_empty() {
            let charges: Vec<_> = waiting.iter_mut().map_while(|waits| self.look(waits)).collect();
            tally.whole(!charges.is_empty(), || format!("{waiting:?} are stranded"));
            if charges.is_empty() {
                return;
            }
            waiting.drain(..charges.len());
            charges.iter().for_each(|charges| self.finish(charges, true));
        }
        self.set.reconfigure([ResourceLimit::new("connections", PERMITS)]).unwrap();
        let rest = self.words();
        self.check(&rest, tally);
        tally.returned(rest.is_at_rest(), || format!("not at rest at the end: {rest:?}"));
    }
}

/// Comes when all are dead: to a segment that nobody is attached to.
pub(crate) fn inherit(name: &TempName, found: &Found, tally: &mut Tally) {
    let heir = Side::attach(name);
    let words = heir.words();
    heir.check(&words, tally);
    tally.returned(words.is_at_rest(), || format!("inherited {words:?} after {found:?}"));
    heir.works(tally);
}

/// What one limit gave from one state to the next.
pub(crate) fn check_available(before: &Found, after: &Found) -> Result<(), String> {
    let granted = |found: &Found, limit: usize| found.words.granted(limit);
    for limit in 0..LIMITS {
        let is_grant = granted(after, limit) > granted(before, limit);
        let charged = after.words.consumed(limit).saturating_sub(before.words.consumed(limit));
        let (then, now) = (before.limits[limit].available, after.limits[limit].available);
        if is_grant && now + charged != then {
            return Err(format!("{now} left of {then} of limit {limit} after {charged} were charged"));
        }
    }
    Ok(())
}
