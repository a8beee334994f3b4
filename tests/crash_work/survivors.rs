//! What the healthy find after a death, and how they go on: nothing is lost, nothing is there twice.

use std::collections::BTreeSet;
use std::time::Instant;

use limitset::core::{Fault, NEVER};
use limitset::engine::{Engine, Lease, Part, Verdict, WorkBell};
use limitset::{CooldownStats, LimitSet, LimitStats, QueueError, QueueStats, SetObserver, Stats};

use crate::hands::{self, locked_words};
use crate::mutant::{Mutant, Mutation};
use crate::picture::{DEAD, DELAYED, Entry, Owner, PARKED, Picture, READY, RESULTS, Words, reopen};
use crate::queue::Bells;
use crate::stage::{A_WHILE, Ask, ITEMS, Mine, NO_SLICE, builder, payload_of, result_of};
use crate::stepped::Tally;
use crate::support::TempName;

/// A healthy participant, and an observer beside it who may not write.
pub(crate) struct Side {
    pub(crate) set: LimitSet,
    pub(crate) observer: SetObserver,
}

/// A set at one instant; why its words are not whole, if they are not.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) words: Words,
    pub(crate) picture: Result<Picture, String>,
}

/// How things were before the victim acted.
pub(crate) struct Before {
    pub(crate) words: Words,
    pub(crate) picture: Picture,
    bells: Bells,
    doorbells: [u32; 4],
}

impl Before {
    pub(crate) fn of(side: &Side) -> Self {
        let words = side.words();
        let picture = words.picture().unwrap();
        Self { words, picture, bells: Bells::of(&side.set), doorbells: side.doorbells() }
    }

    /// Whether there is something that sleepers on each doorbell wait for: items, room, results, the end.
    fn news(&self, now: &Picture) -> [bool; 4] {
        let (before, now) = ((&self.picture.work, &self.picture.pause), (&now.work, &now.pause));
        let has_more = |list: usize| {
            let ids: BTreeSet<_> = before.0.lists[list].iter().map(|it| it.id).collect();
            now.0.lists[list].iter().any(|it| !ids.contains(&it.id))
        };
        let room = |work: &crate::picture::Work| work.free.len() as u64 + u64::from(ITEMS) - work.used;
        let is_closed = now.0.closed != before.0.closed;
        let is_resumed = !now.0.lists[PARKED].is_empty() && now.1.until < before.1.until;
        [
            [READY, PARKED, DELAYED].into_iter().any(has_more) || is_closed || is_resumed,
            room(now.0) > room(before.0) || is_closed,
            has_more(RESULTS) || is_closed,
            now.0.unfinished().is_empty() && !before.0.unfinished().is_empty(),
        ]
    }
}

type Shown = (Vec<LimitStats>, u64, CooldownStats, Option<QueueStats>);

fn shown(stats: &Stats) -> Shown {
    let mut limits = stats.limits.clone();
    limits.iter_mut().for_each(|limit| limit.denied = 0);
    (limits, stats.waiters, stats.cooldown, stats.queue)
}

impl Side {
    pub(crate) fn create(name: &TempName) -> Self {
        Self::new(builder(NO_SLICE).create(name).unwrap(), name)
    }

    pub(crate) fn attach(name: &TempName) -> Self {
        Self::new(builder(NO_SLICE).attach(name).unwrap(), name)
    }

    fn new(set: LimitSet, name: &TempName) -> Self {
        Self { set, observer: LimitSet::observe(name).unwrap() }
    }

    pub(crate) fn owner(&self) -> Owner {
        let me = hands::me(&self.set);
        (me.slot.into(), me.generation)
    }

    /// What those who wait for items, room, results or the end listen to, without the bit that says that somebody does.
    fn doorbells(&self) -> [u32; 4] {
        WorkBell::ALL.map(|bell| self.set.parts().unwrap().work_bell(bell) >> 1)
    }

    /// The words as they are when nobody is at them.
    pub(crate) fn words(&self) -> Words {
        let (block, _) = self.set.segment().state_block().unwrap();
        loop {
            match block.snapshot(1_000) {
                // Somebody alive is at them, and may have to wait for this very processor.
                Err(Fault::Busy { .. }) => std::thread::yield_now(),
                words => return Words::new(&self.set, words.unwrap()),
            }
        }
    }

    /// The set as it is, which must be whole.
    fn picture(&self, tally: &mut Tally) -> Option<Picture> {
        let picture = self.words().picture();
        tally.whole(picture.is_ok(), || format!("{picture:?}"));
        picture.ok()
    }

    /// First looks as an observer who may not write, then takes the lock, as anybody would at the next use. Both must
    /// show the same. `defect` is one of the world that the lock is taken in.
    pub(crate) fn recover(&self, before: &Before, tally: &mut Tally, defect: Option<Mutation>) -> Found {
        let seen = self.observer.stats().map(|stats| shown(&stats));
        let (block, _) = self.set.segment().state_block().unwrap();
        let seen_words = block.snapshot(1_000).map(|words| Words::new(&self.set, words));
        let parts = self.set.parts().unwrap();
        let start = Instant::now();
        let me = hands::me(&self.set);
        let (words, is_stolen) = match defect {
            None => locked_words(&parts, me),
            Some(defect) => {
                let mutant = Mutant::new(parts.block, &[], defect);
                let engine = Engine::new(mutant.block(), parts.waiters.with_env(), parts.table);
                let found = locked_words(&engine.with_items(parts.items.with_env()), me);
                // Who comes without a defect makes whole what this one left: else nobody could look at it.
                locked_words(&parts, me);
                found
            }
        };
        tally.worst_wait = tally.worst_wait.max(start.elapsed());
        tally.steals += u64::from(is_stolen);
        tally.points += 1;
        let words = Words::new(&self.set, words);
        let stats = shown(&self.set.stats().unwrap());
        tally
            .whole(seen_words.as_ref() == Ok(&words), || format!("seen {seen_words:?}, recovered {words:?}"));
        // The process that recovers the lock has handed out what the dead one had made room for, and rung.
        let served = self.words();
        if served.are(&words) {
            tally.whole(seen.as_ref().ok() == Some(&stats), || format!("seen {seen:?}, recovered {stats:?}"));
        }
        let picture = words.picture();
        tally.whole(picture.is_ok(), || format!("{picture:?}: {words:?}"));
        let rings = served.queue.check_rings(&self.set, &before.words.queue, &before.bells);
        tally.whole(rings.is_ok(), || format!("{rings:?}"));
        let news = picture.as_ref().map_or([false; 4], |it| before.news(it));
        let (now, then) = (self.doorbells(), before.doorbells);
        let is_missed = (0..4).any(|bell| news[bell] && now[bell] == then[bell]);
        tally.whole(!is_missed, || format!("of {news:?} a doorbell was not rung: {picture:?}"));
        Found { words, picture }
    }

    // ---- how it goes on ----

    /// Returns what the dead had; whoever healthy waits must get through, and all the work gets done.
    pub(crate) fn go_on(&self, found: &Found, mine: Mine, tally: &mut Tally) {
        self.go_on_beside(&[self.owner()], found, mine, tally);
    }

    /// The same when these live, and have nothing.
    pub(crate) fn go_on_beside(&self, living: &[Owner], found: &Found, mut mine: Mine, tally: &mut Tally) {
        let mut granted = mine.waits.as_mut().and_then(|waits| hands::look(&self.set, waits));
        let Some(looked) = self.picture(tally) else { return };
        let expected = looked.without_all_but(living);
        self.set.reap().unwrap();
        let Some(reaped) = self.picture(tally) else { return };
        let is_served = mine.waits.is_some() && granted.is_none();
        let is_back = if is_served {
            // What the dead held may be the waiter's now.
            reaped.work == expected.work
                && reaped.unreported == expected.unreported
                && reaped.rows.keys().eq(expected.rows.keys())
        } else {
            reaped == expected
        };
        tally.returned(is_back, || format!("{reaped:?} instead of {expected:?} after {found:?}"));

        let mut go_to = |granted: &mut Option<_>| {
            if granted.is_none() {
                *granted = mine.waits.as_mut().and_then(|waits| hands::look(&self.set, waits));
            }
        };
        go_to(&mut granted);
        mine.held.iter().for_each(|held| hands::finish(&self.set, held, false));
        go_to(&mut granted);
        self.set.advance(A_WHILE).unwrap();
        go_to(&mut granted);
        let is_stranded = mine.waits.is_some() && granted.is_none();
        tally.returned(!is_stranded, || format!("stranded: {mine:?} after {found:?}"));
        if is_stranded {
            return;
        }
        granted.iter().for_each(|charges| hands::finish(&self.set, charges, true));
        self.drain(&reaped, mine.lease, tally);
        self.works(tally);
    }

    /// Does all the work that there is. Each item is done once or is a dead letter, with what belongs to it.
    fn drain(&self, before: &Picture, lease: Option<Lease>, tally: &mut Tally) {
        let before = &before.work;
        let queue = self.set.queue().unwrap();
        let mut left: BTreeSet<_> = before.unfinished().iter().map(|it| it.id).collect();
        let expected_done = before.counts.done + left.len() as u64;
        if let Some(lease) = lease {
            let is_mine = left.remove(&lease.id) && self.end_lease(&lease);
            tally.returned(is_mine, || format!("{lease:?} of a living worker is gone: {before:?}"));
        }
        let mut moments = 0;
        loop {
            match queue.try_take() {
                Ok(Some(mut item)) => {
                    let is_right = left.remove(&item.id()) && item.payload() == payload_of(item.id());
                    tally.whole(is_right, || format!("{item:?} was not to be done: {before:?}"));
                    item.done_with(&result_of(item.id())).unwrap();
                }
                Err(QueueError::Empty) if !left.is_empty() && moments < 3 => {
                    moments += 1;
                    self.set.advance(A_WHILE).unwrap();
                }
                Ok(None) | Err(QueueError::Empty) => break,
                Err(other) => panic!("{other}"),
            }
        }
        tally.returned(left.is_empty(), || format!("{left:?} were never done: {before:?}"));
        let mut results: BTreeSet<_> = before.unfinished().iter().map(|it| it.id).collect();
        results.extend(before.lists[crate::picture::RESULTS].iter().map(|it| it.id));
        while let Ok(Some(mut result)) = queue.try_collect() {
            let id = result.id();
            let is_right = result.payload() == payload_of(id) && result.result() == result_of(id);
            tally.whole(is_right && results.remove(&id), || {
                format!("{result:?} was not expected: {before:?}")
            });
            result.forget().unwrap();
        }
        tally.returned(results.is_empty(), || format!("no results of {results:?}: {before:?}"));
        for expected in &before.lists[DEAD] {
            let dead = queue.collect_dead();
            let is_right = dead.as_ref().is_ok_and(|dead| {
                dead.as_ref().is_some_and(|dead| {
                    let Entry { id, attempts, rate_limits, ref result, .. } = *expected;
                    (dead.id(), dead.attempts(), dead.rate_limits()) == (id, attempts, rate_limits)
                        && dead.result() == result
                        && dead.payload() == payload_of(id)
                })
            });
            tally.whole(is_right, || format!("{dead:?} instead of {expected:?}"));
            if let Ok(Some(mut dead)) = dead {
                dead.forget().unwrap();
            }
        }
        if before.closed != 0 {
            reopen(&self.set);
        }
        let Some(after) = self.picture(tally) else { return };
        let (is_empty, counts) = (after.work.free.len() as u64 == after.work.used, after.work.counts);
        tally.returned(is_empty && after.work.held.is_empty(), || format!("not empty: {after:?}"));
        let then = before.counts;
        let is_counted = (counts.done, counts.pushed, counts.dead_lettered, counts.returned)
            == (expected_done, then.pushed, then.dead_lettered, then.returned);
        tally.whole(is_counted, || format!("{counts:?} after {then:?}, {expected_done} done"));
    }

    /// What the mover took in the original, in whichever copy.
    fn end_lease(&self, lease: &Lease) -> bool {
        let parts = self.set.parts().unwrap();
        let result = result_of(lease.id);
        parts.write_bytes(lease.item, Part::Result, &result).unwrap();
        let mut guard = parts.lock(hands::me(&self.set), NEVER).unwrap();
        let now = parts.now(&guard, 0).unwrap();
        let verdict = Verdict::Done { result_bytes: Some(result.len()) };
        parts.end_lease(&mut guard, lease, verdict, now).unwrap()
    }

    /// From a state of rest back to one: all places can be used, and all permits.
    fn works(&self, tally: &mut Tally) {
        let queue = self.set.queue().unwrap();
        let ids = 1_000 * (1 + tally.points)..;
        let pushed = ids.take_while(|id| queue.try_push(*id, &payload_of(*id)).is_ok()).count();
        tally.returned(pushed == ITEMS as usize, || format!("room for {pushed} only"));
        while let Ok(Some(mut item)) = queue.try_take() {
            item.done().unwrap();
        }
        self.set.advance(A_WHILE).unwrap();
        let held = hands::hold(&self.set, &Ask(1, 1, crate::stage::PERMITS).wants());
        hands::finish(&self.set, &held, true);
        let Some(rest) = self.picture(tally) else { return };
        let is_at_rest = self.words().queue.is_at_rest() && rest.work.unfinished().is_empty();
        tally.returned(is_at_rest, || format!("not at rest at the end: {rest:?}"));
    }
}

/// Comes when all are dead: to a segment that nobody is attached to.
pub(crate) fn inherit(name: &TempName, found: &Found, tally: &mut Tally) {
    let Ok(left) = &found.picture else { return };
    let expected = left.without_all_but(&[]);
    let heir = Side::attach(name);
    let Some(picture) = heir.picture(tally) else { return };
    let is_right = picture.work == expected.work && picture.pause == expected.pause;
    tally.returned(is_right, || format!("inherited {picture:?} instead of {expected:?}"));
    let is_alone = picture.rows.iter().map(|(slot, row)| (*slot, row.generation)).eq([heir.owner()]);
    tally.returned(is_alone && heir.words().queue.is_at_rest(), || format!("inherited {picture:?}"));
    heir.set.advance(A_WHILE).unwrap();
    heir.drain(&picture, None, tally);
    heir.works(tally);
}
