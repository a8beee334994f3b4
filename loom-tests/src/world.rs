//! The world of a model: words, slots and sleepers as the model checker's objects, and participants that can
//! be killed at any operation.
//!
//! A kill is an unwinding out of the participant's n-th operation. The protocol's destructors run on the way,
//! but a dead process does nothing: from then on the environment ignores all of its operations. Afterwards
//! the slot's byte is freed with a release store, as the kernel does when the address space has ended.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::{self, AcqRel, Acquire, Relaxed, Release, SeqCst};

use limitset::core::{Block, Env, NEVER, Participant, Slots, Waited, Waiting, Wakes};
use limitset::engine::{Items, Waiters, WorkBell};
use loom::sync::atomic::{AtomicU32, AtomicU64, fence};
use loom::thread::{JoinHandle, spawn, yield_now};

use crate::mutant::Mutant;
use crate::sleepers::Sleepers;
use crate::sweep::{ROLES, Scenario};

/// How sleeps end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sleep {
    /// By themselves, after a slice. The sleeper learns nothing by it, so every ordering is put to the test.
    Slices,
    /// By a wake; by the end of a slice only after a death or an enrolment, since without one it changes
    /// nothing. So a wake that is lost is a deadlock, which the model checker reports. Two sleepers that end
    /// each other's slices for ever, which it would explore for ever, do not exist here.
    UntilNews,
    /// For the lock in slices, for the doorbell only by a wake.
    DoorbellUntilWoken,
    /// As [`UntilNews`](Self::UntilNews), or when the world's clock has reached the deadline: so an alarm that was set too
    /// late, or not at all, is a deadlock.
    UntilAlarm,
    /// For the lock until news, for the doorbell only by a wake.
    LockUntilNews,
    /// For the lock until news, for the doorbell by a wake or an alarm.
    DoorbellUntilAlarm,
}

/// How big a world is, and what its words are at first.
#[derive(Clone, Copy, Debug)]
pub struct Shape<'s> {
    /// Number of slots; all have an owner of generation 1.
    pub slots: u32,
    /// First values of the words the lock guards.
    pub words: &'s [u64],
    /// Number of changes the journal can undo.
    pub changes: usize,
    /// How sleeps end.
    pub sleep: Sleep,
}

/// The doorbells of a queue, and what its waiters write down.
#[derive(Clone, Copy, Debug)]
pub struct Queue {
    /// Number of entries.
    pub waiters: usize,
    /// Words of each.
    pub entry_words: usize,
    /// Whether participants have doorbells too.
    pub is_shared: bool,
}

/// The bytes of items of work.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bytes {
    /// Number of items.
    pub items: usize,
    /// Words of a payload.
    pub payload_words: usize,
    /// Words of a result.
    pub result_words: usize,
}

impl Bytes {
    fn stride(&self) -> usize {
        self.payload_words + self.result_words
    }
}

/// A segment and the kernel around it.
pub struct World {
    scenario: Scenario,
    sleep: Sleep,
    /// The kernel's locks: 1 is taken.
    bytes: Vec<AtomicU32>,
    generations: Vec<AtomicU64>,
    lock: AtomicU32,
    sleepers: AtomicU32,
    doorbell: AtomicU32,
    change: AtomicU64,
    closed: AtomicU64,
    last_sweep: AtomicU64,
    sweep_cost: AtomicU64,
    sweep_cursor: AtomicU64,
    steals: AtomicU64,
    rollbacks: AtomicU64,
    deposed: AtomicU64,
    journal: Vec<AtomicU64>,
    words: Vec<AtomicU64>,
    /// What the pairs of light and heavy fences order, a cell for each role.
    barriers: Vec<AtomicU32>,
    lock_sleepers: Sleepers,
    doorbell_sleepers: Sleepers,
    /// The doorbells of waiters, and those of participants.
    bells: Vec<AtomicU32>,
    shared_bells: Vec<AtomicU32>,
    /// Those of the work queue.
    work_bells: Vec<AtomicU32>,
    /// Those asleep on each of them, in this order.
    bell_sleepers: Vec<Sleepers>,
    entry_words: usize,
    entries: Vec<AtomicU64>,
    /// What the clock reads. None of the model's words: reading it is no operation.
    instant: std::sync::atomic::AtomicU64,
    bytes_of_items: Bytes,
    items: Vec<AtomicU64>,
    /// For the model's own use; no participant knows of it.
    pub mark: AtomicU64,
}

impl World {
    /// A world in order.
    pub fn new(scenario: Scenario, shape: Shape<'_>) -> Arc<Self> {
        Self::with_queue(scenario, shape, Queue { waiters: 0, entry_words: 0, is_shared: false })
    }

    /// The same with a queue.
    pub fn with_queue(scenario: Scenario, shape: Shape<'_>, queue: Queue) -> Arc<Self> {
        Self::with_work(scenario, shape, queue, Bytes::default())
    }

    /// The same with items of work.
    pub fn with_work(scenario: Scenario, shape: Shape<'_>, queue: Queue, bytes: Bytes) -> Arc<Self> {
        let zero = || AtomicU64::new(0);
        let shared = if queue.is_shared { shape.slots as usize } else { 0 };
        let work = if bytes.items > 0 { WorkBell::ALL.len() } else { 0 };
        Arc::new(Self {
            scenario,
            sleep: shape.sleep,
            bytes: (0..shape.slots).map(|_| AtomicU32::new(1)).collect(),
            generations: (0..shape.slots).map(|_| AtomicU64::new(1)).collect(),
            lock: AtomicU32::new(0),
            sleepers: AtomicU32::new(0),
            doorbell: AtomicU32::new(0),
            change: zero(),
            closed: zero(),
            last_sweep: zero(),
            sweep_cost: zero(),
            sweep_cursor: zero(),
            steals: zero(),
            rollbacks: zero(),
            deposed: zero(),
            journal: (0..2 * shape.changes).map(|_| zero()).collect(),
            words: shape.words.iter().map(|value| AtomicU64::new(*value)).collect(),
            barriers: (0..ROLES).map(|_| AtomicU32::new(0)).collect(),
            lock_sleepers: Sleepers::new(),
            doorbell_sleepers: Sleepers::new(),
            bells: (0..queue.waiters).map(|_| AtomicU32::new(0)).collect(),
            shared_bells: (0..shared).map(|_| AtomicU32::new(0)).collect(),
            work_bells: (0..work).map(|_| AtomicU32::new(0)).collect(),
            bell_sleepers: (0..queue.waiters + shared + work).map(|_| Sleepers::new()).collect(),
            entry_words: queue.entry_words,
            entries: (0..queue.waiters * queue.entry_words).map(|_| zero()).collect(),
            instant: std::sync::atomic::AtomicU64::new(0),
            bytes_of_items: bytes,
            items: (0..bytes.items * bytes.stride()).map(|_| zero()).collect(),
            mark: zero(),
        })
    }

    /// Lives as the first owner of a slot, in the role of the same number. The byte is freed if it is killed.
    /// None: it was.
    pub fn live<R>(
        &self,
        slot: u32,
        life: impl FnOnce(Block<'_, ModelEnv<'_>>, Participant) -> R,
    ) -> Option<R> {
        let end = self.act(slot, |block| life(block, first_owner(slot)));
        if end.is_none() {
            self.free(slot);
        }
        end
    }

    /// Takes a free slot's byte, enrols, and lives as its new owner. None: it was killed.
    pub fn enrol<R>(
        &self,
        role: u32,
        slot: u32,
        life: impl FnOnce(Block<'_, ModelEnv<'_>>, Participant) -> R,
    ) -> Option<R> {
        let byte = self.byte(slot);
        assert_eq!(byte.compare_exchange(0, 1, AcqRel, Relaxed), Ok(0), "slot {slot} is taken");
        let end = self.act(role, |block| {
            let me = block.slots.enrol(slot).expect("the slot exists");
            self.tell_sleepers();
            life(block, me)
        });
        if end.is_none() {
            self.free(slot);
        }
        end
    }

    /// Does something in a role: a participant's only thread, or one of several. None: it was killed; freeing
    /// the byte is the caller's business.
    pub fn act<R>(&self, role: u32, life: impl FnOnce(Block<'_, ModelEnv<'_>>) -> R) -> Option<R> {
        let env = LoomEnv::new(self, role);
        let mutant = Mutant::new(self.block(&env), &self.generations, self.scenario.mutation);
        match catch_unwind(AssertUnwindSafe(|| life(mutant.block()))) {
            Ok(value) => Some(value),
            Err(cause) if cause.is::<Killed>() => {
                if env.left.get() == Some(0) {
                    self.scenario.note_kill(role);
                }
                None
            }
            Err(failure) => resume_unwind(failure),
        }
    }

    fn byte(&self, slot: u32) -> &AtomicU32 {
        &self.bytes[slot as usize - 1]
    }

    /// The kernel's notice that the owner of a slot is gone: carries everything it ever wrote.
    pub fn free(&self, slot: u32) {
        self.byte(slot).store(0, Release);
        self.tell_sleepers();
    }

    fn tell_sleepers(&self) {
        if self.sleep != Sleep::Slices && self.sleep != Sleep::DoorbellUntilWoken {
            self.lock_sleepers.tell();
        }
        if matches!(self.sleep, Sleep::UntilNews | Sleep::UntilAlarm) {
            self.doorbell_sleepers.tell();
            self.bell_sleepers.iter().for_each(Sleepers::tell);
        }
    }

    /// What a word is, whatever a defect makes of it; for who has the lock.
    pub fn word(&self, index: usize) -> u64 {
        self.words[index].load(Relaxed)
    }

    /// Whether sleeps end by the clock.
    pub fn has_alarms(&self) -> bool {
        matches!(self.sleep, Sleep::UntilAlarm | Sleep::DoorbellUntilAlarm)
    }

    /// What the clock reads.
    pub fn instant(&self) -> u64 {
        self.instant.load(Relaxed)
    }

    /// Time passes: the clock reads this, and alarms go off.
    pub fn pass(&self, instant: u64) {
        self.instant.store(instant, Relaxed);
        self.bell_sleepers.iter().for_each(Sleepers::strike);
    }

    /// Kills whoever is asleep on the lock or falls asleep on it: the rest of a process that is being killed.
    pub fn kill_sleepers(&self) {
        self.lock_sleepers.kill();
    }

    /// Fails if an unlock found the lock in other hands. Only after all others have ended.
    pub fn assert_nobody_deposed(&self) {
        assert_eq!(self.deposed.load(Relaxed), 0, "the lock was taken from the living");
    }

    /// The waiters of a queue.
    pub fn waiters<E: Env<U32 = AtomicU32, U64 = AtomicU64>>(&self) -> Waiters<'_, E> {
        Waiters {
            count: self.bells.len(),
            doorbell_stride: 1,
            words: &self.entries,
            stride: self.entry_words,
            shared_stride: 1,
        }
    }

    /// What items of work carry.
    pub fn items<E: Env<U32 = AtomicU32, U64 = AtomicU64>>(&self) -> Items<'_, E> {
        let Bytes { items, payload_words, result_words } = self.bytes_of_items;
        let stride = self.bytes_of_items.stride();
        Items { count: items, words: &self.items, stride, payload_words, result_words }
    }

    fn block<'b>(&'b self, env: &'b LoomEnv<'b>) -> Block<'b, LoomEnv<'b>> {
        Block {
            env,
            slots: Slots::new(env, &self.generations, 1),
            lock: &self.lock,
            sleepers: &self.sleepers,
            doorbell: &self.doorbell,
            change: &self.change,
            closed: &self.closed,
            last_sweep: &self.last_sweep,
            sweep_cost: &self.sweep_cost,
            sweep_cursor: &self.sweep_cursor,
            steals: &self.steals,
            rollbacks: &self.rollbacks,
            deposed: &self.deposed,
            journal: &self.journal,
            words: &self.words,
            bells: [&self.bells, &self.shared_bells, &self.work_bells],
        }
    }
}

/// Who owns a slot when the world begins.
pub fn first_owner(slot: u32) -> Participant {
    Participant { slot, generation: 1 }
}

/// Lets a thread of its own do something in the world.
pub fn beside<R: 'static>(world: &Arc<World>, act: impl FnOnce(&World) -> R + 'static) -> JoinHandle<R> {
    let world = Arc::clone(world);
    spawn(move || act(&world))
}

/// The environment of a model's participants: loom's words, perhaps with a defect.
pub type ModelEnv<'w> = Mutant<'w, LoomEnv<'w>>;

/// What a participant unwinds with when it is killed.
struct Killed;

/// One thread of a participant.
pub struct LoomEnv<'w> {
    world: &'w World,
    role: u32,
    /// Operations until it is killed.
    left: Cell<Option<u32>>,
    dead: Cell<bool>,
    time: Cell<u64>,
}

impl<'w> LoomEnv<'w> {
    fn new(world: &'w World, role: u32) -> Self {
        let left = Cell::new(world.scenario.killed_at(role));
        Self { world, role, left, dead: Cell::new(false), time: Cell::new(0) }
    }

    /// Whether the operation takes place. Unwinds instead if this is the one to be killed at.
    fn takes_place(&self) -> bool {
        // Unwinding because an invariant failed: another switch of threads would only hide the message.
        if self.dead.get() || std::thread::panicking() {
            return false;
        }
        match self.left.get() {
            None => {}
            Some(0) => self.die(),
            Some(left) => self.left.set(Some(left - 1)),
        }
        true
    }

    fn die(&self) -> ! {
        self.dead.set(true);
        resume_unwind(Box::new(Killed))
    }

    /// Whether a word says nothing, because sleeps for the lock end by themselves here: to look at it would only be more to
    /// explore.
    fn is_idle(&self, word: &AtomicU32) -> bool {
        std::ptr::eq(word, &self.world.sleepers) && self.sleepers(word).is_none()
    }

    /// Where sleepers on a word are woken; none if their sleep ends by itself.
    fn sleepers(&self, word: &AtomicU32) -> Option<&'w Sleepers> {
        let world = self.world;
        let is_lock = std::ptr::eq(word, &world.sleepers);
        match world.sleep {
            Sleep::Slices => None,
            Sleep::DoorbellUntilWoken if is_lock => None,
            _ if is_lock => Some(&world.lock_sleepers),
            _ if std::ptr::eq(word, &world.doorbell) => Some(&world.doorbell_sleepers),
            _ => {
                let mut bells = world.bells.iter().chain(&world.shared_bells).chain(&world.work_bells);
                bells.position(|bell| std::ptr::eq(word, bell)).map(|place| &world.bell_sleepers[place])
            }
        }
    }
}

impl Env for LoomEnv<'_> {
    type U32 = AtomicU32;
    type U64 = AtomicU64;
    const SPINS: u32 = 0;

    fn load32(&self, word: &AtomicU32, order: Ordering) -> u32 {
        if self.is_idle(word) {
            return 0;
        }
        if self.takes_place() { word.load(order) } else { 0 }
    }

    fn store32(&self, word: &AtomicU32, value: u32, order: Ordering) {
        if !self.is_idle(word) && self.takes_place() {
            word.store(value, order);
        }
    }

    fn cas32(&self, word: &AtomicU32, from: u32, to: u32, order: Ordering) -> Result<u32, u32> {
        if self.takes_place() { word.compare_exchange(from, to, order, Relaxed) } else { Err(0) }
    }

    fn load64(&self, word: &AtomicU64, order: Ordering) -> u64 {
        if self.takes_place() { word.load(order) } else { 0 }
    }

    fn store64(&self, word: &AtomicU64, value: u64, order: Ordering) {
        if self.takes_place() {
            word.store(value, order);
        }
    }

    fn cas64(&self, word: &AtomicU64, from: u64, to: u64, order: Ordering) -> Result<u64, u64> {
        if self.takes_place() { word.compare_exchange(from, to, order, Relaxed) } else { Err(0) }
    }

    fn fence(&self, order: Ordering) {
        if self.takes_place() {
            fence(order);
        }
    }

    /// Orders this role against heavy fences, and against nothing else: each role has a cell of its own, which only heavy
    /// fences of other roles touch. So two light fences share no cell, and no order.
    fn light_fence(&self) {
        if !self.is_idle(&self.world.sleepers) && self.takes_place() {
            self.world.barriers[self.role as usize].fetch_add(0, AcqRel);
        }
    }

    /// Touches the cell of every other role once. A light fence that comes before is seen from here on; one that comes
    /// after sees what came before this. The first fence says what the cells are given and the last takes over what they
    /// held, so that a heavy fence hands nothing from one light fence to another.
    fn heavy_fence(&self) {
        if !self.is_idle(&self.world.sleepers) && self.takes_place() {
            fence(SeqCst);
            let cells = self.world.barriers.iter().enumerate();
            for (_, cell) in cells.filter(|(role, _)| *role != self.role as usize) {
                cell.fetch_add(0, Relaxed);
            }
            fence(SeqCst);
        }
    }

    fn rest(&self, _: u32) {
        yield_now();
    }

    fn pause(&self) {
        yield_now();
    }

    fn wait(&self, _: Waiting, word: &AtomicU32, seen: u32, deadline: u64) -> Waited {
        if !self.takes_place() {
            return Waited::SliceOver;
        }
        match self.sleepers(word) {
            None => {
                yield_now();
                Waited::SliceOver
            }
            Some(sleepers) if deadline == NEVER || self.world.has_alarms() => {
                let is_late = || deadline != NEVER && self.now() >= deadline;
                sleepers.sleep(self.role, word, seen, is_late).unwrap_or_else(|| self.die())
            }
            Some(sleepers) => {
                self.time.set(deadline);
                sleepers.doze(self.role, word, seen)
            }
        }
    }

    fn wake_one(&self, word: &AtomicU32) -> bool {
        // Where sleeps end by themselves, it is as if somebody had heard it.
        !self.takes_place() || self.sleepers(word).is_none_or(Sleepers::wake_one)
    }

    fn wake_all(&self, word: &AtomicU32) {
        if self.takes_place()
            && let Some(sleepers) = self.sleepers(word)
        {
            sleepers.wake_all();
        }
    }

    fn free(&self, lock: &AtomicU32, mine: u32) -> bool {
        self.takes_place() && lock.compare_exchange(mine, 0, Release, Relaxed).is_ok()
    }

    fn free_and_wake(&self, lock: &AtomicU32, doorbell: &AtomicU32, wakes: Wakes) -> bool {
        // One operation: no kill comes between.
        if !self.takes_place() {
            return true;
        }
        lock.store(0, Release);
        match (self.sleepers(doorbell), wakes) {
            (None, _) => true,
            (Some(sleepers), Wakes::One) => sleepers.wake_one(),
            (Some(sleepers), Wakes::All) => {
                sleepers.wake_all();
                true
            }
        }
    }

    fn slot_is_free(&self, slot: u32) -> bool {
        self.takes_place() && self.world.byte(slot).load(Acquire) == 0
    }

    fn now(&self) -> u64 {
        if self.world.has_alarms() { self.world.instant() } else { self.time.get() }
    }
}
