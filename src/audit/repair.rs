//! What can be put right without risk.

use crate::api::error::ManageError;
use crate::api::set::LimitSet;
use crate::format::state::LimitWord;

/// What a repair did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Repaired {
    /// Permits of the dead that were returned.
    pub returned_permits: u64,
    /// Totals of permits that were less than what their holders have, by key: what they were, and are now.
    pub raised_totals: Vec<(String, u64, u64)>,
}

impl LimitSet {
    /// Puts right what can be put right while others may be at work: returns what the dead hold, and raises totals of
    /// permits that are less than what their holders have, so that nobody gets too much. Nothing is ever lowered: that
    /// is done only by whoever attaches when nobody else is attached, who also clears the queue, and empties rates that
    /// make no sense.
    ///
    /// # Errors
    ///
    /// If the set cannot be asked.
    pub fn repair(&self) -> Result<Repaired, ManageError> {
        let mut repaired = Repaired { returned_permits: self.reap()?, ..Repaired::default() };
        let raised = self.locked(|engine, guard, _| {
            let (table, holdings) = (engine.table, engine.holdings());
            let mut raised = Vec::new();
            for limit in (0..table.len()).filter(|limit| table.is_permit(*limit)) {
                let mut held = 0u64;
                for slot in 1..=guard.block().slots.count() {
                    held = held.saturating_add(guard.get(holdings.row(slot) + 1 + limit)?);
                }
                let total = table.map.limit(limit, LimitWord::Level);
                let found = guard.get(total)?;
                if found < held {
                    let mut change = guard.begin();
                    change.set(total, held)?;
                    change.commit();
                    raised.push((limit, found, held));
                }
            }
            Ok(raised)
        })?;
        for (limit, found, held) in raised {
            repaired.raised_totals.push((self.keys().name(limit).to_owned(), found, held));
        }
        Ok(repaired)
    }
}
