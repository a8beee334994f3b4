//! Returning what the dead held. Their permits are free again; what they were charged of rates stays, and the
//! reports they owed are counted as missing.

use std::sync::atomic::Ordering::Relaxed;

use super::Engine;
use crate::core::{Env, Fault, Guard, Participant};
use crate::layout::state::{LimitWord, StateMap};

impl<E: Env> Engine<'_, E> {
    /// Makes sure that the guard's holder owns its row.
    pub fn adopt(&self, guard: &mut Guard<'_, E>) -> Result<(), Fault> {
        self.holdings().adopt_with(guard, |guard, slot| self.empty_row(guard, slot))
    }

    /// Looks for the dead and returns what they held; gives the number of permits.
    pub fn sweep(&self, me: Participant, deadline: u64) -> Result<u64, Fault> {
        let sweeps = self.block.word(StateMap::SWEEPS)?;
        let count = self.block.env.load64(sweeps, Relaxed);
        // Not under the lock: a statistic that two sweeps at one time may count once.
        self.block.env.store64(sweeps, count.wrapping_add(1), Relaxed);
        self.holdings().sweep_with(self.block, me, deadline, |guard, slot| self.empty_row(guard, slot))
    }

    fn empty_row(&self, guard: &mut Guard<'_, E>, slot: u32) -> Result<u64, Fault> {
        let row = self.holdings().row(slot);
        for limit in (0..self.table.len()).filter(|limit| self.table.must_report(*limit)) {
            let owed = guard.get(row + 1 + limit)?;
            if owed > 0 {
                let mut change = guard.begin();
                self.add(&mut change, self.limit_word(limit, LimitWord::Unreported), owed)?;
                change.set(row + 1 + limit, 0)?;
                change.commit();
            }
        }
        let units = self.holdings().empty_row(guard, slot)?;
        guard.count(StateMap::REAPED_PARTICIPANTS, 1)?;
        guard.count(StateMap::REAPED_UNITS, units)?;
        Ok(units)
    }
}
