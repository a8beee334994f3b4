//! Mutants: the protocol, broken on purpose by the world it runs in.
//!
//! A test that cannot fail proves nothing. Each [`Mutation`] here is one defect: an ordering too weak, a
//! store lost or late, a wake forgotten, a death believed too early. None of them is in the product:
//! [`Mutant`] wraps an environment and tampers with single operations on the way through, so the protocol
//! under test is the shipped one. The model checker (`loom-tests/`) and the tests with real processes include
//! this same file.
//!
//! Words are recognised by address, so the wrapper needs to know nothing about the environment it breaks.

#![allow(dead_code, unreachable_pub, reason = "included by several test crates; each uses a part")]

#[path = "recognise.rs"]
mod recognise;

use std::cell::Cell;
use std::sync::atomic::Ordering::{self, AcqRel, Acquire, Relaxed, Release, SeqCst};

use limitset::core::journal::{description, journal_words};
use limitset::core::owner::slot_of;
use limitset::core::{Block, Env, NEVER, Waited, Waiting};

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
    /// Whoever took the lock from the dead takes no ring for pending.
    PendingOverlooked,
    /// Permits are given back without a look at the queue; by the model, since no operation does it.
    SkipServe,
    /// Whoever asks takes what is there without a look at the queue; by the model, too.
    Overtake,
    /// An acquisition is stamped with the pauses so far when it ends; by the model, too.
    StampAtEnd,
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
    /// Statistics and the like.
    Other,
}

/// The protocol as it is.
pub const CONTROL: Mutation = mutation("none", "nothing", Effect::Nothing);

const fn mutation(name: &'static str, breaks: &'static str, effect: Effect) -> Mutation {
    Mutation { name, breaks, effect }
}

/// The word of a set with the number of those who wait; `docs/format.md` names it.
const QUEUE_LENGTH: usize = 7;
/// Those with the instant of the next admission, the number of pauses, the end of the last one, how many there were in a
/// row, and how many admissions are still spaced.
const NEXT_ADMISSION: usize = 2;
const COOLDOWN_GENERATION: usize = 3;
const COOLDOWN_UNTIL: usize = 8;
const COOLDOWN_COUNT: usize = 9;
const SLOW_ADMISSIONS_LEFT: usize = 10;
/// The first and the last of the words of a set that are reserved; no row that is written at once is longer.
const FIRST_UNUSED: usize = 25;
const UNUSED: usize = 31;
/// The word with the state of the first entry of the queue, in a set of one limit of permits and three slots.
const FIRST_STATE: usize = 32 + 8 + 8 + 3 * 2;

/// The word with the units of the second limit that ever joined the queue, in a set of two limits.
const ENQUEUED_OF_SECOND: usize = 32 + 2 * 8 + 8 + 4;

/// The first of the words of a work queue, in a set of one limit of permits and three slots, where nobody can wait: the
/// item that is handed out next.
const FIRST_READY: usize = 32 + 8 + 8 + 3 * 2;
/// How many items of it are done.
const DONE: usize = FIRST_READY + 22;
/// The words of its first item: state, generation of who has it, attempts.
const ITEM_STATE: usize = FIRST_READY + 32;
const ITEM_GENERATION: usize = ITEM_STATE + 5;
const ITEM_ATTEMPTS: usize = ITEM_STATE + 7;

/// All defects.
#[rustfmt::skip]
pub const MUTATIONS: &[Mutation] = &[
    mutation("lock_without_acquire", "a holder may not see what the last one wrote",
        Effect::WeakenCas(Class::Lock, AcqRel, Release)),
    mutation("unlock_without_release", "a holder may keep its writes from the next one",
        Effect::RelaxStores(Class::Lock)),
    mutation("name_before_generation", "a holder's name may be seen before the generation it belongs to",
        Effect::WeakenCas(Class::Lock, AcqRel, Acquire)),
    mutation("judge_without_acquire", "who judges a holder may know an older generation than the holder's",
        Effect::RelaxLoads(Class::Lock)),
    mutation("generation_without_release", "a new owner may keep from others what its predecessor wrote",
        Effect::RelaxStores(Class::Generation)),
    mutation("generation_without_acquire", "who sees a slot reused may not see what its dead owner wrote",
        Effect::RelaxLoads(Class::Generation)),
    mutation("change_without_release", "a change may be seen with the lock still free",
        Effect::RelaxJournal(true)),
    mutation("commit_without_release", "a change may look over before the words have changed",
        Effect::RelaxJournal(false)),
    mutation("word_without_release", "a changed word may be seen before that something changes",
        Effect::RelaxStores(Class::Word)),
    mutation("reader_without_acquire", "a reader may read words from before the change",
        Effect::RelaxLoads(Class::Change)),
    mutation("writer_without_fence", "undone words may be seen before that something changes",
        Effect::SkipFence(Release)),
    mutation("reader_without_fence", "a reader may look for changes before it has read the words",
        Effect::SkipFence(Acquire)),
    mutation("no_journal", "the journal is always empty",
        Effect::LoseJournal(true)),
    mutation("length_after_word", "a word changes before its old value counts as saved",
        Effect::LengthAfterWord),
    mutation("stale_old_value", "the old value is not saved, undoing restores whatever is there",
        Effect::LoseOldValues),
    mutation("commit_before_apply", "the last word changes after the commit",
        Effect::WordAfterCommit),
    mutation("skip_recovery", "journal entries of the dead are not looked at",
        Effect::Read(Class::Change, 0)),
    mutation("undo_restores_nothing", "recovery empties the journal without restoring a word",
        Effect::LoseUndo),
    mutation("steal_from_the_living", "everybody counts as dead",
        Effect::SlotsLookFree),
    mutation("death_unnoticed", "nobody counts as dead",
        Effect::SlotsLookTaken),
    mutation("generation_not_published", "a new owner of a slot does not write its generation",
        Effect::LoseStores(Class::Generation)),
    mutation("one_generation", "all owners of a slot have the same name",
        Effect::OneGeneration),
    mutation("lock_wake_lost", "unlocking wakes nobody",
        Effect::LoseWakes(Class::Sleepers)),
    mutation("unlock_without_fence", "who unlocks may overlook somebody who is about to sleep",
        Effect::SkipPairedFence(true)),
    mutation("sleeper_without_fence", "who is about to sleep may overlook that the lock is free",
        Effect::SkipPairedFence(false)),
    mutation("waiters_forgotten", "who slept for the lock does not wake the next sleeper",
        Effect::ForgetWaiters),
    mutation("debt_forgotten", "who gives up waiting for the lock keeps its wake from the next sleeper",
        Effect::ForgetDebt),
    mutation("doorbell_not_rung", "giving permits back does not change the doorbell",
        Effect::RingNothing(Class::Doorbell)),
    mutation("doorbell_wake_lost", "giving permits back wakes nobody",
        Effect::LoseWakes(Class::Doorbell)),
    mutation("doorbell_wakes_one", "giving several permits back wakes one sleeper",
        Effect::WakeOneOfAll),
    mutation("sleepers_bit_trusted", "sleepers that the dead were about to wake stay asleep",
        Effect::TrustSleepersBit),
    mutation("taken_not_counted", "taking permits does not raise the total",
        Effect::LoseNonZeroOf(1)),
    mutation("returned_twice", "a dead holder's row keeps what was returned from it",
        Effect::LoseZeroOf(3)),
    mutation("commit_lost", "the journal is never emptied, so what was done is undone later",
        Effect::LoseJournal(false)),
    mutation("grant_not_journalled", "that a waiter was granted something is not undone with the rest",
        Effect::JournalForgets(FIRST_STATE)),
    mutation("bell_not_rung", "a grant does not change the doorbell of its waiter",
        Effect::RingNothing(Class::Bell)),
    mutation("bell_wake_lost", "a grant wakes nobody",
        Effect::LoseWakes(Class::Bell)),
    mutation("bell_without_release", "a participant may hear that it was rung before it sees for which waiter",
        Effect::WeakenCas(Class::Bell, Release, Relaxed)),
    mutation("thief_rings_nobody", "waiters that the dead were about to wake stay asleep",
        Effect::ThiefRingsNothing),
    mutation("pending_rings_overlooked", "the process that recovers the lock takes no waiter's ring for pending",
        Effect::PendingOverlooked),
    mutation("queued_units_overlooked", "it looks as if nobody waits for anything of the second limit",
        Effect::ReadZeroOf(ENQUEUED_OF_SECOND)),
    mutation("queue_not_served", "permits are given back without a look at the queue",
        Effect::SkipServe),
    mutation("newcomer_first", "who asks takes what is there though others wait for it",
        Effect::Overtake),
    mutation("queue_overlooked", "the queue looks empty to everybody",
        Effect::ReadZeroOf(QUEUE_LENGTH)),
    mutation("remover_without_fence", "who removes a set may overlook somebody who is about to wait",
        Effect::SkipStrongFence(true)),
    mutation("waiter_without_fence", "who is about to sleep may overlook that the set was removed",
        Effect::SkipStrongFence(false)),
    mutation("gate_overlooked", "whoever asks is admitted, pause or not",
        Effect::ReadZeroOf(NEXT_ADMISSION)),
    mutation("stamped_at_the_end", "a request counts as admitted when it ends: a late report is about the time after the pause",
        Effect::StampAtEnd),
    mutation("pauses_not_counted", "all pauses have the same number",
        Effect::LoseNonZeroOf(COOLDOWN_GENERATION)),
    mutation("pause_not_journalled", "the end of a pause that was not reported stays",
        Effect::JournalForgets(COOLDOWN_UNTIL)),
    mutation("count_not_journalled", "a report that was not made makes the next pause longer",
        Effect::JournalForgets(COOLDOWN_COUNT)),
    mutation("success_forgotten", "a success does not make the next pause a first one",
        Effect::LoseZeroOf(COOLDOWN_COUNT)),
    mutation("gap_not_noted", "after a pause everybody is admitted at once",
        Effect::LoseNonZeroOf(NEXT_ADMISSION)),
    mutation("slow_start_not_journalled", "an admission that was not made counts in the slow start",
        Effect::JournalForgets(SLOW_ADMISSIONS_LEFT)),
    mutation("taken_item_stays_in_line", "the last item is still the first of its list after it was taken",
        Effect::LoseZeroOf(FIRST_READY)),
    mutation("item_not_journalled", "the state of an item is not undone with the rest",
        Effect::JournalForgets(ITEM_STATE)),
    mutation("end_not_journalled", "that an item is done is counted, and not undone with the rest",
        Effect::JournalForgets(DONE)),
    mutation("owner_of_item_unknown", "nobody can tell that an item is with the dead",
        Effect::ReadZeroOf(ITEM_GENERATION)),
    mutation("attempt_not_counted", "an item does not know how often it was tried",
        Effect::LoseNonZeroOf(ITEM_ATTEMPTS)),
    mutation("pause_number_not_journalled", "a pause that was undone counts as one",
        Effect::JournalForgets(COOLDOWN_GENERATION)),
    mutation("parked_items_do_not_wait", "the set's pause looks over to everybody",
        Effect::ReadZeroOf(COOLDOWN_UNTIL)),
    mutation("bytes_after_commit", "an item's bytes are written after the transaction that says they are there",
        Effect::BytesLate),
    mutation("bell_after_look", "who waits for work asks the doorbell after it has looked",
        Effect::LookBeforeBell),
    mutation("work_bell_without_acquire", "who waits for work may hear of a removal before it sees it",
        Effect::RelaxLoads(Class::Doorbell)),
];

/// Defects of the journal that a kill at the wrong instruction shows on a real machine.
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
            bell: Cell::new(None),
        }
    }

    /// The block, in the broken environment.
    pub fn block(&self) -> Block<'_, Self> {
        self.of.with_env(self)
    }

    /// Whether the last wait ended because time was up.
    fn is_late(&self) -> bool {
        self.of.env.now() >= self.deadline.get()
    }

    /// Does the store that was held back, if there is one.
    fn catch_up(&self) {
        if let Some((index, value)) = self.held_back.take() {
            let word = match index {
                Some(index) => self.of.words.get(index),
                None => Some(self.of.change),
            };
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
        if self.effect != Effect::SkipPairedFence(false) {
            self.of.env.heavy_fence();
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
        self.of.env.wait(what, word, seen, deadline)
    }

    fn wake_one(&self, word: &E::U32) {
        if self.effect != Effect::LoseWakes(self.class32(word)) {
            self.of.env.wake_one(word);
        }
    }

    fn wake_all(&self, word: &E::U32) {
        match self.effect {
            Effect::WakeOneOfAll => self.of.env.wake_one(word),
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

    fn free_and_wake(&self, lock: &E::U32, doorbell: &E::U32) {
        self.catch_up();
        let is_tampered_with = match self.effect {
            Effect::RelaxStores(class) => class == Class::Lock,
            Effect::LoseWakes(_) | Effect::WakeOneOfAll | Effect::TrustSleepersBit => true,
            _ => false,
        };
        self.is_thief.set(false);
        self.is_holder.set(false);
        if !is_tampered_with {
            return self.of.env.free_and_wake(lock, doorbell);
        }
        // Part by part, each as the mutant does it.
        self.store32(lock, 0, Release);
        self.wake_all(doorbell);
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
