//! Changing a set as a whole: reset, reconfigure, move the clock, mend what a power failure tore.

use super::{Engine, WorkBell};
use crate::core::{Env, Fault, Guard, Wakes};
use crate::layout::state::{RuleWord, StateMap};
use crate::math::Rule;

/// Where a manual clock stops, after 292 years: behind it a window would end before it begins.
const END_OF_TIME: u64 = 1 << 63;

/// New numbers of one limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewNumbers {
    /// Which limit.
    pub limit: usize,
    /// Units per window, or permits in all.
    pub capacity: u64,
    /// Length of the window; 0 for permits.
    pub window_nanos: u64,
    /// Most units at once; 0 for permits.
    pub burst: u64,
}

impl<E: Env> Engine<'_, E> {
    /// Makes every rate as if nobody had used it; debt is forgotten. Permits stay with their holders.
    pub fn reset(&self, guard: &mut Guard<'_, E>, now: u64) -> Result<(), Fault> {
        let mut change = guard.begin();
        for limit in 0..self.table.len() {
            let Some(rule) = self.rule(&change, limit) else { continue };
            let changes = {
                let state = self.table.state(limit, |index| change.get(index).unwrap_or(0));
                rule.reset(&state, now)
            };
            self.write(&mut change, limit, &changes)?;
        }
        let ticket = change.get(StateMap::NEXT_TICKET)?;
        change.set(StateMap::RESET_TICKET, ticket)?;
        self.stamp(&mut change, now)?;
        change.commit();
        self.rejudge(guard, now)
    }

    /// Changes numbers of several limits at one instant.
    pub fn reconfigure(
        &self,
        guard: &mut Guard<'_, E>,
        numbers: &[NewNumbers],
        now: u64,
    ) -> Result<(), Fault> {
        let mut change = guard.begin();
        for new in numbers {
            let map = self.table.map;
            let mut capacity = new.capacity;
            if let Some(old) = self.rule(&change, new.limit) {
                let rule = Rule::new(old.algorithm(), new.capacity, new.window_nanos)
                    .with_burst(new.burst)
                    .with_resolution(old.resolution())
                    .with_wall_offset(change.get(StateMap::WALL_OFFSET)?);
                let changes = {
                    let state = self.table.state(new.limit, |index| change.get(index).unwrap_or(0));
                    old.reconfigure(&rule, &state, now)
                };
                self.write(&mut change, new.limit, &changes)?;
                change.set(map.rule(new.limit, RuleWord::WindowNanos), rule.window_nanos())?;
                change.set(map.rule(new.limit, RuleWord::Burst), rule.burst())?;
                capacity = rule.capacity();
            }
            change.set(map.rule(new.limit, RuleWord::Capacity), capacity)?;
            change.add(map.rule(new.limit, RuleWord::Revision), 1)?;
        }
        self.stamp(&mut change, now)?;
        change.commit();
        self.rejudge(guard, now)
    }

    /// Moves a manual clock on.
    pub fn advance(&self, guard: &mut Guard<'_, E>, nanos: u64) -> Result<(), Fault> {
        let mut change = guard.begin();
        let now = change.get(StateMap::MANUAL_NOW)?;
        change.set(StateMap::MANUAL_NOW, now.saturating_add(nanos).min(END_OF_TIME))?;
        change.commit();
        let now = self.now(guard, 0)?;
        self.serve(guard, u64::MAX, now)?;
        // Items whose time was to come may be due.
        self.ring_work(guard, WorkBell::Takers, Wakes::One)
    }

    /// When nobody else is attached: a rate that has decided about an instant that is yet to come was torn by a
    /// power failure, or damaged. It becomes as empty as it can be, so that nobody gains.
    pub fn mend(&self, guard: &mut Guard<'_, E>) -> Result<(), Fault> {
        let now = guard.get(StateMap::LAST_NOW)?;
        self.mend_gate(guard, now)?;
        for limit in 0..self.table.len() {
            let get = |index: usize| guard.get(index).unwrap_or(0);
            let Some(rule) = self.table.rule(limit, get) else { continue };
            if rule.decided_until(&self.table.state(limit, get)) <= now {
                continue;
            }
            let empty = rule.reset(&self.table.state(limit, get), now);
            let mut change = guard.begin();
            self.write(&mut change, limit, &empty)?;
            let used = {
                let state = self.table.state(limit, |index| change.get(index).unwrap_or(0));
                rule.adjust(&state, now, i64::try_from(rule.most()).unwrap_or(i64::MAX))
            };
            self.write(&mut change, limit, &used)?;
            change.commit();
        }
        Ok(())
    }
}
