//! Acquire: the rules of a set, on the words of its state block, under its lock. Generic over the environment, as
//! the protocol below it; public for model checks and crash tests only, and **not** covered by semantic versioning.
//!
//! ```text
//! table    what the set's limits are, and where their words stand
//! wants    what one request asks of them
//! take     all or none: judge and charge, or say what is in the way
//! at_once  what there is to do nearly always
//! queue    who waits, and in which order
//! serve    grants on their behalf
//! wake     which waiters are woken, also after a death
//! wait     join the queue, sleep, look, leave
//! cooldown pause together, resume slowly
//! give     refund, charge more, release, cancel
//! items    items of work: states, lists, bytes
//! delayed  those that are put off: a heap
//! work     hand them out, take them back, park them
//! collect  results, dead letters, what the dead had
//! bells    who is woken when something of that changes
//! manage   reset, reconfigure, move the clock, mend
//! reap     return what the dead held
//! models   a set for model checks
//! ```
//!
//! Operations are handed a lock that is held, and an instant; only `wait` sleeps, and only without the lock.

mod at_once;
mod bells;
mod collect;
mod cooldown;
mod delayed;
mod give;
pub(crate) mod items;
mod manage;
pub mod models;
pub(crate) mod queue;
mod reap;
mod serve;
mod table;
mod take;
mod wait;
mod wake;
mod wants;
mod work;

pub use self::at_once::{AtOnce, When};
pub use self::bells::{Watch, WorkBell};
pub use self::collect::{Collected, Finishes};
pub use self::cooldown::{Admitted, Ending, Paused, Report, Trial};
pub use self::give::Charge;
pub use self::items::{Items, Lease, Part, Reason};
pub use self::manage::NewNumbers;
pub use self::queue::Waiters;
pub use self::reap::{Swept, Vigil};
pub use self::table::Table;
pub use self::take::{Judged, Standing};
pub use self::wait::{Entered, Look, Patience, Place, Time};
pub use self::wants::Wants;
pub use self::work::{Pushed, Taken, Verdict};
use crate::core::{Block, Env, Fault, Guard, Holdings, Participant, Transaction, Until};
use crate::layout::state::{LimitWord, StateMap};
use crate::math::{Changes, Rule};

/// A set: its words and what they mean.
pub struct Engine<'a, E: Env> {
    /// The words.
    pub block: Block<'a, E>,
    /// Who waits.
    pub waiters: Waiters<'a, E>,
    /// What items of work carry, if there is a queue of them.
    pub items: Items<'a, E>,
    /// What the words mean.
    pub table: &'a Table,
}

impl<E: Env> Clone for Engine<'_, E> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<E: Env> Copy for Engine<'_, E> {}

impl<'a, E: Env> Engine<'a, E> {
    /// The set in a block.
    pub fn new(block: Block<'a, E>, waiters: Waiters<'a, E>, table: &'a Table) -> Self {
        Self { block, waiters, items: Items::none(), table }
    }

    /// The same with a work queue.
    #[must_use]
    pub fn with_items(self, items: Items<'a, E>) -> Self {
        Self { items, ..self }
    }

    /// Takes the lock, waiting as long as it says.
    pub fn lock(&self, me: Participant, until: impl Into<Until>) -> Result<Guard<'_, E>, Fault> {
        let mut guard = self.block.take(me, until.into())?.guard(&self.block);
        self.begin(&mut guard)?;
        Ok(guard)
    }

    /// First act of whoever has taken the lock.
    #[inline(always)]
    pub fn begin(&self, guard: &mut Guard<'_, E>) -> Result<(), Fault> {
        guard.begin_whole()?;
        if guard.is_stolen() {
            self.recover_queue(guard).and_then(|()| self.ring_work_bells(guard))
        } else {
            Ok(())
        }
    }

    /// The instant of a decision: what the clock reads, in set time, and never before the last decision.
    #[inline]
    pub fn now(&self, guard: &Guard<'_, E>, reading: u64) -> Result<u64, Fault> {
        let reading = if self.table.is_manual { guard.get(StateMap::MANUAL_NOW)? } else { reading };
        let now = reading.wrapping_add(guard.get(StateMap::CLOCK_OFFSET)?);
        Ok(now.max(guard.get(StateMap::LAST_NOW)?))
    }

    /// The instant of the last decision: good enough for what no rate and no queue is asked about.
    #[inline]
    pub fn last_now(&self, guard: &Guard<'_, E>) -> Result<u64, Fault> {
        guard.get(StateMap::LAST_NOW)
    }

    /// Who holds how many permits.
    #[inline]
    pub fn holdings(&self) -> Holdings {
        self.table.holdings()
    }

    /// Where the guard's holder notes how many reports it owes of a limit.
    #[inline]
    fn owed(&self, me: Participant, limit: usize) -> usize {
        self.holdings().row(me.slot) + 1 + limit
    }

    fn rule(&self, change: &Transaction<'_, '_, E>, limit: usize) -> Option<Rule> {
        self.table.rule(limit, |index| change.get(index).unwrap_or(0))
    }

    fn write(
        &self,
        change: &mut Transaction<'_, '_, E>,
        limit: usize,
        changes: &Changes,
    ) -> Result<(), Fault> {
        for (word, value) in changes.iter() {
            change.set(self.table.word(limit, word), value)?;
        }
        Ok(())
    }

    /// Decisions never go back behind this one.
    #[inline]
    fn stamp(&self, change: &mut Transaction<'_, '_, E>, now: u64) -> Result<(), Fault> {
        change.set(StateMap::LAST_NOW, now)
    }

    #[inline]
    fn limit_word(&self, limit: usize, word: LimitWord) -> usize {
        self.table.map.limit(limit, word)
    }
}
