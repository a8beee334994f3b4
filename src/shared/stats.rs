//! Observe: a set at one instant, for participants and for those who only look.

use std::time::Duration;

use super::SharedSet;
use super::error::SetError;
use super::keys::Keys;
use crate::engine::Table;
use crate::format::header::Header;
use crate::format::state::{LimitWord, RuleWord, StateMap};
use crate::format::work::{List, WorkWord};
use crate::limit::Clock;
use crate::protocol::Participant;
use crate::segment::error::SyncError;
use crate::segment::{ParticipantInfo, View};
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

/// How a set pauses, at one instant; see [`Stats`](crate::Stats).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CooldownStats {
    /// How many pauses there have been.
    pub generation: u64,
    /// How long the pause still lasts, if one does.
    pub remaining: Option<Duration>,
    /// How long until somebody is admitted: the pause, or a gap of the slow start. None: at once.
    pub next_admission: Option<Duration>,
    /// How many pauses in a row, since something last went well.
    pub consecutive: u64,
    /// How many took part in the last pause: who began it, and whose reports of "too many requests" it absorbed. Counted
    /// are reports: a process that makes several requests at one time may be several.
    pub participants: u64,
    /// How many reports began no pause, over all pauses.
    pub absorbed: u64,
    /// How many more admissions the slow start spaces.
    pub slow_admissions: u64,
}

impl CooldownStats {
    pub(crate) fn read(get: impl Fn(usize) -> u64, now: u64) -> Self {
        let left = |word| get(word).checked_sub(now).filter(|left| *left > 0).map(Duration::from_nanos);
        Self {
            generation: get(StateMap::COOLDOWN_GENERATION),
            remaining: left(StateMap::COOLDOWN_UNTIL),
            next_admission: left(StateMap::NEXT_ADMISSION),
            consecutive: get(StateMap::COOLDOWN_COUNT),
            participants: get(StateMap::COOLDOWN_REPORTS),
            absorbed: get(StateMap::COOLDOWN_ABSORBED),
            slow_admissions: get(StateMap::SLOW_ADMISSIONS_LEFT),
        }
    }
}

/// A work queue at one instant; counts of what ever happened are exact whoever was killed when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueStats {
    /// How many items there is room for.
    pub capacity: u64,
    /// Waiting for a worker.
    pub ready: u64,
    /// Waiting for the end of the set's pause.
    pub parked: u64,
    /// Waiting for their own time to be tried again.
    pub delayed: u64,
    /// With a worker.
    pub leased: u64,
    /// Results that nobody has collected.
    pub results: u64,
    /// Items that were given up, and that nobody has collected.
    pub dead_letters: u64,
    /// Whether nothing more can be pushed.
    pub is_closed: bool,
    /// How many items were ever pushed.
    pub pushed: u64,
    /// How often an item was handed out.
    pub taken: u64,
    /// How many items were done.
    pub done: u64,
    /// How often an item was put off to be tried again.
    pub retried: u64,
    /// How often an item was parked because the other side wanted less.
    pub rate_limited: u64,
    /// How often a parked item was handed out again.
    pub redistributed: u64,
    /// How often an item came back from a worker that died.
    pub returned: u64,
    /// How many items became dead letters.
    pub dead_lettered: u64,
}

impl QueueStats {
    /// Items that are not finished.
    pub fn unfinished(&self) -> u64 {
        // Words of others: they need not make sense.
        [self.parked, self.delayed, self.leased].into_iter().fold(self.ready, u64::saturating_add)
    }

    pub(crate) fn read(header: &Header, map: &StateMap, get: impl Fn(usize) -> u64) -> Option<Self> {
        if header.items == 0 {
            return None;
        }
        let word = |word| get(map.work(word));
        let length = |list| word(WorkWord::Length(list));
        Some(Self {
            capacity: header.items.into(),
            ready: length(List::Ready),
            parked: length(List::Parked),
            delayed: word(WorkWord::Delayed),
            leased: word(WorkWord::Leased),
            results: length(List::Results),
            dead_letters: length(List::DeadLetters),
            is_closed: word(WorkWord::Closed) != 0,
            pushed: word(WorkWord::Pushed),
            taken: word(WorkWord::Taken),
            done: word(WorkWord::Done),
            retried: word(WorkWord::Retried),
            rate_limited: word(WorkWord::Parkings),
            redistributed: word(WorkWord::Redistributed),
            returned: word(WorkWord::Returned),
            dead_lettered: word(WorkWord::DeadLettered),
        })
    }
}

impl SharedSet {
    /// The set at one instant.
    pub(crate) fn stats(&self) -> Result<Stats, SetError> {
        self.participant()?;
        Ok(Stats::read(self.segment().view(), self.keys())?)
    }
}
