//! A small set with a work queue in a model's world: what its workers do, and what must be true of it when all is quiet.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::Duration;

use limitset::core::{Env, Fault, Guard, NEVER, Participant, Reach};
use limitset::engine::models::{Draft, Work};
use limitset::engine::{
    Admitted, Charge, Collected, Engine, Finishes, Lease, Part, Paused, Pushed, Report, Taken, Time, Verdict,
    Vigil, WorkBell,
};
use limitset::{Cooldown, Limit, ResourceLimit};
use loom::thread::{JoinHandle, spawn};

use crate::mutant::Effect;
use crate::set::wants;
use crate::sweep::Scenario;
use crate::world::{Bytes, ModelEnv, Queue, Shape, Sleep, World, first_owner};

/// How long a pause is. Models begin at the instant 0.
pub const PAUSE: u64 = 100;
/// More changes than any transaction on one limit and one item makes.
const CHANGES: usize = 24;
/// Words of a payload, and of a result.
const WORDS: usize = 2;

/// The states of items that are in a list, in the order in which a draft names the lists.
const LISTED: [u64; 5] = [1, 2, 5, 6, 0];
const LEASED: u64 = 4;
const COLLECTED: [u64; 2] = [7, 8];

/// A clock that reads this.
pub struct At(pub u64);

impl Time for At {
    fn reading(&self) -> u64 {
        self.0
    }

    fn reached(&self, _: u64) -> u64 {
        NEVER
    }
}

/// What was pushed under a number.
pub fn payload(id: u64) -> Vec<u8> {
    [id, !id].map(u64::to_ne_bytes).concat()
}

/// What comes of it.
pub fn result(id: u64) -> Vec<u8> {
    [id << 32, !(id << 32)].map(u64::to_ne_bytes).concat()
}

/// What a depot is like at first.
pub struct Plan {
    /// How many slots. The last is for somebody who comes when all is quiet.
    pub slots: u32,
    /// How many items there is room for.
    pub items: u32,
    /// Attempts, and 429s, after which an item is a dead letter.
    pub most: [u32; 2],
    /// How sleeps end. Where they end by news, whoever slept looks for the dead.
    pub sleep: Sleep,
}

/// A set of two permits, with a work queue; the owners of slots 1 and 2 hold a permit each.
pub struct Depot {
    /// Where it lives.
    pub world: Arc<World>,
    draft: Draft,
    plan: Plan,
    effect: Effect,
    /// The slot of the living participant that has each item by its own account; 0: none. None of the model's words.
    has: Vec<AtomicU32>,
    /// The permits of the owner of each slot, likewise.
    permits: Vec<AtomicU64>,
}

/// The counters of a queue.
#[derive(Clone, Copy, Debug)]
pub struct Counts {
    /// In lists: ready, parked, delayed, done, dead letters.
    pub listed: [u64; 5],
    /// At work.
    pub leased: u64,
    /// Ever pushed.
    pub pushed: u64,
    /// Ever taken.
    pub taken: u64,
    /// Ever done.
    pub done: u64,
    /// Ever parked.
    pub parkings: u64,
    /// Ever handed out after a pause.
    pub redistributed: u64,
    /// Ever come back from the dead.
    pub returned: u64,
    /// Ever given up.
    pub dead_lettered: u64,
    /// Pauses there were.
    pub pauses: u64,
}

impl Depot {
    /// A depot according to a plan.
    pub fn new(scenario: Scenario, plan: Plan) -> Arc<Self> {
        let limit = Limit::from(ResourceLimit::new("permit", 2));
        let cooldown = Cooldown::default().first(Duration::from_nanos(PAUSE)).jitter(0.0).slow_start(
            0,
            Duration::ZERO,
            Duration::ZERO,
        );
        let work = Work { items: plan.items, most: plan.most };
        let mut draft = Draft::with_work(vec![limit], plan.slots, 0, cooldown, work);
        draft.hold(1, 0, 1);
        draft.hold(2, 0, 1);
        let effect = scenario.mutation.effect;
        let shape = Shape { slots: plan.slots, words: &draft.words, changes: CHANGES, sleep: plan.sleep };
        let queue = Queue { waiters: 0, entry_words: draft.entry_words, is_shared: false };
        let bytes = Bytes { items: plan.items as usize, payload_words: WORDS, result_words: WORDS };
        let world = World::with_work(scenario, shape, queue, bytes);
        let has = (0..plan.items).map(|_| AtomicU32::new(0)).collect();
        let permits = (1..=plan.slots).map(|slot| AtomicU64::new(u64::from(slot <= 2))).collect();
        Arc::new(Self { world, draft, plan, effect, has, permits })
    }

    /// Lives as the first owner of a slot, in the role of the same number. None: killed.
    pub fn live<R>(&self, slot: u32, life: impl FnOnce(Worker<'_, ModelEnv<'_>>) -> R) -> Option<R> {
        let end = self.act(slot, slot, life);
        if end.is_none() {
            self.die(slot);
        }
        end
    }

    /// Before the model begins: the owner of a slot does something. Nobody is killed doing that.
    pub fn before<R>(&self, slot: u32, life: impl FnOnce(Worker<'_, ModelEnv<'_>>) -> R) -> R {
        self.act(0, slot, life).expect("nobody kills it")
    }

    /// The same when all is quiet, by the owner of the last slot.
    pub fn late<R>(&self, life: impl FnOnce(Worker<'_, ModelEnv<'_>>) -> R) -> R {
        self.act(self.plan.slots, self.plan.slots, life).expect("nobody kills the late one")
    }

    fn act<R>(&self, role: u32, slot: u32, life: impl FnOnce(Worker<'_, ModelEnv<'_>>) -> R) -> Option<R> {
        self.world.act(role, |block| {
            let engine = Engine::new(block, self.world.waiters(), &self.draft.table);
            life(Worker { depot: self, engine: engine.with_items(self.world.items()), me: first_owner(slot) })
        })
    }

    /// Takes a free slot, and lives as its new owner. None: killed.
    pub fn enrol<R>(
        &self,
        role: u32,
        slot: u32,
        life: impl FnOnce(Worker<'_, ModelEnv<'_>>) -> R,
    ) -> Option<R> {
        self.world.enrol(role, slot, |block, me| {
            let engine = Engine::new(block, self.world.waiters(), &self.draft.table);
            let will = Will(self, slot);
            let end = life(Worker { depot: self, engine: engine.with_items(self.world.items()), me });
            std::mem::forget(will);
            end
        })
    }

    /// The owner of a slot dies.
    pub fn die(&self, slot: u32) {
        self.forget(slot);
        self.world.free(slot);
    }

    /// What the owner of a slot had does not count any more.
    fn forget(&self, slot: u32) {
        self.permits[slot as usize - 1].store(0, Relaxed);
        for item in &self.has {
            let _ = item.compare_exchange(slot, 0, Relaxed, Relaxed);
        }
    }

    /// When all is quiet: the owner of the last slot looks for the dead, and finds each item in one list or with one who
    /// lives, lists as long as they say, counters that add up, and the permits of the living.
    pub fn check(&self) -> Counts {
        let counts = self.late(|worker| {
            worker.engine.sweep(worker.me, NEVER, &At(0)).unwrap();
            let guard = worker.lock();
            let counts = self.check_words(&guard);
            guard.unlock().unwrap();
            counts
        });
        self.world.assert_nobody_deposed();
        counts
    }

    /// When all is quiet, after [`check`](Self::check): the owner of the last slot takes what is left, each item once
    /// more, and all of it is done.
    pub fn finish(&self) -> Counts {
        let before = self.check();
        let count = before.listed[..3].iter().sum::<u64>();
        self.late(|worker| {
            for _ in 0..count {
                let Taken::Item(lease) = worker.take(PAUSE) else { panic!("an item is lost") };
                worker.read_payload(&lease);
                worker.done(&lease, false);
            }
            let rest = worker.take(PAUSE);
            assert!(!matches!(rest, Taken::Item(_)), "an item was handed out once too often: {rest:?}");
        });
        let after = self.check();
        assert_eq!(after.done, before.done + count, "the end of an item was not recorded once");
        assert_eq!(after.pushed, after.done + after.dead_lettered + after.leased, "an item is lost");
        after
    }

    /// How often an item was handed out, 429s apart, and how often it ended with one. When all is quiet.
    pub fn attempts(&self, item: usize) -> [u64; 2] {
        self.late(|worker| {
            let guard = worker.lock();
            let [.., attempts, rate_limits] = self.draft.item(item).map(|word| guard.get(word).unwrap());
            guard.unlock().unwrap();
            [attempts, rate_limits]
        })
    }

    fn check_words<E: Env>(&self, guard: &Guard<'_, E>) -> Counts {
        let word = |index| guard.get(index).unwrap();
        let [leased, used, pushed, taken, done, parkings, redistributed, returned, dead_lettered] =
            self.draft.work_counts().map(word);
        let [ready, parked, results, dead, delayed] = self.draft.item_counts().map(word);
        let listed = [ready, parked, delayed, results, dead];
        let [_, pauses, ..] = self.draft.cooldown().map(word);
        let is_listed = self.check_lists(guard, &[ready, parked, results, dead], used);
        let (mut working, mut hand_outs) = (0, 0);
        for (item, is_listed) in (1..).zip(is_listed).take(usize::try_from(used).unwrap()) {
            let [state, _, _, attempts, rate_limits] = self.draft.item(item).map(word);
            let is_had = self.has[item - 1].load(Relaxed) != 0;
            assert_ne!(is_listed, is_had, "item {item}: in a list {is_listed}, with somebody alive {is_had}");
            let is_out = state == LEASED || COLLECTED.contains(&state);
            assert_ne!(is_listed, is_out, "item {item} is in state {state}, and in a list: {is_listed}");
            working += u64::from(state == LEASED);
            hand_outs += attempts + rate_limits;
        }
        assert_eq!(leased, working, "another number of items is at work than is counted");
        let unfinished = leased + listed[..3].iter().sum::<u64>();
        assert_eq!(pushed, unfinished + done + dead_lettered, "what was pushed is not what there is");
        assert_eq!(taken, leased + done + returned + parkings, "hand-outs do not end as often as counted");
        // Of a place that was used again, the last item is known only.
        assert!(pushed != used || taken == hand_outs, "attempts are not counted with their items");
        let in_use = word(self.draft.in_use(0));
        let rows = |slot| word(self.draft.holdings().row(slot) + 1);
        assert_eq!(in_use, (1..=self.plan.slots).map(rows).sum(), "the total is not the sum of the rows");
        let held: u64 = self.permits.iter().map(|permits| permits.load(Relaxed)).sum();
        assert_eq!(in_use, held, "the total is not what the living hold");
        Counts {
            listed,
            leased,
            pushed,
            taken,
            done,
            parkings,
            redistributed,
            returned,
            dead_lettered,
            pauses,
        }
    }

    /// Tells which items are in a list.
    fn check_lists<E: Env>(&self, guard: &Guard<'_, E>, lengths: &[u64; 4], used: u64) -> Vec<bool> {
        let word = |index| guard.get(index).unwrap();
        let mut is_listed = vec![false; self.has.len()];
        for (place, first) in self.draft.item_lists().into_iter().enumerate() {
            let (mut item, mut length) = (word(first), 0);
            while item != 0 {
                assert!(item <= used && length < used, "list {place} has no end, or names item {item}");
                let at = usize::try_from(item).unwrap();
                let [state, next, ..] = self.draft.item(at).map(word);
                assert_eq!(state, LISTED[place], "item {item} is in list {place}, and in another state");
                assert!(!std::mem::replace(&mut is_listed[at - 1], true), "item {item} is in two lists");
                (item, length) = (next, length + 1);
            }
            if let Some(counted) = lengths.get(place) {
                assert_eq!(*counted, length, "list {place} is not as long as it says");
            }
        }
        is_listed
    }
}

/// Dropped by a kill, before others can know of it.
struct Will<'a>(&'a Depot, u32);

impl Drop for Will<'_> {
    fn drop(&mut self) {
        self.0.forget(self.1);
    }
}

/// Lets a thread of its own do something to the depot.
pub fn beside<R: 'static>(depot: &Arc<Depot>, act: impl FnOnce(&Depot) -> R + 'static) -> JoinHandle<R> {
    let depot = Arc::clone(depot);
    spawn(move || act(&depot))
}

/// What a participant can do.
pub struct Worker<'a, E: Env> {
    depot: &'a Depot,
    /// The rules, in its own environment.
    pub engine: Engine<'a, E>,
    /// Who it is.
    pub me: Participant,
}

impl<'a, E: Env> Worker<'a, E> {
    /// Takes the lock.
    pub fn lock(&self) -> Guard<'_, E> {
        self.engine.lock(self.me, NEVER).unwrap()
    }

    fn locked<R>(&self, act: impl FnOnce(&mut Guard<'_, E>) -> R) -> R {
        let mut guard = self.lock();
        let done = act(&mut guard);
        guard.unlock().unwrap();
        done
    }

    fn note(&self, item: usize) {
        let other = self.depot.has[item - 1].swap(self.me.slot, Relaxed);
        assert_eq!(other, 0, "item {item} is with two at one time");
    }

    fn note_end(&self, item: usize) {
        self.depot.has[item - 1].store(0, Relaxed);
    }

    /// Adds an item, if there is room.
    pub fn push(&self, id: u64) -> Pushed {
        let is_late = self.depot.effect == Effect::BytesLate;
        let bytes = if is_late { vec![0; 8 * WORDS] } else { payload(id) };
        let pushed = self.locked(|guard| self.engine.push_item(guard, id, &bytes).unwrap());
        if is_late {
            self.engine.write_bytes(1, Part::Payload, &payload(id)).unwrap();
        }
        pushed
    }

    fn take_under(&self, guard: &mut Guard<'_, E>, now: u64) -> Taken {
        let taken = self.engine.take_item(guard, &At(now), now).unwrap();
        if let Taken::Item(lease) = taken {
            self.note(lease.item);
        }
        taken
    }

    /// Asks for an item.
    pub fn take(&self, now: u64) -> Taken {
        self.locked(|guard| self.take_under(guard, now))
    }

    /// Asks for an item that is there.
    pub fn take_one(&self, now: u64) -> Lease {
        match self.take(now) {
            Taken::Item(lease) => lease,
            other => panic!("{other:?} instead of an item"),
        }
    }

    /// Reads what was pushed, without the lock.
    pub fn read_payload(&self, lease: &Lease) {
        let read = self.engine.read_bytes(lease.item, Part::Payload, lease.payload_bytes);
        assert_eq!(read, Ok(payload(lease.id)), "a payload is not what was pushed");
    }

    /// Records that an item is done, perhaps with a result.
    pub fn done(&self, lease: &Lease, with_result: bool) {
        let is_late = self.depot.effect == Effect::BytesLate;
        let bytes = result(lease.id);
        let write = || self.engine.write_bytes(lease.item, Part::Result, &bytes).unwrap();
        if with_result && !is_late {
            write();
        }
        let verdict = Verdict::Done { result_bytes: with_result.then_some(bytes.len()) };
        let is_ended = self.locked(|guard| {
            self.note_end(lease.item);
            self.engine.end_lease(guard, lease, verdict, 0).unwrap()
        });
        assert!(is_ended, "an item was not with who had it");
        if with_result && is_late {
            write();
        }
    }

    /// Reports that the request for an item was answered with "too many requests": it is parked, the permit returns.
    pub fn park(&self, lease: &Lease) -> Paused {
        let admitted = Some(Admitted::new(0, false));
        let report = Report { admitted, retry_after: 0 };
        let charges: Vec<_> = Charge::of(&wants(1), 0, self.engine.table, u64::MAX).collect();
        let paused = self.locked(|guard| {
            self.note_end(lease.item);
            self.depot.permits[self.me.slot as usize - 1].store(0, Relaxed);
            self.engine.park(guard, lease, &charges, report, 0).unwrap()
        });
        paused.expect("an item was not with who had it")
    }

    /// Asks for a finished item.
    pub fn collect(&self, from: Finishes) -> Taken {
        self.locked(|guard| self.collect_under(guard, from))
    }

    fn collect_under(&self, guard: &mut Guard<'_, E>, from: Finishes) -> Taken {
        let taken = self.engine.collect_item(guard, from).unwrap();
        if let Taken::Item(lease) = taken {
            self.note(lease.item);
        }
        taken
    }

    /// Reads the result of a collected item, without the lock, and makes its place free.
    pub fn use_up(&self, lease: &Lease) {
        let read = self.engine.read_bytes(lease.item, Part::Result, lease.result_bytes);
        assert_eq!(read, Ok(result(lease.id)), "a result is not what was written");
        let is_ended = self.locked(|guard| {
            self.note_end(lease.item);
            self.engine.end_collecting(guard, lease, Collected::Forgotten).unwrap()
        });
        assert!(is_ended, "an item was not with who had it");
    }

    /// Looks until there is something, asleep in between: the order of operations of `WorkQueue::wait`, which runs on the
    /// machine only. None: the set was removed.
    fn wait<T>(&self, bell: WorkBell, mut look: impl FnMut(&mut Guard<'_, E>) -> Option<T>) -> Option<T> {
        let looks_first = self.depot.effect == Effect::LookBeforeBell;
        // Without news a slice tells nothing, so nobody looks for the dead.
        let interval = if self.depot.plan.sleep == Sleep::UntilNews { 0 } else { u64::MAX };
        loop {
            let seen = if looks_first { 0 } else { self.engine.work_bell(bell) };
            let mut guard = match self.engine.lock(self.me, NEVER) {
                Err(Fault::Closed) => return None,
                locked => locked.unwrap(),
            };
            let found = look(&mut guard);
            guard.unlock().unwrap();
            if found.is_some() {
                return found;
            }
            let seen = if looks_first { self.engine.work_bell(bell) } else { seen };
            self.engine
                .sleep_for_work(
                    self.me,
                    (bell, seen),
                    NEVER,
                    Vigil { interval, patience: NEVER, reach: Reach::ALL },
                    &At(0),
                    |_| Ok(()),
                )
                .unwrap();
        }
    }

    /// Asks for an item until there is one, or all is over; by the clock that somebody moves. None: the set was removed.
    pub fn wait_for_item(&self) -> Option<Taken> {
        let [_, clock] = self.depot.draft.time();
        self.wait(WorkBell::Takers, |guard| {
            let now = guard.get(clock).unwrap();
            Some(self.take_under(guard, now)).filter(|taken| !matches!(taken, Taken::NotNow { .. }))
        })
    }

    /// Sleeps for an item once, and leaves without a look: what a queue does for a waiter that meets an error, or for a
    /// future that is dropped.
    pub fn sleep_and_leave(&self) {
        let seen = self.engine.work_bell(WorkBell::Takers);
        let [_, _, pushed, ..] = self.depot.draft.work_counts();
        if self.locked(|guard| guard.get(pushed).unwrap()) == 0 {
            let vigil = Vigil { interval: u64::MAX, patience: NEVER, reach: Reach::ALL };
            let bell = (WorkBell::Takers, seen);
            self.engine.sleep_for_work(self.me, bell, NEVER, vigil, &At(0), |_| Ok(())).unwrap();
        }
        self.engine.ring_on(WorkBell::Takers, None);
    }

    /// Adds two items under one lock.
    pub fn push_both(&self) {
        self.locked(|guard| {
            for id in [1, 2] {
                assert_eq!(self.engine.push_item(guard, id, &payload(id)), Ok(Pushed::Pushed));
            }
        });
    }

    /// Adds an item once there is room. Does itself what came back from the dead.
    pub fn wait_for_room(&self, id: u64) -> Option<Pushed> {
        self.wait(WorkBell::Pushers, |guard| {
            self.do_one(guard, false);
            let pushed = self.engine.push_item(guard, id, &payload(id)).unwrap();
            Some(pushed).filter(|pushed| *pushed != Pushed::Full)
        })
    }

    /// Asks for a result until there is one, or all is over. Does itself what came back from the dead.
    pub fn wait_for_result(&self) -> Option<Taken> {
        self.wait(WorkBell::Collectors, |guard| {
            self.do_one(guard, true);
            let taken = self.collect_under(guard, Finishes::Results);
            Some(taken).filter(|taken| !matches!(taken, Taken::NotNow { .. }))
        })
    }

    /// Takes an item if there is one, and ends it, all under one lock.
    fn do_one(&self, guard: &mut Guard<'_, E>, with_result: bool) {
        let Taken::Item(lease) = self.take_under(guard, 0) else { return };
        let bytes = result(lease.id);
        self.engine.write_bytes(lease.item, Part::Result, &bytes).unwrap();
        let verdict = Verdict::Done { result_bytes: with_result.then_some(bytes.len()) };
        self.note_end(lease.item);
        assert_eq!(self.engine.end_lease(guard, &lease, verdict, 0), Ok(true));
    }

    /// From now on nothing is pushed.
    pub fn close(&self) {
        self.locked(|guard| self.engine.close_work(guard).unwrap());
    }

    /// Moves the clock to the end of the pause.
    pub fn let_pause_pass(&self) {
        self.locked(|guard| self.engine.advance(guard, PAUSE).unwrap());
    }
}
