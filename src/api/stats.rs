//! Observe: a set at one instant, for participants and for those who only look.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::api::cooldown::CooldownStats;
use crate::api::request::Keys;
use crate::engine::Table;
use crate::format::state::{LimitWord, RuleWord, StateMap};
use crate::limit::Clock;
use crate::limit::{Definition, Limit};
use crate::protocol::Participant;
use crate::queue::QueueStats;
use crate::segment::error::{AttachError, SyncError};
use crate::segment::{Observer, ParticipantInfo, View};
use crate::sys::clock;

/// A set at one instant.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// The limits, in the order of their definition.
    pub limits: Vec<LimitStats>,
    /// Who is attached, and the dead whose permits nobody has returned yet.
    pub participants: Vec<ParticipantStats>,
    /// How many blocked acquirers wait.
    pub waiters: u64,
    /// Pauses after "too many requests".
    pub cooldown: CooldownStats,
    /// The work queue, if the set has one.
    pub queue: Option<QueueStats>,
    /// How often the lock was taken from a dead holder.
    pub steals: u64,
    /// How many of those had left an update half done, which was then undone.
    pub recoveries: u64,
    /// How often the dead were looked for.
    pub sweeps: u64,
    /// How many participants that are gone were cleaned up after, be they killed or ended in order.
    pub reaped_participants: u64,
    /// How many permits came back that way.
    pub reaped_permits: u64,
    /// Acquisitions let through because the set could not be asked, by [`OnUnavailable::Allow`](crate::OnUnavailable).
    pub unenforced: u64,
    /// How often an unlock found the lock in other hands. Anything but 0 is a defect worth a report.
    pub deposed: u64,
}

/// One limit at one instant.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LimitStats {
    /// Its key.
    pub key: String,
    /// Units per window, or permits in all.
    pub capacity: u64,
    /// Length of the window; none for permits.
    pub window: Option<Duration>,
    /// Most units at once.
    pub burst: u64,
    /// How much it would give now.
    pub available: u64,
    /// How much of what it could give is used up.
    pub in_use: u64,
    /// How much was used beyond what it gave; has to be paid off before it gives again.
    pub debt: u64,
    /// Units that blocked acquirers wait for.
    pub waiting: u64,
    /// How many acquisitions took from it.
    pub granted: u64,
    /// How many requests were refused because of it.
    pub denied: u64,
    /// Units given back, permits apart.
    pub refunded: u64,
    /// How many acquisitions ended without the report they owed, those of the dead included.
    pub unreported: u64,
    /// Units used since creation: charged and not given back. Of permits, units ever taken.
    pub consumed: u64,
    /// How often its numbers were changed live.
    pub revision: u64,
}

/// A participant and what it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ParticipantStats {
    /// Its name in the segment.
    pub participant: Participant,
    /// Who that is; none if it is dead.
    pub info: Option<ParticipantInfo>,
    /// Permits it holds, by key; only what is more than none.
    pub holds: Vec<(String, u64)>,
    /// Reports it owes, by key; only what is more than none.
    pub owes_reports: Vec<(String, u64)>,
}

impl Stats {
    /// The limit with this key.
    pub fn limit(&self, key: &str) -> Option<&LimitStats> {
        self.limits.iter().find(|limit| limit.key == key)
    }

    pub(crate) fn read(view: &View, keys: &Keys) -> Result<Self, SyncError> {
        let words = view.set_words()?;
        let get = |index: usize| words.get(index).copied().unwrap_or(0);
        let lock = view.statistics(&view.checked.state)?;
        let now = instant(view.checked.clock, get);
        let limits = (0..keys.table.len()).map(|limit| LimitStats::read(keys, limit, get, now)).collect();
        Ok(Self {
            limits,
            participants: participants(view, keys, get),
            waiters: get(StateMap::QUEUE_LENGTH),
            cooldown: CooldownStats::read(get, now),
            queue: QueueStats::read(&view.checked.header, &keys.table.map, get),
            steals: lock.steals,
            recoveries: lock.rollbacks,
            sweeps: get(StateMap::SWEEPS),
            reaped_participants: get(StateMap::REAPED_PARTICIPANTS),
            reaped_permits: get(StateMap::REAPED_UNITS),
            unenforced: get(StateMap::UNENFORCED),
            deposed: lock.deposed,
        })
    }
}

/// Set time, as far as this process can tell.
fn instant(kind: Clock, get: impl Fn(usize) -> u64) -> u64 {
    let reading = match kind {
        Clock::Monotonic => clock::monotonic(),
        Clock::Coarse => clock::coarse(),
        Clock::Manual => get(StateMap::MANUAL_NOW),
    };
    let last = get(StateMap::LAST_NOW);
    let (here, there) = (clock::time_namespace(), get(StateMap::TIME_NAMESPACE));
    if kind != Clock::Manual && here != there && here != 0 && there != 0 {
        // The clock of another time namespace says nothing.
        return last;
    }
    reading.wrapping_add(get(StateMap::CLOCK_OFFSET)).max(last)
}

impl LimitStats {
    fn read(keys: &Keys, limit: usize, get: impl Fn(usize) -> u64 + Copy, now: u64) -> Self {
        let table = &keys.table;
        let word = |word| get(table.map.limit(limit, word));
        let number = |word| get(table.map.rule(limit, word));
        let available = table.available(limit, get, now);
        let most = table.most(limit, get);
        let left = available.max(0).unsigned_abs();
        let window = table.rule(limit, get).map(|rule| Duration::from_nanos(rule.window_nanos()));
        Self {
            key: keys.name(limit).to_owned(),
            capacity: number(RuleWord::Capacity),
            window,
            burst: most,
            available: left,
            in_use: if table.is_permit(limit) { word(LimitWord::Level) } else { most.saturating_sub(left) },
            // Permits beyond a capacity that was lowered are no debt: they come back.
            debt: if table.is_permit(limit) { 0 } else { available.min(0).unsigned_abs() },
            waiting: number(RuleWord::Enqueued).wrapping_sub(number(RuleWord::Dequeued)),
            granted: word(LimitWord::Granted),
            denied: word(LimitWord::Denied),
            refunded: word(LimitWord::Refunded),
            unreported: word(LimitWord::Unreported),
            consumed: word(LimitWord::Consumed),
            revision: number(RuleWord::Revision),
        }
    }
}

fn participants(view: &View, keys: &Keys, get: impl Fn(usize) -> u64) -> Vec<ParticipantStats> {
    let table: &Table = &keys.table;
    let holdings = table.holdings();
    let living = view.participants();
    let mut found = Vec::new();
    for slot in 1..=view.checked.header.slots {
        let row = holdings.row(slot);
        let alive = living.iter().find(|info| info.slot == slot);
        let generation = match (get(row), alive) {
            (0, None) => continue,
            (0, Some(info)) => info.generation,
            (generation, _) => generation,
        };
        let info = alive.filter(|info| info.generation == generation).cloned();
        let words = |is_permit: bool| {
            let of_kind = (0..table.len()).filter(move |limit| table.is_permit(*limit) == is_permit);
            let amounts = of_kind.map(|limit| (keys.name(limit).to_owned(), get(row + 1 + limit)));
            amounts.filter(|(_, amount)| *amount > 0).collect::<Vec<_>>()
        };
        let (holds, owes_reports) = (words(true), words(false));
        if info.is_some() || !holds.is_empty() || !owes_reports.is_empty() {
            let participant = Participant { slot, generation };
            found.push(ParticipantStats { participant, info, holds, owes_reports });
        }
    }
    found
}

/// A set attached to for reading only; made by [`LimitSet::observe`](crate::LimitSet::observe).
#[derive(Clone)]
pub struct SetObserver {
    observer: Observer,
    definition: Arc<Definition>,
    keys: Arc<Keys>,
}

impl SetObserver {
    pub(crate) fn new(observer: Observer) -> Result<Self, AttachError> {
        let view = observer.view();
        let definition = view.definition.clone().ok_or_else(|| AttachError::NotASet { path: view.path() })?;
        let keys = Arc::new(Keys::new(&definition.limits, view.table()));
        Ok(Self { observer, definition, keys })
    }

    /// The set at one instant. Waits for nobody: where a writer died in the middle, what it had begun is left out.
    ///
    /// # Errors
    ///
    /// If a living writer is stopped in the middle, or the segment is damaged.
    pub fn stats(&self) -> Result<Stats, SyncError> {
        Stats::read(self.observer.view(), &self.keys)
    }

    /// The limits as they were declared, in order.
    pub fn limits(&self) -> &[Limit] {
        &self.definition.limits
    }

    /// The config map of the set.
    pub fn config(&self) -> &BTreeMap<String, String> {
        &self.definition.config
    }

    /// The segment that the set lives in.
    pub fn segment(&self) -> &Observer {
        &self.observer
    }
}
