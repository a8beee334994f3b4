//! Mutants: the protocol, broken on purpose by the world it runs in.
//!
//! A test that cannot fail proves nothing. Each [`Mutation`] here is one defect: an ordering too weak, a
//! store lost or late, a wake forgotten, a death believed too early. None of them is in the product:
//! [`Mutant`] wraps an environment and tampers with single operations on the way through, so the protocol
//! under test is the shipped one. The model checker (`loom-tests/`) and the tests with real processes include
//! this same file. Words are recognised by address, so the wrapper needs to know nothing about the environment.

#![allow(dead_code, unreachable_pub, reason = "included by several test crates; each uses a part")]

#[path = "recognise.rs"]
mod recognise;

use std::cell::Cell;
use std::sync::atomic::Ordering::{self, AcqRel, Relaxed, Release, SeqCst};

use limitset::core::journal::{description, journal_words};
use limitset::core::owner::slot_of;
use limitset::core::{Block, Env, NEVER, Waited, Waiting, Wakes};

use self::recognise::position;

/// One defect.
#[derive(Clone, Copy, Debug)]
pub struct Mutation {
    /// What reports call it.
    pub name: &'static str,
    /// What goes wrong, in one line.
    pub breaks: &'static str,
    /// How the environment brings it about.
    pub effect: Effect,
}

/// What the environment does differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing: the control.
    Nothing,
    /// Compare-and-exchanges of this class that ask for the first ordering get the second.
    WeakenCas(Class, Ordering, Ordering),
    /// Loads of this class are relaxed.
    RelaxLoads(Class),
    /// Stores of this class are relaxed.
    RelaxStores(Class),
    /// Stores that make the journal longer (true) or empty are relaxed.
    RelaxJournal(bool),
    /// Fences of this ordering are left out.
    SkipFence(Ordering),
    /// Light fences (true) or heavy ones are left out.
    SkipPairedFence(bool),
    /// Heavy fences are light ones.
    LightenFences,
    /// Sequentially consistent fences are left out by who marks the segment as removed (true) or by all others.
    SkipStrongFence(bool),
    /// Loads of this class answer a constant.
    Read(Class, u64),
    /// Stores of this class are lost.
    LoseStores(Class),
    /// Old values do not come to stand in the journal.
    LoseOldValues,
    /// Stores that make the journal longer (true) or empty are lost.
    LoseJournal(bool),
    /// Loads of the word with this index answer 0.
    ReadZeroOf(usize),
    /// Stores that make the journal exactly so many words long are lost.
    LoseLength(u64),
    /// The entries of the journal say that they are about words that nobody uses.
    NameUnusedWords,
    /// Stores of 0 to the word with this index are lost.
    LoseZeroOf(usize),
    /// Stores of anything but 0 to the word with this index are lost.
    LoseNonZeroOf(usize),
    /// Stores to words with the ordering that only undoing uses are lost.
    LoseUndo,
    /// A store to a word is done at the next use of a word or after the commit, whichever comes first.
    WordAfterCommit,
    /// The journal names another word, which nobody uses, instead of the one with this index.
    JournalForgets(usize),
    /// The journal grows after the word has changed.
    LengthAfterWord,
    /// Every participant gets generation 1, and every slot says so.
    OneGeneration,
    /// Every slot is free.
    SlotsLookFree,
    /// No slot is ever free.
    SlotsLookTaken,
    /// A taker of the lock does not carry on that others sleep.
    ForgetWaiters,
    /// Who gives up waiting for the lock does not say that others sleep.
    ForgetDebt,
    /// Wakes of this class are lost.
    LoseWakes(Class),
    /// Wakes for all reach one.
    WakeOneOfAll,
    /// Rings of doorbells of this class leave them as they were.
    RingNothing(Class),
    /// Whoever took the lock from the dead rings no waiter's doorbell while holding it.
    ThiefRingsNothing,
    /// A participant that has slept on a doorbell rings none any more.
    WokenRingsNobody,
    /// Whoever took the lock from the dead takes no ring for pending.
    PendingOverlooked,
    /// Permits are given back without a look at the queue; by the model, since no operation does it.
    SkipServe,
    /// Whoever asks takes what is there without a look at the queue; by the model, too.
    Overtake,
    /// An acquisition is stamped with the pauses so far when it ends; by the model, too.
    StampAtEnd,
    /// A waiter leaves its entry without asking whose it is by now; by the model, too.
    LeaveUnasked,
    /// The doorbell wakes somebody only if its bit says that somebody sleeps.
    TrustSleepersBit,
    /// Bytes of an item are written after the transaction that says that they are there; by the model.
    BytesLate,
    /// Who waits for work asks what the doorbell says after the look, not before it; by the model, too.
    LookBeforeBell,
}

/// What a word is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The lock.
    Lock,
    /// Whether somebody may be asleep for it.
    Sleepers,
    /// The doorbell.
    Doorbell,
    /// The doorbell of a waiter in the queue, or of a participant.
    Bell,
    /// The length of the journal, and the count of changes.
    Change,
    /// What the journal keeps: old values, and where they belong.
    Journal,
    /// What the lock guards.
    Word,
    /// The generation of a slot.
    Generation,
    /// Statistics, and what sweeps note for the next one.
    Other,
}

/// The protocol as it is.
pub const CONTROL: Mutation = mutation("none", "nothing", Effect::Nothing);

const fn mutation(name: &'static str, breaks: &'static str, effect: Effect) -> Mutation {
    Mutation { name, breaks, effect }
}

#[path = "mutations.rs"]
mod mutations;
pub use mutations::MUTATIONS;
use mutations::{FIRST_UNUSED, UNUSED};

/// Defects that a kill at the wrong instruction shows on a real machine.
pub const JOURNAL_MUTATIONS: [&str; 3] = ["no_journal", "commit_before_apply", "stale_old_value"];

/// The defect with this name, or the control.
pub fn named(name: &str) -> Option<Mutation> {
    std::iter::once(&CONTROL).chain(MUTATIONS).find(|mutation| mutation.name == name).copied()
}

/// An environment with a defect. One per thread: it remembers things from one operation to the next.
pub struct Mutant<'w, E: Env> {
    /// The block in its own environment. Words are recognised by where they are in it.
    of: Block<'w, E>,
    generations: &'w [E::U64],
    effect: Effect,
    /// A store to be done later: index of the word (none: the length of the journal) and value.
    held_back: Cell<Option<(Option<usize>, u64)>>,
    /// Deadline of the last wait.
    deadline: Cell<u64>,
    /// Whether the sleepers' bit was set at the last ring.
    sleepers: Cell<bool>,
    /// Whether the lock was last taken from the dead.
    is_thief: Cell<bool>,
    /// Whether the lock is held.
    is_holder: Cell<bool>,
    /// Whether this is who marks the segment as removed.
    is_remover: Cell<bool>,
    /// Whether this has slept on a doorbell.
    has_slept: Cell<bool>,
    /// What the doorbell of a waiter said that was looked at, and not rung since.
    bell: Cell<Option<u32>>,
}

impl<'w, E: Env> Mutant<'w, E> {
    /// Breaks the environment of `block`. `generations` is what the block's slots were made of; empty if the
    /// defect has nothing to do with them.
    pub fn new(block: Block<'w, E>, generations: &'w [E::U64], mutation: Mutation) -> Self {
        Self {
            of: block,
            generations,
            effect: mutation.effect,
            held_back: Cell::new(None),
            deadline: Cell::new(NEVER),
            sleepers: Cell::new(false),
            is_thief: Cell::new(false),
            is_holder: Cell::new(false),
            is_remover: Cell::new(false),
            has_slept: Cell::new(false),
            bell: Cell::new(None),
        }
    }

    /// The block, in the broken environment.
    pub fn block(&self) -> Block<'_, Self> {
        self.of.with_env(self)
    }

    /// Whether a wake or ring of this class is one that is kept back.
    fn is_silent(&self, class: Class) -> bool {
        self.effect == Effect::WokenRingsNobody && class == Class::Bell && self.has_slept.get()
    }

    /// Whether the last wait ended because time was up.
    fn is_late(&self) -> bool {
        self.of.env.now() >= self.deadline.get()
    }

    /// Does the store that was held back, if there is one.
    fn catch_up(&self) {
        if let Some((index, value)) = self.held_back.take() {
            let word = index.map_or(Some(self.of.change), |index| self.of.words.get(index));
            if let Some(word) = word {
                self.of.env.store64(word, value, Release);
            }
        }
    }
}

impl<E: Env> Env for Mutant<'_, E> {
    type U32 = E::U32;
    type U64 = E::U64;
    const SPINS: u32 = E::SPINS;

    fn load32(&self, word: &E::U32, order: Ordering) -> u32 {
        let class = self.class32(word);
        let is_relaxed = self.effect == Effect::RelaxLoads(class);
        let value = self.of.env.load32(word, if is_relaxed { Relaxed } else { order });
        if self.effect == Effect::PendingOverlooked && class == Class::Bell && self.is_thief.get() {
            self.bell.set(Some(value));
        }
        value
    }

    fn cas32(&self, word: &E::U32, from: u32, to: u32, order: Ordering) -> Result<u32, u32> {
        self.catch_up();
        let env = self.of.env;
        let class = self.class32(word);
        self.bell.set(None);
        if class == Class::Lock && order != Relaxed {
            self.is_thief.set(order == AcqRel && slot_of(from) != 0);
        }
        if class == Class::Doorbell && order != Relaxed {
            self.sleepers.set(from & 1 != 0);
        }
        match self.effect {
            Effect::WeakenCas(of, strong, weak) if of == class && order == strong => {
                env.cas32(word, from, to, weak)
            }
            Effect::RingNothing(of) if of == class && order != Relaxed => Ok(from),
            Effect::ThiefRingsNothing if class == Class::Bell && self.is_thief.get() => Ok(from),
            Effect::WokenRingsNobody if self.is_silent(class) && order != Relaxed => Ok(from),
            _ if class == Class::Lock => {
                let taken = env.cas32(word, from, to, order);
                self.is_holder.set(taken.is_ok());
                taken
            }
            _ => env.cas32(word, from, to, order),
        }
    }

    fn store32(&self, word: &E::U32, value: u32, order: Ordering) {
        self.catch_up();
        let class = self.class32(word);
        if class == Class::Lock {
            self.is_holder.set(false);
            self.is_thief.set(false);
        }
        match self.effect {
            Effect::RelaxStores(of) if of == class => self.of.env.store32(word, value, Relaxed),
            Effect::ForgetWaiters if class == Class::Sleepers && self.is_holder.get() => {}
            Effect::ForgetDebt if class == Class::Sleepers && value != 0 && self.is_late() => {}
            _ => self.of.env.store32(word, value, order),
        }
    }

    fn load64(&self, word: &E::U64, order: Ordering) -> u64 {
        let class = self.class64(word);
        if class == Class::Word {
            self.catch_up();
        }
        match self.effect {
            Effect::RelaxLoads(of) if of == class => self.of.env.load64(word, Relaxed),
            // What its waiter noted when it last looked is asked for next.
            Effect::PendingOverlooked if class == Class::Other && self.bell.get().is_some() => {
                self.bell.take().unwrap_or_default().into()
            }
            Effect::Read(of, value) if of == class => value,
            Effect::ReadZeroOf(index) if position(self.of.words, word) == Some(index) => 0,
            // Enrolling adds one to what it reads, relaxed; all others read what there is.
            Effect::OneGeneration if class == Class::Generation => u64::from(order != Relaxed),
            _ => self.of.env.load64(word, order),
        }
    }

    fn store64(&self, word: &E::U64, value: u64, order: Ordering) {
        let env = self.of.env;
        let class = self.class64(word);
        let index = || position(self.of.words, word);
        let is_longer = journal_words(value) != 0;
        let is_description = |value: u64| {
            let (index, count) = (value & u64::from(u32::MAX), value >> 32);
            (1..=64).contains(&count) && index < self.of.words.len() as u64
        };
        if std::ptr::eq(word, self.of.closed) {
            self.is_remover.set(true);
        }
        match self.effect {
            Effect::RelaxStores(of) if of == class => env.store64(word, value, Relaxed),
            Effect::RelaxJournal(longer) if class == Class::Change && longer == is_longer => {
                env.store64(word, value, Relaxed);
            }
            Effect::LoseStores(of) if of == class => {}
            Effect::LoseJournal(longer) if class == Class::Change && longer == is_longer => {}
            Effect::LoseOldValues if class == Class::Journal && !is_description(value) => {}
            Effect::LoseLength(of) if class == Class::Change && journal_words(value) == of => {}
            Effect::NameUnusedWords if class == Class::Journal && is_description(value) => {
                env.store64(word, value & !u64::from(u32::MAX) | FIRST_UNUSED as u64, order);
            }
            Effect::LoseZeroOf(lost) if value == 0 && index() == Some(lost) => {}
            Effect::LoseNonZeroOf(lost) if value != 0 && index() == Some(lost) => {}
            Effect::LoseUndo if class == Class::Word && order == Relaxed => {}
            Effect::WordAfterCommit if class == Class::Word => {
                self.catch_up();
                self.held_back.set(Some((index(), value)));
            }
            Effect::WordAfterCommit if class == Class::Change && !is_longer => {
                env.store64(word, value, order);
                self.catch_up();
            }
            Effect::JournalForgets(index) if class == Class::Journal && value == description(index, 1) => {
                env.store64(word, description(UNUSED, 1), order);
            }
            Effect::LengthAfterWord if class == Class::Change && is_longer => {
                self.held_back.set(Some((None, value)));
            }
            Effect::LengthAfterWord if class == Class::Word => {
                env.store64(word, value, order);
                self.catch_up();
            }
            _ => env.store64(word, value, order),
        }
    }

    fn cas64(&self, word: &E::U64, from: u64, to: u64, order: Ordering) -> Result<u64, u64> {
        self.of.env.cas64(word, from, to, order)
    }

    fn fence(&self, order: Ordering) {
        let is_left_out = match self.effect {
            Effect::SkipFence(of) => of == order,
            Effect::SkipStrongFence(by_remover) => order == SeqCst && by_remover == self.is_remover.get(),
            _ => false,
        };
        if !is_left_out {
            self.of.env.fence(order);
        }
    }

    fn light_fence(&self) {
        if self.effect != Effect::SkipPairedFence(true) {
            self.of.env.light_fence();
        }
    }

    fn heavy_fence(&self) {
        match self.effect {
            Effect::SkipPairedFence(false) => {}
            Effect::LightenFences => self.of.env.light_fence(),
            _ => self.of.env.heavy_fence(),
        }
    }

    fn rest(&self, looks: u32) {
        self.of.env.rest(looks);
    }

    fn pause(&self) {
        self.of.env.pause();
    }

    fn wait(&self, what: Waiting, word: &E::U32, seen: u32, deadline: u64) -> Waited {
        self.deadline.set(deadline);
        if self.class32(word) == Class::Bell {
            self.has_slept.set(true);
        }
        self.of.env.wait(what, word, seen, deadline)
    }

    fn wake_one(&self, word: &E::U32) -> bool {
        // A wake that is lost looks like one that was heard.
        let class = self.class32(word);
        self.effect == Effect::LoseWakes(class) || self.is_silent(class) || self.of.env.wake_one(word)
    }

    fn wake_all(&self, word: &E::U32) {
        match self.effect {
            Effect::WakeOneOfAll => drop(self.of.env.wake_one(word)),
            Effect::TrustSleepersBit if !self.sleepers.get() => {}
            Effect::LoseWakes(of) if of == self.class32(word) => {}
            _ => self.of.env.wake_all(word),
        }
    }

    fn free(&self, lock: &E::U32, mine: u32) -> bool {
        self.catch_up();
        self.is_holder.set(false);
        self.is_thief.set(false);
        match self.effect {
            Effect::RelaxStores(Class::Lock) => self.of.env.cas32(lock, mine, 0, Relaxed).is_ok(),
            _ => self.of.env.free(lock, mine),
        }
    }

    fn free_and_wake(&self, lock: &E::U32, doorbell: &E::U32, wakes: Wakes) -> bool {
        self.catch_up();
        let is_tampered_with = match self.effect {
            Effect::RelaxStores(class) => class == Class::Lock,
            Effect::LoseWakes(_) | Effect::WakeOneOfAll => true,
            Effect::TrustSleepersBit | Effect::WokenRingsNobody => true,
            _ => false,
        };
        self.is_thief.set(false);
        self.is_holder.set(false);
        if !is_tampered_with {
            return self.of.env.free_and_wake(lock, doorbell, wakes);
        }
        // Part by part, each as the mutant does it.
        self.store32(lock, 0, Release);
        match wakes {
            Wakes::One => self.wake_one(doorbell),
            Wakes::All => {
                self.wake_all(doorbell);
                true
            }
        }
    }

    fn slot_is_free(&self, slot: u32) -> bool {
        match self.effect {
            Effect::SlotsLookFree => true,
            Effect::SlotsLookTaken => false,
            _ => self.of.env.slot_is_free(slot),
        }
    }

    fn now(&self) -> u64 {
        self.of.env.now()
    }
}
