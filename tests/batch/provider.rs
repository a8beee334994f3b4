//! The other side: words of the segment that every worker calls, and that keep their own count of what happened.
//!
//! It answers by the item and by how often it has rejected it before, and by nothing else. It also knows who works on
//! which item: that an item is with two workers at one time would be seen here, not only in the queue's own words.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

use limitset::{LimitSet, SegmentOptions};

use crate::cases::Case;

// Words of the board.
const FAILED: usize = 0;
/// What workers have done so far, in small steps: kills are timed by it.
const STEPS: usize = 1;
/// The manual clock, as its only mover writes it down before moving it.
const NOW: usize = 2;
const IN_FLIGHT: usize = 3;
const ADMISSIONS: usize = 4;
const BOARD: u32 = 5;

// Words of an item.
const EXECUTIONS: usize = 0;
const REJECTIONS: usize = 1;
const SUCCESSES: usize = 2;
/// The number of the worker that works on it.
const HOLDER: usize = 3;
const ITEM: usize = 4;

/// Most workers that a run can have, one after the other; they are numbered from 1.
pub(crate) const MOST_WORKERS: usize = 256;
/// Most admissions that are written down.
const MOST_ADMISSIONS: usize = 2_048;

// The fate of a worker.
const LIVES: u64 = 0;
/// Its call hangs until it is killed.
const HANGS: u64 = 1;
/// It is about to be killed, and may be dead.
const DOOMED: u64 = 2;
const DEAD: u64 = 3;

/// What the provider answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Success,
    TooManyRequests,
    /// Never: the worker that asks is killed.
    None,
}

/// What the provider has seen of one item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) executions: u64,
    pub(crate) rejections: u64,
    pub(crate) successes: u64,
    pub(crate) holder: u64,
}

pub(crate) struct Provider<'a> {
    case: &'a Case,
    board: &'a [AtomicU64],
    items: &'a [AtomicU64],
    workers: &'a [AtomicU64],
    admissions: &'a [AtomicU64],
    /// Indexed by the number of a pause: how many reports say that they began it.
    pauses: &'a [AtomicU64],
}

impl<'a> Provider<'a> {
    /// The words that it needs.
    pub(crate) fn words(options: SegmentOptions, case: &Case) -> SegmentOptions {
        let count = |words: usize| u32::try_from(words).unwrap();
        options
            .words("board", BOARD)
            .words("items", count(ITEM) * count(case.items))
            .words("workers", count(MOST_WORKERS))
            .words("admissions", count(MOST_ADMISSIONS))
            .words("pauses", count(MOST_ADMISSIONS))
    }

    pub(crate) fn of(set: &'a LimitSet, case: &'a Case) -> Self {
        let words = |label| set.segment().words(label).unwrap();
        Self {
            case,
            board: words("board"),
            items: words("items"),
            workers: words("workers"),
            admissions: words("admissions"),
            pauses: words("pauses"),
        }
    }

    fn item(&self, id: u64, word: usize) -> &'a AtomicU64 {
        &self.items[usize::try_from(id).unwrap() * ITEM + word]
    }

    fn worker(&self, number: u64) -> &'a AtomicU64 {
        &self.workers[usize::try_from(number).unwrap()]
    }

    /// Somebody begins to work on an item. Nobody else may, unless that one was killed: then it is known to be, or will
    /// be as soon as the kernel has buried it.
    pub(crate) fn begin(&self, id: u64, me: u64) {
        let holder = self.item(id, HOLDER);
        let Err(other) = holder.compare_exchange(0, me, SeqCst, SeqCst) else { return };
        let fate = self.worker(other);
        assert!(fate.load(SeqCst) >= DOOMED, "item {id} is with {other}, who lives, and with {me}");
        while fate.load(SeqCst) != DEAD {
            std::thread::yield_now();
        }
        let taken = holder.compare_exchange(other, me, SeqCst, SeqCst);
        assert_eq!(taken, Ok(other), "item {id}: {other} went on after {me} had got it");
    }

    /// It does so no longer; said before the queue is told.
    pub(crate) fn end(&self, id: u64, me: u64) {
        let left = self.item(id, HOLDER).compare_exchange(me, 0, SeqCst, SeqCst);
        assert_eq!(left, Ok(me), "item {id} was taken from {me}, who lives");
    }

    /// A call about an item.
    pub(crate) fn call(&self, id: u64) -> Answer {
        self.step();
        let execution = self.item(id, EXECUTIONS).fetch_add(1, SeqCst) + 1;
        if self.case.together && execution == 1 {
            // All at one time: no worker has an answer before all have asked.
            self.board[IN_FLIGHT].fetch_add(1, SeqCst);
            while self.board[IN_FLIGHT].load(SeqCst) < self.case.items as u64 {
                std::thread::yield_now();
            }
        }
        // Only one worker has the item, so this is not a race.
        if self.item(id, REJECTIONS).load(SeqCst) < (self.case.rejections)(id) {
            self.item(id, REJECTIONS).fetch_add(1, SeqCst);
            return Answer::TooManyRequests;
        }
        if (self.case.is_deadly)(id) {
            return Answer::None;
        }
        self.item(id, SUCCESSES).fetch_add(1, SeqCst);
        Answer::Success
    }

    pub(crate) fn seen(&self, id: u64) -> Seen {
        let [executions, rejections, successes, holder] =
            [EXECUTIONS, REJECTIONS, SUCCESSES, HOLDER].map(|word| self.item(id, word).load(SeqCst));
        Seen { executions, rejections, successes, holder }
    }

    /// Notes progress; gives the processor away now and then, so that whatever is to come can come here.
    pub(crate) fn step(&self) {
        if self.board[STEPS].fetch_add(1, SeqCst).is_multiple_of(3) {
            std::thread::yield_now();
        }
    }

    pub(crate) fn steps(&self) -> u64 {
        self.board[STEPS].load(SeqCst)
    }

    /// Who was admitted writes down when. The clock does not move before everybody who was has done so.
    pub(crate) fn note_admission(&self) {
        let place = self.board[ADMISSIONS].fetch_add(1, SeqCst);
        self.admissions[usize::try_from(place).unwrap()].store(self.board[NOW].load(SeqCst), SeqCst);
    }

    /// The times of all admissions, in order, in nanoseconds of the manual clock.
    pub(crate) fn admissions(&self) -> Vec<u64> {
        let count = usize::try_from(self.board[ADMISSIONS].load(SeqCst)).unwrap();
        self.admissions[..count].iter().map(|it| it.load(SeqCst)).collect()
    }

    pub(crate) fn set_now(&self, nanos: u64) {
        self.board[NOW].store(nanos, SeqCst);
    }

    /// A report says that it began this pause; there is one for each.
    pub(crate) fn note_pause(&self, generation: u64) {
        let before = self.pauses[usize::try_from(generation).unwrap()].fetch_add(1, SeqCst);
        assert_eq!(before, 0, "pause {generation} began twice");
    }

    /// How many of the pauses from 1 to `generation` a living worker has begun.
    pub(crate) fn pauses(&self, generation: u64) -> u64 {
        let count = usize::try_from(generation).unwrap();
        self.pauses[1..=count].iter().map(|it| it.load(SeqCst)).sum()
    }

    /// In a worker whose call gets no answer.
    pub(crate) fn hang(&self, me: u64) -> ! {
        // Unless it is doomed already.
        let _ = self.worker(me).compare_exchange(LIVES, HANGS, SeqCst, SeqCst);
        loop {
            std::thread::yield_now();
        }
    }

    pub(crate) fn hangs(&self, number: u64) -> bool {
        self.worker(number).load(SeqCst) == HANGS
    }

    /// Before a worker is killed.
    pub(crate) fn doom(&self, number: u64) {
        self.worker(number).store(DOOMED, SeqCst);
    }

    /// When it is buried.
    pub(crate) fn bury(&self, number: u64) {
        self.worker(number).store(DEAD, SeqCst);
    }

    /// Whether a holder's name may be left on an item: nobody's, or that of a dead.
    pub(crate) fn is_gone(&self, number: u64) -> bool {
        number == 0 || self.worker(number).load(SeqCst) == DEAD
    }

    pub(crate) fn fail(&self) {
        self.board[FAILED].store(1, SeqCst);
    }

    pub(crate) fn check_failures(&self) {
        assert_eq!(self.board[FAILED].load(SeqCst), 0, "a worker failed, see above");
    }
}
