//! The description of a set in a file, which `create` makes, `apply` reads and `export` writes.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use limitset::limit::{CooldownSettings, QueueSettings};
use limitset::{Clock, Cooldown, Limit, LimitSetBuilder, Order, QueueOptions, SetObserver, Stats};
use nix::unistd::{Gid, Group};
use serde::{Deserialize, Serialize};

use crate::context::Context;
use crate::failure::Failure;
use crate::grammar::{BadText, LimitText, length, limits, show_length, show_limit};

/// One table of the file. The table's name is the name of the set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table such as [web] with the limits of a set")]
pub(crate) struct SetFile {
    pub(crate) limits: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mode: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) group: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) slots: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) waiters: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) order: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) clock: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) config: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cooldown: Option<CooldownFile>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) queue: Option<QueueFile>,
}

/// The cooldown of a set. Missing values are the library's defaults.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table with the times and numbers of a cooldown")]
pub(crate) struct CooldownFile {
    first: Option<String>,
    longest: Option<String>,
    factor: Option<f64>,
    jitter: Option<f64>,
    slow_admissions: Option<u32>,
    first_gap: Option<String>,
    last_gap: Option<String>,
}

/// The work queue of a set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table with the numbers of a work queue")]
pub(crate) struct QueueFile {
    items: u32,
    item_bytes: u32,
    result_bytes: Option<u32>,
    attempts: Option<u32>,
    rate_limits: Option<u32>,
}

/// The orders and clocks by name.
const ORDERS: [(&str, Order); 2] = [("arrival", Order::Arrival), ("any", Order::Any)];
const CLOCKS: [(&str, Clock); 3] =
    [("monotonic", Clock::Monotonic), ("coarse", Clock::Coarse), ("manual", Clock::Manual)];

impl SetFile {
    /// Returns the limits, after validation.
    pub(crate) fn limits(&self) -> Result<Vec<Limit>, Failure> {
        limits(&self.limits)
    }

    pub(crate) fn order(&self) -> Result<Order, Failure> {
        named("order", self.order.as_deref(), &ORDERS)
    }

    pub(crate) fn clock(&self) -> Result<Clock, Failure> {
        named("clock", self.clock.as_deref(), &CLOCKS)
    }

    pub(crate) fn cooldown(&self) -> Result<Cooldown, BadText> {
        let Some(file) = &self.cooldown else { return Ok(Cooldown::default()) };
        let usual = Cooldown::default().settings();
        let or = |text: &Option<String>, usual| text.as_deref().map_or(Ok(usual), length);
        Ok(Cooldown::default()
            .first(or(&file.first, usual.first)?)
            .longest(or(&file.longest, usual.longest)?)
            .factor(file.factor.unwrap_or(usual.factor))
            .jitter(file.jitter.unwrap_or(usual.jitter))
            .slow_start(
                file.slow_admissions.unwrap_or(usual.slow_admissions),
                or(&file.first_gap, usual.first_gap)?,
                or(&file.last_gap, usual.last_gap)?,
            ))
    }

    pub(crate) fn queue(&self) -> Option<QueueOptions> {
        let QueueFile { items, item_bytes, result_bytes, attempts, rate_limits } = self.queue.clone()?;
        let usual = QueueOptions::new(items, item_bytes);
        let usual = result_bytes.into_iter().fold(usual, QueueOptions::result_bytes);
        let usual = attempts.into_iter().fold(usual, QueueOptions::attempts);
        Some(rate_limits.into_iter().fold(usual, QueueOptions::rate_limits))
    }

    /// Returns the permissions, if given.
    pub(crate) fn mode(&self) -> Result<Option<u32>, Failure> {
        let read = |text: &String| {
            let mode = u32::from_str_radix(text, 8).ok();
            mode.ok_or_else(|| {
                Failure::usage(format!("mode {text:?} is not an octal number: use 600 or 660"))
            })
        };
        self.mode.as_ref().map(read).transpose()
    }

    /// Returns the ID of the group, if given.
    pub(crate) fn group(&self) -> Result<Option<u32>, Failure> {
        let Some(text) = &self.group else { return Ok(None) };
        if let Ok(number) = text.parse() {
            return Ok(Some(number));
        }
        match Group::from_name(text) {
            Ok(Some(group)) => Ok(Some(group.gid.as_raw())),
            Ok(None) => Err(Failure::usage(format!("unknown group {text:?}: see `getent group`"))),
            Err(error) => Err(Failure::usage(format!("cannot look up group {text:?}: {error}"))),
        }
    }

    /// Returns a builder that creates the set.
    pub(crate) fn builder(&self, context: &Context) -> Result<LimitSetBuilder, Failure> {
        let mut segment = context.segment_options();
        segment = self.slots.into_iter().fold(segment, |it, slots| it.slots(slots));
        segment = self.waiters.into_iter().fold(segment, |it, waiters| it.waiters(waiters));
        segment = self.mode()?.into_iter().fold(segment, |it, mode| it.mode(mode));
        segment = self.group()?.into_iter().fold(segment, |it, group| it.group(group));
        let mut builder = context.builder().segment(segment).limits(self.limits()?);
        builder = builder.order(self.order()?).clock(self.clock()?).cooldown(self.cooldown()?);
        builder = self.queue().into_iter().fold(builder, LimitSetBuilder::queue);
        for (key, value) in &self.config {
            builder = builder.config(key, value);
        }
        Ok(builder)
    }

    /// Returns the description of an existing set, with its current parameters.
    pub(crate) fn of(set: &SetObserver, stats: &Stats) -> Result<Self, Failure> {
        let declared = set.declaration();
        let about = fs::metadata(set.segment().info().path)?;
        let mode = about.permissions().mode() & 0o777;
        // The group matters only if it has permissions.
        let group = (mode & 0o070 != 0).then(|| group_name(about.gid()));
        let (usual, cooldown) = (Cooldown::default().settings(), declared.cooldown.settings());
        Ok(Self {
            limits: live_limits(set, stats).iter().map(show_limit).collect(),
            mode: (mode != 0o600).then(|| format!("{mode:o}")),
            group,
            slots: Some(declared.slots),
            waiters: Some(declared.waiters),
            order: unusual(declared.order, &ORDERS),
            clock: unusual(declared.clock, &CLOCKS),
            config: declared.config,
            cooldown: (cooldown != usual).then(|| CooldownFile::of(&cooldown)),
            queue: declared.queue.map(|queue| QueueFile::of(queue.settings())),
        })
    }
}

impl CooldownFile {
    fn of(it: &CooldownSettings) -> Self {
        Self {
            first: Some(show_length(it.first)),
            longest: Some(show_length(it.longest)),
            factor: Some(it.factor),
            jitter: Some(it.jitter),
            slow_admissions: Some(it.slow_admissions),
            first_gap: Some(show_length(it.first_gap)),
            last_gap: Some(show_length(it.last_gap)),
        }
    }
}

impl QueueFile {
    fn of(it: QueueSettings) -> Self {
        Self {
            items: it.items,
            item_bytes: it.item_bytes,
            result_bytes: Some(it.result_bytes),
            attempts: Some(it.attempts),
            rate_limits: Some(it.rate_limits),
        }
    }
}

/// Returns the limits of a set with their current parameters.
pub(crate) fn live_limits(set: &SetObserver, stats: &Stats) -> Vec<Limit> {
    let now = |limit: &Limit| stats.limit(limit.name()).map(|now| LimitText::live(limit, now));
    set.limits().iter().map(|limit| now(limit).unwrap_or_else(|| limit.clone())).collect()
}

/// Returns the name of a group, or its ID if it has no name.
pub(crate) fn group_name(number: u32) -> String {
    let group = Group::from_gid(Gid::from_raw(number)).ok().flatten();
    group.map_or_else(|| number.to_string(), |group| group.name)
}

/// Returns the name of a value that is not the default.
fn unusual<T: Copy + Default + PartialEq>(it: T, known: &[(&str, T)]) -> Option<String> {
    let found = known.iter().find(|(_, known)| *known == it && it != T::default());
    found.map(|(name, _)| (*name).to_owned())
}

fn named<T: Copy + Default>(what: &str, text: Option<&str>, known: &[(&str, T)]) -> Result<T, Failure> {
    let Some(text) = text else { return Ok(T::default()) };
    let names = || known.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(" or ");
    let found = known.iter().find(|(name, _)| *name == text).map(|(_, it)| *it);
    found.ok_or_else(|| Failure::usage(format!("unknown {what} {text:?}: use {}", names())))
}
