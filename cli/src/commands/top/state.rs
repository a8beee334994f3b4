//! The state of the view: the observed sets, their history, the selection and the order.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Instant;

use limitset::{Segment, SetObserver};

use super::screen::Key;
use crate::commands::show::{Shown, ShownLimit, ShownParticipant};
use crate::context::Context;
use crate::failure::Failure;

/// The length of the history: the columns of a wide terminal.
const PAST: usize = 240;

/// An error: the sets could not be listed.
pub(super) struct Unreadable(pub(super) Failure);

/// An observed set.
pub(super) struct Watched {
    pub(super) name: String,
    observer: Option<(SetObserver, (u64, u64))>,
    /// The last known state.
    pub(super) shown: Option<Shown>,
    /// The reason why there is no current state: the set was removed, or cannot be read.
    pub(super) trouble: Option<Failure>,
    /// Per limit, from old to new: percent used, and acquisitions per second.
    past: BTreeMap<String, VecDeque<u64>>,
    granted: BTreeMap<String, (u64, Instant)>,
    per_second: BTreeMap<String, f64>,
}

/// The order of sets or processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Name,
    Use,
    Waiters,
    Speed,
    Held,
    Process,
    Command,
    Since,
}

impl Order {
    const OF_SETS: [Self; 4] = [Self::Name, Self::Use, Self::Waiters, Self::Speed];
    const OF_PROCESSES: [Self; 4] = [Self::Held, Self::Process, Self::Command, Self::Since];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Use => "use",
            Self::Waiters => "waiters",
            Self::Speed => "grants/s",
            Self::Held => "held",
            Self::Process => "pid",
            Self::Command => "command",
            Self::Since => "since",
        }
    }

    fn next(self, of: &[Self]) -> Self {
        let place = of.iter().position(|it| *it == self).map_or(0, |place| place + 1);
        of.get(place).or(of.first()).copied().unwrap_or(self)
    }
}

/// A list on the screen, with its selection and order.
pub(super) struct Panel {
    pub(super) selected: usize,
    pub(super) order: Order,
    pub(super) is_turned: bool,
}

/// The whole state.
pub(super) struct State {
    /// The names of the observed sets; empty for all sets.
    names: Vec<String>,
    context: Context,
    sets: Vec<Watched>,
    pub(super) set_panel: Panel,
    pub(super) process_panel: Panel,
    pub(super) is_in_processes: bool,
    stands_still: bool,
}

impl State {
    pub(super) fn new(names: &[String], context: Context) -> Self {
        let panel = |order| Panel { selected: 0, order, is_turned: false };
        Self {
            names: names.to_vec(),
            context,
            sets: names.iter().cloned().map(Watched::new).collect(),
            set_panel: panel(Order::Name),
            process_panel: panel(Order::Held),
            is_in_processes: false,
            stands_still: false,
        }
    }

    /// Reads every set again.
    pub(super) fn look(&mut self) -> Result<(), Unreadable> {
        let selected = self.selected().map(|set| set.name.clone());
        if self.names.is_empty() {
            let found = Segment::list().map_err(|error| Unreadable(error.into()))?;
            self.sets.retain(|set| found.iter().any(|it| it.name == set.name));
            for it in found {
                if !self.sets.iter().any(|set| set.name == it.name) {
                    self.sets.push(Watched::new(it.name));
                }
            }
        }
        for set in &mut self.sets {
            set.look(&self.context);
        }
        self.sort(selected.as_deref());
        Ok(())
    }

    /// Sorts the sets, and keeps the selection.
    fn sort(&mut self, selected: Option<&str>) {
        let Panel { order, is_turned, .. } = self.set_panel;
        self.sets.sort_by(|a, b| {
            let by_name = a.name.cmp(&b.name);
            let by_order = match order {
                Order::Use => b.percent().cmp(&a.percent()),
                Order::Waiters => b.waiters().cmp(&a.waiters()),
                Order::Speed => b.speed().total_cmp(&a.speed()),
                _ => by_name,
            };
            let both = by_order.then(by_name);
            if is_turned { both.reverse() } else { both }
        });
        let place = selected.and_then(|name| self.sets.iter().position(|set| set.name == name));
        let last = self.sets.len().saturating_sub(1);
        self.set_panel.selected = place.unwrap_or(self.set_panel.selected).min(last);
    }

    pub(super) fn sets(&self) -> &[Watched] {
        &self.sets
    }

    pub(super) fn selected(&self) -> Option<&Watched> {
        self.sets.get(self.set_panel.selected)
    }

    pub(super) fn shown(&self) -> impl Iterator<Item = &Shown> {
        self.sets.iter().filter_map(|set| set.shown.as_ref())
    }

    /// Takes the first failure out of the state.
    pub(super) fn first_failure(&mut self) -> Option<Failure> {
        self.sets.iter_mut().find_map(|set| set.trouble.take())
    }

    pub(super) fn stands_still(&self) -> bool {
        self.stands_still
    }

    pub(super) fn has_colour(&self) -> bool {
        self.context.colour
    }

    pub(super) fn press(&mut self, key: Key) {
        let processes =
            self.selected().and_then(|set| set.shown.as_ref()).map_or(0, |it| it.participants.len());
        let (panel, count, orders) = if self.is_in_processes {
            (&mut self.process_panel, processes, Order::OF_PROCESSES)
        } else {
            (&mut self.set_panel, self.sets.len(), Order::OF_SETS)
        };
        let last = count.saturating_sub(1);
        match key {
            Key::Up => panel.selected = panel.selected.saturating_sub(1),
            Key::Down => panel.selected = (panel.selected + 1).min(last),
            Key::First => panel.selected = 0,
            Key::Last => panel.selected = last,
            Key::Sort => panel.order = panel.order.next(&orders),
            Key::Turn => panel.is_turned = !panel.is_turned,
            Key::OtherPanel => self.is_in_processes = !self.is_in_processes,
            Key::StandStill => self.stands_still = !self.stands_still,
            Key::Quit | Key::Faster | Key::Slower => {}
        }
        if !self.is_in_processes && matches!(key, Key::Up | Key::Down | Key::First | Key::Last) {
            self.process_panel.selected = 0;
        }
        let selected = self.selected().map(|set| set.name.clone());
        self.sort(selected.as_deref());
    }

    /// Returns the processes of the selected set, in order.
    pub(super) fn processes(&self) -> Vec<&ShownParticipant> {
        let Some(shown) = self.selected().and_then(|set| set.shown.as_ref()) else { return Vec::new() };
        let mut processes: Vec<_> = shown.participants.iter().collect();
        let held = |it: &ShownParticipant| it.holds.values().sum::<u64>();
        let Panel { order, is_turned, .. } = self.process_panel;
        processes.sort_by(|a, b| {
            let by_slot = a.slot.cmp(&b.slot);
            let by_order = match order {
                Order::Process => a.pid.cmp(&b.pid),
                Order::Command => a.command.cmp(&b.command),
                Order::Since => a.enrolled.cmp(&b.enrolled),
                _ => held(b).cmp(&held(a)),
            };
            let both = by_order.then(by_slot);
            if is_turned { both.reverse() } else { both }
        });
        processes
    }
}

/// Returns the usage of a limit in percent. More than 100 means debt, or permits beyond a lowered limit.
pub(super) fn percent(limit: &ShownLimit) -> u64 {
    let used = u128::from(limit.in_use) + u128::from(limit.debt);
    u64::try_from(used * 100 / u128::from(limit.burst.max(1))).unwrap_or(u64::MAX)
}

impl Watched {
    fn new(name: String) -> Self {
        Self {
            name,
            observer: None,
            shown: None,
            trouble: None,
            past: BTreeMap::new(),
            granted: BTreeMap::new(),
            per_second: BTreeMap::new(),
        }
    }

    fn look(&mut self, context: &Context) {
        match self.read(context) {
            Ok(shown) => {
                self.remember(&shown);
                self.shown = Some(shown);
                self.trouble = None;
            }
            // The last known state stays on the screen, with the failure.
            Err(trouble) => self.trouble = Some(trouble),
        }
    }

    /// Reads the set through one mapping for as long as the name refers to it.
    fn read(&mut self, context: &Context) -> Result<Shown, Failure> {
        let path: PathBuf = Segment::path_of(&self.name).map_err(limitset::error::AttachError::from)?;
        let identity = fs::metadata(path).map(|about| (about.dev(), about.ino())).ok();
        if self.observer.as_ref().is_none_or(|(_, seen)| Some(*seen) != identity) {
            self.observer = None;
            let observer = context.observe(&self.name)?;
            self.observer = identity.map(|identity| (observer, identity));
            self.past.clear();
            self.granted.clear();
        }
        match &self.observer {
            Some((observer, _)) => Shown::read(&self.name, observer),
            None => Shown::read(&self.name, &context.observe(&self.name)?),
        }
    }

    fn remember(&mut self, shown: &Shown) {
        let now = Instant::now();
        for limit in &shown.limits {
            let past = self.past.entry(limit.key.clone()).or_default();
            past.push_back(percent(limit).min(100));
            if past.len() > PAST {
                past.pop_front();
            }
            let before = self.granted.insert(limit.key.clone(), (limit.granted, now));
            let speed = before.map_or(0.0, |(granted, at)| {
                let more = u32::try_from(limit.granted.saturating_sub(granted)).unwrap_or(u32::MAX);
                f64::from(more) / now.duration_since(at).as_secs_f64().max(0.001)
            });
            self.per_second.insert(limit.key.clone(), speed);
        }
    }

    /// Returns the last `count` values of a limit, from old to new.
    pub(super) fn past(&self, key: &str, count: usize) -> Vec<u64> {
        let Some(past) = self.past.get(key) else { return Vec::new() };
        past.iter().skip(past.len().saturating_sub(count)).copied().collect()
    }

    pub(super) fn limit_speed(&self, key: &str) -> f64 {
        self.per_second.get(key).copied().unwrap_or(0.0)
    }

    /// Returns the usage of the fullest limit, in percent.
    pub(super) fn percent(&self) -> u64 {
        self.shown.iter().flat_map(|shown| shown.limits.iter().map(percent)).max().unwrap_or(0)
    }

    /// Returns the acquisitions per second of the most frequently charged limit.
    pub(super) fn speed(&self) -> f64 {
        self.per_second.values().copied().fold(0.0, f64::max)
    }

    pub(super) fn waiters(&self) -> u64 {
        self.shown.as_ref().map_or(0, |shown| shown.waiters)
    }
}
