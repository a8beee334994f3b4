//! At once: what there is to do nearly always. Nobody waits for the same, nothing pauses, all of it is there.
//!
//! This is what users pay for with every request, so it stands apart. The lock is taken without a [`Guard`], and freed at
//! the one end that each function here has: there is nothing in between that calls anything, so nothing that could
//! panic, and what there is to know stays in registers. Whatever is out of the ordinary is [unclear](AtOnce::Unclear):
//! nothing has happened then, and it takes a closer look elsewhere.

use std::sync::atomic::Ordering::Relaxed;

use super::charge::Wish;
use super::{Admitted, Engine, Wants};
use crate::format::state::StateMap;
use crate::limit::Order;
use crate::protocol::holdings::give_of;
use crate::protocol::{Env, Fault, Guard, Participant, Progress};

/// What came of asking without a look at the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtOnce {
    /// Charged.
    Granted {
        /// Its number in the order of arrival.
        ticket: u64,
        /// When.
        admitted: Admitted,
    },
    /// Nobody waits for the same, nothing pauses, and it does not fit now.
    NotThere,
    /// Somebody waits for the same, or the set pauses or resumes: that takes a closer look.
    Unclear,
}

/// When something is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// At this instant of set time.
    At(u64),
    /// When the clock reads this.
    Reading(u64),
    /// Whenever the last decision was made: good enough where no rate is wanted.
    Last,
}

/// As many words of the set as are looked at.
const HEAD: usize = StateMap::MANUAL_NOW + 1;

impl<E: Env> Engine<'_, E> {
    /// Takes what is wanted if it is there, nobody waits for the same and nothing pauses; none if the lock is taken. Not
    /// for rates that keep cells, which are unclear.
    #[inline(always)]
    pub fn ask_at_once(
        &self,
        me: Participant,
        wants: &Wants,
        owing: u64,
        when: When,
    ) -> Option<Result<AtOnce, Fault>> {
        let (block, mine) = (&self.block, me.word());
        if !block.take_free(mine) {
            return None;
        }
        let mut answer = AtOnce::Unclear;
        if let Some(mut progress) = block.begin_if_whole() {
            answer = self
                .charge_at_once::<false>(&mut progress, me, wants, owing, when)
                .unwrap_or(AtOnce::Unclear);
            if !matches!(answer, AtOnce::Granted { .. }) {
                progress.abandon(block);
            }
        }
        Some(block.free(mine).map(|()| answer))
    }

    /// The same with the lock, and for all rates.
    pub fn enter_at_once(&self, guard: &mut Guard<'_, E>, wants: &Wants, owing: u64, when: When) -> AtOnce {
        let me = guard.holder();
        let mut change = guard.begin();
        self.charge_at_once::<true>(&mut change.progress, me, wants, owing, when).unwrap_or(AtOnce::Unclear)
    }

    /// Charges all of it and commits that; or does not, and then what was changed has to be undone. None if it cannot tell.
    #[inline(always)]
    fn charge_at_once<const CELLS: bool>(
        &self,
        progress: &mut Progress<'_, E>,
        me: Participant,
        wants: &Wants,
        owing: u64,
        when: When,
    ) -> Option<AtOnce> {
        let block = &self.block;
        let words: &[E::U64; HEAD] = block.row(0)?;
        let get = |index: usize| words.get(index).map_or(0, |word| block.env.load64(word, Relaxed));
        let row = self.table.row(me.slot);
        let length = get(StateMap::QUEUE_LENGTH);
        let is_waited_for = length != 0
            && self.table.order == Order::Arrival
            && self.may_be_waited_for(length, wants.demand());
        let is_scarce = get(StateMap::NEXT_ADMISSION) | get(StateMap::SLOW_ADMISSIONS_LEFT) != 0;
        if is_waited_for || is_scarce || block.get(row).ok()? != me.generation {
            return None;
        }
        let last = get(StateMap::LAST_NOW);
        let now = match when {
            When::At(now) => now,
            When::Reading(reading) => {
                let reading = if self.table.is_manual { get(StateMap::MANUAL_NOW) } else { reading };
                reading.wrapping_add(get(StateMap::CLOCK_OFFSET)).max(last)
            }
            When::Last => last,
        };
        let wish = |(limit, amount)| Wish { row, limit, amount, owing, now };
        // One limit apart from several: then nothing has to be remembered from one to the next.
        if let Some(one) = wants.only_one() {
            if !self.take_one::<CELLS>(progress, wish(one))? {
                return Some(AtOnce::NotThere);
            }
        } else {
            for one in wants.iter() {
                if !self.take_one::<CELLS>(progress, wish(one))? {
                    return Some(AtOnce::NotThere);
                }
            }
        }
        let ticket = get(StateMap::NEXT_TICKET);
        let stamp = words.first_chunk()?;
        progress.change(block, StateMap::LAST_NOW, stamp, [last, ticket], [now, ticket.wrapping_add(1)])?;
        progress.commit(block);
        // Who takes nothing does nothing that could go well.
        let on_trial = get(StateMap::COOLDOWN_COUNT) != 0 && wants.demand() != 0;
        let admitted = Admitted::new(get(StateMap::COOLDOWN_GENERATION), on_trial);
        Some(AtOnce::Granted { ticket, admitted })
    }

    /// Gives back what was granted of these limits, which are permits, if that is of interest to nobody else: false if it
    /// is, or if the lock is taken, and then nothing has happened.
    #[inline(always)]
    pub fn give_at_once(&self, me: Participant, granted: &Wants, permits: u64) -> Result<bool, Fault> {
        let (block, mine) = (&self.block, me.word());
        if !block.take_free(mine) {
            return Ok(false);
        }
        let mut is_done = false;
        if let Some(mut progress) = block.begin_if_whole() {
            is_done = self.give_all(&mut progress, me, granted, permits).is_some();
            if !is_done {
                progress.abandon(block);
            }
        }
        block.free(mine).map(|()| is_done)
    }

    #[inline(always)]
    fn give_all(
        &self,
        progress: &mut Progress<'_, E>,
        me: Participant,
        granted: &Wants,
        permits: u64,
    ) -> Option<()> {
        let block = &self.block;
        let row = self.table.row(me.slot);
        if block.get(StateMap::QUEUE_LENGTH).ok()? != 0 || block.get(row).ok()? != me.generation {
            return None;
        }
        for (limit, amount) in granted.iter() {
            if permits >> limit & 1 == 0 {
                continue;
            }
            let total = self.table.entry(limit)?.first_word;
            give_of(progress, block, total, row + 1 + limit, amount)?;
        }
        progress.commit(block);
        Some(())
    }
}

const _: () = assert!(StateMap::LAST_NOW == 0, "the stamp is the first of the words");
