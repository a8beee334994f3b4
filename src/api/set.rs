//! Acquire: the set of limits itself.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt;
use std::sync::Arc;

use crate::api::builder::LimitSetBuilder;
use crate::api::error::{AcquireError, ManageError};
use crate::api::ladder::cooling_down;
use crate::api::observer::SetObserver;
use crate::api::request::{Request, RequestBuilder};
use crate::api::status::Statuses;
use crate::engine::{Engine, Wants};
use crate::limit::{Clock, Limit};
use crate::segment::Segment;
use crate::segment::error::AttachError;
use crate::shared::SharedSet;
use crate::shared::acquire::Checked;
use crate::shared::error::OnUnavailable;
use crate::shared::keys::Keys;
use crate::shared::stats::Stats;
use crate::sys::machine::Machine;

/// Limits that are acquired together, all or none, by every process that opens the same name.
///
/// Cheap to clone; clones are the same set and the same participant. All threads of a process may use it. After a
/// fork the child takes part on its own from its first use on.
///
/// ```
/// use limitset::{Algorithm, CallLimit, LimitSet, RateLimit, ResourceLimit};
///
/// # let name = format!("test-doc-set-{}", std::process::id());
/// let limits = LimitSet::builder()
///     .limit(CallLimit::per_minute(500))
///     .limit(RateLimit::per_minute("tokens", 200_000).algorithm(Algorithm::Gcra))
///     .limit(ResourceLimit::new("connections", 8))
///     .config("region", "us-east-1")
///     .open(&name)?;
///
/// let mut held = limits.try_acquire([("tokens", 1_500)])?;  // one call and one connection come along
/// held.update("tokens", 900)?;                              // 600 back
/// held.release()?;                                          // or drop
/// # limits.remove()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct LimitSet {
    shared: Arc<SharedSet>,
}

impl LimitSet {
    /// Describes a set, to open or create it.
    pub fn builder() -> LimitSetBuilder {
        LimitSetBuilder::default()
    }

    /// Attaches to a set that exists: its limits and its config are in the segment.
    ///
    /// # Errors
    ///
    /// A segment that does not exist, cannot be used or keeps no set.
    pub fn attach(name: impl AsRef<OsStr>) -> Result<Self, AttachError> {
        LimitSetBuilder::default().attach(name)
    }

    /// Looks at a set without taking part: no slot is taken, nothing can be changed.
    ///
    /// # Errors
    ///
    /// As [`attach`](Self::attach).
    pub fn observe(name: impl AsRef<OsStr>) -> Result<SetObserver, AttachError> {
        SetObserver::new(Segment::observe(name)?)
    }

    pub(crate) fn new(segment: Segment, on_unavailable: OnUnavailable) -> Result<Self, AttachError> {
        Ok(Self { shared: Arc::new(SharedSet::new(segment, on_unavailable)?) })
    }

    /// Whether [`try_acquire`](Self::try_acquire) would succeed now, and how every limit stands. Changes nothing.
    ///
    /// # Errors
    ///
    /// What `try_acquire` would answer; [`AcquireError::Unavailable`] whatever the policy.
    pub fn check<'r>(&self, request: impl Into<Request<'r>>) -> Result<Statuses, AcquireError> {
        let request = request.into();
        let mut scratch = Wants::none();
        let wants = self.keys().wants(&request, &mut scratch)?;
        match self.shared.check(wants)? {
            Checked::CoolingDown { left } => Err(cooling_down(&self.shared, left)),
            Checked::Queued { ahead } => Err(AcquireError::Queued { ahead }),
            Checked::Judged(judgement) => Statuses::new(&self.shared, judgement).into_answer(),
        }
    }

    /// The status of every limit to a request now. Unlike [`check`](Self::check), this is not an answer to the request: it
    /// is the same whether other requests wait or the set pauses, and whether the request fits or not. Changes nothing.
    ///
    /// ```
    /// use limitset::{CallLimit, LimitSet};
    ///
    /// let limits = LimitSet::builder().limit(CallLimit::per_minute(2)).in_memory()?;
    /// limits.pause(std::time::Duration::from_secs(9))?;
    /// assert!(limits.check(()).is_err());
    /// assert_eq!(limits.status(())?.get("call_count").unwrap().available, 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If the request makes no sense to the set, or the set cannot be asked.
    pub fn status<'r>(&self, request: impl Into<Request<'r>>) -> Result<Statuses, AcquireError> {
        let request = request.into();
        let mut scratch = Wants::none();
        let wants = self.keys().wants(&request, &mut scratch)?;
        Ok(Statuses::new(&self.shared, self.shared.status(wants)?))
    }

    /// Resolves a request beforehand; see [`Request`].
    pub fn request(&self) -> RequestBuilder<'_> {
        RequestBuilder::new(self.keys())
    }

    /// The set at one instant: every limit, every participant, and what went wrong so far.
    ///
    /// # Errors
    ///
    /// If the set cannot be read.
    pub fn stats(&self) -> Result<Stats, ManageError> {
        Ok(self.shared.stats()?)
    }

    /// The limits as they were declared, in order. What was changed live is in [`stats`](Self::stats).
    pub fn limits(&self) -> &[Limit] {
        &self.shared.definition().limits
    }

    /// The config map of the set.
    pub fn config(&self) -> &BTreeMap<String, String> {
        &self.shared.definition().config
    }

    /// The clock of the set.
    pub fn clock(&self) -> Clock {
        self.shared.clock()
    }

    /// The segment that the set lives in.
    #[inline]
    pub fn segment(&self) -> &Segment {
        self.shared.segment()
    }

    /// Removes the set: every request to it, by whomever, answers [`Removed`](AcquireError::Removed) from now on, and
    /// the name is free again. Its last [`stats`](Self::stats) can still be read.
    ///
    /// # Errors
    ///
    /// If the name cannot be taken away; then nothing has changed.
    pub fn remove(&self) -> Result<(), AttachError> {
        self.segment().remove_here()
    }

    /// The set's words and what they mean. For model checks and crash tests; not covered by semantic versioning.
    #[doc(hidden)]
    pub fn parts(&self) -> Result<Engine<'_, Machine>, AttachError> {
        Ok(*self.shared.engine())
    }

    #[inline]
    pub(crate) fn shared(&self) -> &Arc<SharedSet> {
        &self.shared
    }

    #[inline]
    pub(crate) fn keys(&self) -> &Arc<Keys> {
        self.shared.keys()
    }
}

impl fmt::Debug for LimitSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limits: Vec<_> = self.limits().iter().map(ToString::to_string).collect();
        f.debug_struct("LimitSet").field("segment", self.segment()).field("limits", &limits).finish()
    }
}
