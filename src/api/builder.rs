//! Describing a set, and opening it.

use std::ffi::OsStr;

use thiserror::Error;

use crate::code::Code;

use crate::api::observer::SetObserver;
use crate::api::parameters;
use crate::api::set::LimitSet;
use crate::limit::Clock;
use crate::limit::{
    BadLimit, BadSetting, Cooldown, Definition, Differs, Limit, Order, QueueOptions, config_fits, validate,
};
use crate::segment::error::{AttachError, CreateError};
use crate::segment::{Segment, SegmentOptions};
use crate::shared::error::OnUnavailable;

/// What to do when a set exists and was declared otherwise than this program declares it. Other keys, kinds or
/// algorithms are an error in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnDifference {
    /// An error that names the first difference. Numbers that were changed live, by
    /// [`reconfigure`](LimitSet::reconfigure), are no difference.
    #[default]
    Fail,
    /// Use the set as it is: its numbers, its config, its size.
    KeepCurrent,
    /// Give the set the numbers of this program, also where they were changed live. A different config is an error,
    /// because that never changes.
    Reconfigure,
}

/// Why a set could not be opened.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// A limit, or the config map, cannot be.
    #[error(transparent)]
    Limit(#[from] BadLimit),
    /// The cooldown, or the work queue, cannot be.
    #[error(transparent)]
    Setting(#[from] BadSetting),
    /// The segment cannot be created, cannot be used, or was declared otherwise.
    #[error(transparent)]
    Segment(#[from] CreateError),
}

impl OpenError {
    /// Returns the stable code of this error.
    pub fn code(&self) -> Code {
        match self {
            Self::Limit(bad) => bad.code(),
            Self::Setting(bad) => bad.code(),
            Self::Segment(error) => error.code(),
        }
    }
}

impl From<AttachError> for OpenError {
    fn from(error: AttachError) -> Self {
        Self::Segment(error.into())
    }
}

/// Describes a set of limits, then opens it.
///
/// ```
/// use limitset::{CallLimit, LimitSet, OnUnavailable, Segment};
///
/// # let name = format!("test-doc-builder-{}", std::process::id());
/// let limits = LimitSet::builder()
///     .limit(CallLimit::per_second(100))
///     .config("region", "eu")
///     .on_unavailable(OnUnavailable::Allow)
///     .segment(Segment::options().slots(16).mode(0o660))
///     .open(&name)?;
/// assert_eq!(limits.config()["region"], "eu");
/// # limits.remove()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct LimitSetBuilder {
    definition: Definition,
    clock: Clock,
    queue: Option<QueueOptions>,
    segment: SegmentOptions,
    on_unavailable: OnUnavailable,
    on_difference: OnDifference,
}

impl LimitSetBuilder {
    /// Adds a limit.
    pub fn limit(mut self, limit: impl Into<Limit>) -> Self {
        self.definition.limits.push(limit.into());
        self
    }

    /// Adds limits.
    pub fn limits<L: Into<Limit>>(mut self, limits: impl IntoIterator<Item = L>) -> Self {
        self.definition.limits.extend(limits.into_iter().map(Into::into));
        self
    }

    /// Adds an entry to the config map, which every acquisition and every process that attaches can read:
    /// a region, an endpoint, an account.
    pub fn config(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.definition.config.insert(key.into(), value.into());
        self
    }

    /// The clock: [`Clock::Monotonic`] unless set.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Who goes first when there is not enough for all: [`Order::Arrival`] unless set.
    pub fn order(mut self, order: Order) -> Self {
        self.definition.order = order;
        self
    }

    /// How the set pauses after "too many requests", and resumes: see [`Cooldown`] for what it does unless set.
    pub fn cooldown(mut self, cooldown: Cooldown) -> Self {
        self.definition.cooldown = cooldown;
        self
    }

    /// Adds a [work queue](crate::WorkQueue) to the set.
    pub fn queue(mut self, options: QueueOptions) -> Self {
        self.queue = Some(options);
        self
    }

    /// What to do when the set cannot be asked: [`OnUnavailable::Deny`] unless set. Opening always fails.
    pub fn on_unavailable(mut self, policy: OnUnavailable) -> Self {
        self.on_unavailable = policy;
        self
    }

    /// What to do when the set exists and was declared otherwise: [`OnDifference::Fail`] unless set.
    pub fn on_difference(mut self, policy: OnDifference) -> Self {
        self.on_difference = policy;
        self
    }

    /// The segment that the set lives in: how many processes, permissions, patience, and regions besides the set.
    pub fn segment(mut self, options: SegmentOptions) -> Self {
        self.segment = options;
        self
    }

    /// Opens the set with this name, for sharing with every process that opens it; creates it if it does not exist.
    /// Within a process, clone the set rather than opening it again: each opening takes a slot of its own.
    ///
    /// # Errors
    ///
    /// A limit that cannot be, a set that exists and differs, or a segment that cannot be used.
    pub fn open(&self, name: impl AsRef<OsStr>) -> Result<LimitSet, OpenError> {
        let options = self.options()?;
        let segment = options.attach_or_make(name.as_ref())?;
        let set = LimitSet::new(segment, self.on_unavailable)?;
        self.agree(&set, &options)?;
        Ok(set)
    }

    /// How many bytes such a set has, if it can be.
    ///
    /// # Errors
    ///
    /// A limit, an option or a setting that cannot be.
    pub fn bytes(&self) -> Result<u64, OpenError> {
        Ok(self.options()?.bytes().map_err(CreateError::from)?)
    }

    /// Creates a set that must not exist yet.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open), and [`CreateError::Exists`].
    pub fn create(&self, name: impl AsRef<OsStr>) -> Result<LimitSet, OpenError> {
        let segment = self.options()?.create(name)?;
        Ok(LimitSet::new(segment, self.on_unavailable)?)
    }

    /// Attaches to a set that exists, whatever its limits are. Limits and config described here play no part.
    ///
    /// # Errors
    ///
    /// A segment that does not exist, cannot be used or keeps no set.
    pub fn attach(&self, name: impl AsRef<OsStr>) -> Result<LimitSet, AttachError> {
        LimitSet::new(self.segment.attach(name)?, self.on_unavailable)
    }

    /// Looks at a set that exists without taking part; see [`LimitSet::observe`].
    ///
    /// # Errors
    ///
    /// As [`attach`](Self::attach).
    pub fn observe(&self, name: impl AsRef<OsStr>) -> Result<SetObserver, AttachError> {
        SetObserver::new(self.segment.observe(name)?)
    }

    /// Creates a set without a name, for this process and those it forks.
    ///
    /// # Errors
    ///
    /// As [`create`](Self::create).
    pub fn open_anonymous(&self) -> Result<LimitSet, OpenError> {
        let segment = self.options()?.anonymous()?;
        Ok(LimitSet::new(segment, self.on_unavailable)?)
    }

    /// Creates a set in private memory, for the threads of this process: the same rules without sharing. In a forked
    /// child it answers [`NotShared`](crate::AcquireError::NotShared).
    ///
    /// # Errors
    ///
    /// As [`create`](Self::create).
    pub fn in_memory(&self) -> Result<LimitSet, OpenError> {
        let segment = self.options()?.private()?;
        Ok(LimitSet::new(segment, self.on_unavailable)?)
    }

    fn options(&self) -> Result<SegmentOptions, OpenError> {
        validate(&self.definition.limits)?;
        config_fits(&self.definition)?;
        self.definition.cooldown.check()?;
        let mut options = self.segment.clone();
        if let Some(queue) = &self.queue {
            queue.check()?;
            options.shape.items = queue.items;
            options.shape.payload_bytes = queue.payload_bytes;
            options.shape.result_bytes = queue.result_bytes;
        }
        options.shape.clock = self.clock;
        options.shape.limits = u32::try_from(self.definition.limits.len()).unwrap_or(u32::MAX);
        options.shape.cells = self.definition.cells();
        options.shape.definition = Some(self.definition());
        Ok(options)
    }

    fn definition(&self) -> Definition {
        let mut definition = self.definition.clone();
        if let Some(queue) = &self.queue {
            definition.giving_up = queue.giving_up;
        }
        definition
    }

    /// Settles what differs between the set that is there and the one described.
    fn agree(&self, set: &LimitSet, options: &SegmentOptions) -> Result<(), OpenError> {
        let segment: &Segment = set.segment();
        let difference = set.shared().definition().difference(&self.definition()).map(|it| it.what);
        match (self.on_difference, difference) {
            (OnDifference::KeepCurrent, None | Some(Differs::Config | Differs::Numbers)) => return Ok(()),
            (OnDifference::Reconfigure, None | Some(Differs::Numbers)) => {
                segment.same_shape(&options.shape)?;
                let taken_over = parameters::take_over_numbers(set.shared(), &self.definition.limits);
                taken_over.map_err(|error| parameters::attach_error(set.shared(), error))?;
            }
            _ => {
                segment.same_definition(&options.shape)?;
                segment.same_shape(&options.shape)?;
            }
        }
        Ok(())
    }
}
