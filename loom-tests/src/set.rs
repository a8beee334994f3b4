//! A small set in a model's world: what its participants do, and what must be true of it when all is quiet.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use limitset::Limit;
use limitset::core::{Env, Fault, Guard, NEVER, Participant, Reach};
use limitset::engine::models::Draft;
use limitset::engine::{
    Admitted, AtOnce, Charge, Ending, Engine, Entered, Look, Patience, Place, Time, Vigil, Wants, When,
};
use loom::thread::{JoinHandle, spawn};

use crate::mutant::Effect;
use crate::sweep::Scenario;
use crate::world::{ModelEnv, Queue, Shape, Sleep, World, first_owner};

/// Whoever's slice is over looks for the dead, however long that takes.
pub const ALWAYS: Vigil = Vigil { interval: 0, patience: NEVER, reach: Reach::ALL };
/// More changes than any transaction on one limit makes.
const CHANGES: usize = 20;
const FREE: u64 = 0;

/// A clock that stands still: nobody is served because time passes.
pub struct Still;

impl Time for Still {
    fn reading(&self) -> u64 {
        0
    }

    fn reached(&self, _: u64) -> u64 {
        NEVER
    }
}

/// The clock of a world: it reads what the world says. Alarms are by it, where there are any.
pub struct Watch<'w>(&'w World);

impl Time for Watch<'_> {
    fn reading(&self) -> u64 {
        self.0.instant()
    }

    fn reached(&self, reading: u64) -> u64 {
        if self.0.has_alarms() { reading } else { NEVER }
    }
}

/// What must be true whenever somebody lets go of the lock: it is told how to read words, and the instant.
pub type Promise = Box<dyn Fn(&dyn Fn(usize) -> u64, u64) + Send + Sync>;

/// What came of waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is held now.
    Granted,
    /// It can never be had.
    Never,
    /// Time was up, and the queue was left.
    Late,
    /// The set was removed.
    Removed,
    /// The place is not its own any more.
    Lost,
}

/// A set of one limit. Its last slot is for somebody who comes when all is quiet.
pub struct Set {
    /// Where it lives.
    pub world: Arc<World>,
    draft: Draft,
    slots: u32,
    effect: Effect,
    /// What the living hold, by their own account; none of the model's words.
    held: AtomicU64,
    /// Where time matters: what must be true at any instant. Without it, it is always the instant 0.
    promise: Option<Promise>,
}

/// What a set is like at first.
pub struct Plan {
    /// Its limit.
    pub limit: Limit,
    /// How many slots.
    pub slots: u32,
    /// How many can wait.
    pub waiters: u32,
    /// How sleeps end.
    pub sleep: Sleep,
    /// Permits that the owner of slot 1 holds.
    pub held: u64,
    /// Whether participants have doorbells of their own.
    pub is_shared: bool,
}

/// How big a set is, and how sleeps end in it.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// How many slots.
    pub slots: u32,
    /// How many can wait.
    pub waiters: u32,
    /// How sleeps end.
    pub sleep: Sleep,
}

impl Set {
    /// A set according to a plan.
    pub fn new(scenario: Scenario, plan: Plan) -> Arc<Self> {
        let Plan { limit, slots, waiters, sleep, held, is_shared } = plan;
        let mut draft = Draft::new(vec![limit], slots, waiters);
        draft.hold(1, 0, held);
        let shape = Shape { slots, words: &draft.words, changes: CHANGES, sleep };
        let queue = Queue { waiters: waiters as usize, entry_words: draft.entry_words, is_shared };
        let effect = scenario.mutation.effect;
        let world = World::with_queue(scenario, shape, queue);
        Arc::new(Self { world, draft, slots, effect, held: AtomicU64::new(held), promise: None })
    }

    /// A set of permits in which time matters, by a draft of the same size.
    pub fn in_time(scenario: Scenario, draft: Draft, size: Size, promise: Promise) -> Arc<Self> {
        let Size { slots, waiters, sleep } = size;
        let shape = Shape { slots, words: &draft.words, changes: CHANGES, sleep };
        let queue = Queue { waiters: waiters as usize, entry_words: draft.entry_words, is_shared: false };
        let effect = scenario.mutation.effect;
        let world = World::with_queue(scenario, shape, queue);
        let held = AtomicU64::new(draft.words[draft.in_use(0)]);
        Arc::new(Self { world, draft, slots, effect, held, promise: Some(promise) })
    }

    /// What it was at first, and where its words stand.
    pub fn draft(&self) -> &Draft {
        &self.draft
    }

    /// Lives as the first owner of a slot, in the role of the same number, holding so much already. None: killed.
    pub fn live<R>(
        &self,
        slot: u32,
        holds: u64,
        life: impl FnOnce(Life<'_, ModelEnv<'_>>) -> R,
    ) -> Option<R> {
        let end = self.act(slot, slot, holds, life);
        if end.is_none() {
            self.world.free(slot);
        }
        end
    }

    /// Lives in another role than that of the slot's number. Freeing the byte is the caller's business.
    pub fn act<R>(
        &self,
        role: u32,
        slot: u32,
        holds: u64,
        life: impl FnOnce(Life<'_, ModelEnv<'_>>) -> R,
    ) -> Option<R> {
        self.act_as(role, first_owner(slot), holds, life)
    }

    /// The same for any owner of a slot.
    pub fn act_as<R>(
        &self,
        role: u32,
        me: Participant,
        holds: u64,
        life: impl FnOnce(Life<'_, ModelEnv<'_>>) -> R,
    ) -> Option<R> {
        let holds = Cell::new(holds);
        let end = self.world.act(role, |block| {
            let engine = Engine::new(block, self.world.waiters(), &self.draft.table);
            life(Life { set: self, engine, me, holds: &holds })
        });
        if end.is_none() {
            self.held.fetch_sub(holds.get(), Relaxed);
        }
        end
    }

    /// Takes a free slot, and what its last owner held back to the set, as attaching does. None: killed.
    pub fn enrol(&self, role: u32, slot: u32) -> Option<()> {
        self.world.enrol(role, slot, |block, me| {
            let engine = Engine::new(block, self.world.waiters(), &self.draft.table);
            let mut guard = engine.lock(me, NEVER).unwrap();
            engine.adopt(&mut guard).unwrap();
            if self.effect != Effect::SkipServe {
                engine.serve(&mut guard, u64::MAX, 0).unwrap();
            }
            guard.unlock().unwrap();
        })
    }

    /// The owner of a slot dies, asleep somewhere, holding so much.
    pub fn die(&self, slot: u32, holds: u64) {
        self.held.fetch_sub(holds, Relaxed);
        self.world.free(slot);
    }

    /// Before the model begins: the owner of a slot joins the queue. Nobody is killed doing that.
    pub fn queue_up(&self, slot: u32, amount: u64, deadline: u64, shares_doorbell: bool) -> Place {
        let place = self.act(0, slot, 0, |life| match life.join(amount, deadline, shares_doorbell) {
            Ok(Entered::Waiting(place)) => place,
            other => panic!("{other:?} instead of waiting"),
        });
        place.expect("nobody kills it")
    }

    /// When all is quiet: the last slot's owner looks for the dead, and finds that nobody waits, that all entries are
    /// free, that what is in use is what the living hold, and that the rest can be had.
    pub fn check(&self) {
        let late = self.live(self.slots, 0, |life| {
            life.engine.sweep(life.me, NEVER, &life.time()).unwrap();
            let (guard, now) = life.lock_now().unwrap();
            self.check_queue(&guard);
            let held = self.check_permits(&guard);
            life.unlock(guard, now).unwrap();
            if let Some(rest) = held {
                let entered = life.join_at_once(rest).unwrap();
                assert!(matches!(entered, Entered::Granted { .. }), "the rest cannot be had: {entered:?}");
            }
        });
        late.expect("nobody kills the late one");
        self.world.assert_nobody_deposed();
    }

    /// The last slot's owner looks for the dead, and for nothing else.
    pub fn sweep(&self) {
        let swept = self.live(self.slots, 0, |life| life.engine.sweep(life.me, NEVER, &Still));
        swept.expect("nobody kills the late one").unwrap();
    }

    fn check_queue<E: Env>(&self, guard: &Guard<'_, E>) {
        let word = |index| guard.get(index).unwrap();
        assert_eq!(self.draft.queue().map(word), [0, 0, 0], "somebody is left in the queue");
        let [enqueued, dequeued] = self.draft.queued(0).map(word);
        assert_eq!(enqueued, dequeued, "more joined the queue than left it");
        let [first, used] = self.draft.entries().map(word);
        let (mut entry, mut free) = (first, 0);
        while entry != 0 && free <= used {
            let [state, next] = self.draft.link(usize::try_from(entry).unwrap()).map(word);
            assert_eq!(state, FREE, "entry {entry} is in use and in the list of free ones");
            (entry, free) = (next, free + 1);
        }
        assert_eq!(free, used, "not all entries are free");
    }

    /// Gives what is free; nothing is to be said of rates.
    fn check_permits<E: Env>(&self, guard: &Guard<'_, E>) -> Option<u64> {
        let holdings = self.draft.holdings();
        if holdings.permits == 0 {
            return None;
        }
        let word = |index| guard.get(index).unwrap();
        let total = word(self.draft.in_use(0));
        let rows: u64 = (1..=self.slots).map(|slot| word(holdings.row(slot) + 1)).sum();
        assert_eq!(total, rows, "the total is not the sum of the rows");
        assert_eq!(total, self.held.load(Relaxed), "the total is not what the living hold");
        Some(word(self.draft.capacity(0)).saturating_sub(total))
    }
}

/// Lets a thread of its own do something to the set.
pub fn beside<R: 'static>(set: &Arc<Set>, act: impl FnOnce(&Set) -> R + 'static) -> JoinHandle<R> {
    let set = Arc::clone(set);
    spawn(move || act(&set))
}

/// What a participant can do.
pub struct Life<'a, E: Env> {
    set: &'a Set,
    /// The rules, in its own environment.
    pub engine: Engine<'a, E>,
    /// Who it is.
    pub me: Participant,
    holds: &'a Cell<u64>,
}

impl<'a, E: Env> Life<'a, E> {
    /// Takes the lock.
    pub fn lock(&self) -> Result<Guard<'_, E>, Fault> {
        self.engine.lock(self.me, NEVER)
    }

    /// Its clock.
    pub fn time(&self) -> Watch<'a> {
        Watch(&self.set.world)
    }

    /// The defect that it is to bring about itself.
    pub fn effect(&self) -> Effect {
        self.set.effect
    }

    /// Takes the lock and looks at the clock, in the order of `LimitSet`: before, and again if that took a sleep.
    pub fn lock_now(&self) -> Result<(Guard<'_, E>, u64), Fault> {
        let reading = self.time().reading();
        let guard = self.lock()?;
        if self.set.promise.is_none() {
            return Ok((guard, 0));
        }
        let reading = if guard.has_waited() { self.time().reading() } else { reading };
        let now = self.engine.now(&guard, reading)?;
        Ok((guard, now))
    }

    /// Lets go of the lock; what must be true then, is.
    pub fn unlock(&self, guard: Guard<'_, E>, now: u64) -> Result<(), Fault> {
        if let Some(promise) = &self.set.promise {
            promise(&|index| self.set.world.word(index), now);
        }
        guard.unlock()
    }

    fn enter(&self, amount: u64, patience: Option<Patience>) -> Result<Entered, Fault> {
        let (mut guard, now) = self.lock_now()?;
        let wants = wants(amount);
        let overtaken = match self.set.effect {
            Effect::Overtake => self.engine.take(&mut guard, &wants, u64::MAX, now)?,
            _ => None,
        };
        let entered = match overtaken {
            Some(ticket) => Entered::Granted { ticket, admitted: Admitted::default() },
            None => self.engine.enter(&mut guard, &wants, u64::MAX, patience, &self.time(), now)?,
        };
        self.unlock(guard, now)?;
        if let Entered::Granted { .. } = entered {
            self.note_grant(amount);
        }
        Ok(entered)
    }

    /// Asks, and joins the queue if it has to.
    pub fn join(&self, amount: u64, deadline: u64, shares_doorbell: bool) -> Result<Entered, Fault> {
        self.enter(amount, Some(Patience { deadline, shares_doorbell }))
    }

    /// Asks without patience.
    pub fn join_at_once(&self, amount: u64) -> Result<Entered, Fault> {
        self.enter(amount, None)
    }

    fn note_grant(&self, amount: u64) {
        self.holds.set(self.holds.get() + amount);
        let held = self.set.held.fetch_add(amount, Relaxed) + amount;
        let most = self.set.draft.words[self.set.draft.capacity(0)];
        assert!(held <= most, "more is held than there is");
    }

    /// Notes that it holds less, before it is given back.
    pub fn note_return(&self, amount: u64) {
        self.holds.set(self.holds.get() - amount);
        self.set.held.fetch_sub(amount, Relaxed);
    }

    /// Asks, and waits however long it takes.
    pub fn acquire(&self, amount: u64) -> Answer {
        match self.join(amount, NEVER, false) {
            Ok(Entered::Granted { .. }) => Answer::Granted,
            Ok(Entered::Waiting(place)) => self.wait(place, amount, NEVER),
            Ok(Entered::Refused) => Answer::Never,
            Err(Fault::Closed) => Answer::Removed,
            other => panic!("{other:?}"),
        }
    }

    /// Sleeps and looks until there is an answer.
    pub fn wait(&self, mut place: Place, amount: u64, deadline: u64) -> Answer {
        loop {
            match self.engine.sleep(self.me, &place, deadline, ALWAYS, &self.time(), |_| Ok(())) {
                Err(Fault::Closed) => return Answer::Removed,
                slept => slept.unwrap(),
            }
            if let Some(answer) = self.look(&mut place, amount, deadline) {
                return answer;
            }
        }
    }

    /// Looks for a grant; leaves the queue if time is up.
    pub fn look(&self, place: &mut Place, amount: u64, deadline: u64) -> Option<Answer> {
        let is_late = deadline != NEVER && self.engine.block.env.now() >= deadline;
        let (mut guard, now) = match self.lock_now() {
            Err(Fault::Closed) => return Some(Answer::Removed),
            locked => locked.unwrap(),
        };
        let wants = wants(amount);
        let mut look = self.engine.look(&mut guard, place, &wants, &self.time(), now).unwrap();
        let is_over = look != Look::Waiting || is_late;
        if look == Look::Waiting && is_late {
            look = self.engine.leave(&mut guard, place, &wants, now).unwrap();
        }
        self.unlock(guard, now).unwrap();
        if look == Look::Granted {
            self.note_grant(amount);
        }
        is_over.then_some(match look {
            Look::Granted => Answer::Granted,
            Look::Refused => Answer::Never,
            Look::Waiting => Answer::Late,
            Look::Lost => Answer::Lost,
        })
    }

    /// Leaves the queue, and gives back what was granted meanwhile.
    pub fn abandon(&self, place: &Place, amount: u64) {
        if self.set.effect == Effect::LeaveUnasked {
            return self.abandon_unasked(place, amount);
        }
        let (mut guard, now) = self.lock_now().unwrap();
        if self.engine.leave(&mut guard, &mut place.clone(), &wants(amount), now).unwrap() == Look::Granted {
            self.engine.finish(&mut guard, &self.charges(amount), Ending::Cancelled, now).unwrap();
        }
        self.unlock(guard, now).unwrap();
    }

    /// The same as if the entry were not compared: in the name of whoever has it by now.
    fn abandon_unasked(&self, place: &Place, amount: u64) {
        let mut place = place.clone();
        let guard = self.lock().unwrap();
        let [state, _] = self.set.draft.link(place.waiter).map(|index| guard.get(index).unwrap());
        let owner = self.set.draft.owner(place.waiter).map(|index| guard.get(index).unwrap());
        guard.unlock().unwrap();
        if state == FREE {
            return;
        }
        let [slot, generation, ticket] = owner;
        place.owner = Participant { slot: u32::try_from(slot).unwrap(), generation };
        place.ticket = ticket;
        let mut guard = self.engine.lock(place.owner, NEVER).unwrap();
        self.engine.leave(&mut guard, &mut place, &wants(amount), 0).unwrap();
        guard.unlock().unwrap();
    }

    /// Asks without a guard; false if it is not to be had that way.
    pub fn ask_at_once(&self, amount: u64) -> bool {
        match self.engine.ask_at_once(self.me, &wants(amount), u64::MAX, When::Last) {
            Some(Ok(AtOnce::Granted { .. })) => {
                self.note_grant(amount);
                true
            }
            Some(answer) => {
                answer.unwrap();
                false
            }
            None => false,
        }
    }

    /// Gives back all it holds, without a guard if it can.
    pub fn give_at_once(&self) {
        let amount = self.holds.get();
        self.note_return(amount);
        if !self.engine.give_at_once(self.me, &wants(amount), 1).unwrap() {
            let mut guard = self.lock().unwrap();
            let ending = Ending::Released(Admitted::default());
            self.engine.finish(&mut guard, &self.charges(amount), ending, 0).unwrap();
            guard.unlock().unwrap();
        }
    }

    /// Gives back all it holds.
    pub fn release(&self) {
        self.release_some(self.holds.get());
    }

    /// Gives back some of it.
    pub fn release_some(&self, amount: u64) {
        let mut guard = self.lock().unwrap();
        self.note_return(amount);
        if self.set.effect == Effect::SkipServe {
            let mut change = guard.begin();
            self.engine.holdings().give(&mut change, self.me, 0, amount).unwrap();
            change.commit();
        } else {
            let ending = Ending::Released(Admitted::default());
            self.engine.finish(&mut guard, &self.charges(amount), ending, 0).unwrap();
        }
        guard.unlock().unwrap();
    }

    /// Says that it has used nothing of what it was charged.
    pub fn refund(&self) {
        let mut guard = self.lock().unwrap();
        let amount = self.holds.get();
        self.note_return(amount);
        for charge in self.charges(amount) {
            assert_eq!(self.engine.recharge(&mut guard, &charge, 0, 0), Ok(0));
        }
        guard.unlock().unwrap();
    }

    /// What an acquisition of so much was charged.
    pub fn charges(&self, amount: u64) -> Vec<Charge> {
        Charge::of(&wants(amount), u64::MAX, self.engine.table, u64::MAX).collect()
    }
}

/// So much of the only limit.
pub fn wants(amount: u64) -> Wants {
    let mut wants = Wants::none();
    wants.set(0, amount);
    wants
}
