//! Acquire: the set of limits itself.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::acquisition::Acquisition;
use crate::answer::{AcquireError, ManageError, Statuses, Trouble};
use crate::builder::{LimitSetBuilder, OnUnavailable};
use crate::clock::Clock;
use crate::core::Reach;
use crate::engine::{Engine, Standing, Wants};
use crate::enter::{attach_trouble, sync_trouble};
use crate::error::AttachError;
use crate::events;
use crate::layout::state::StateMap;
use crate::limit::{Definition, Limit, Order};
use crate::observe::{SetObserver, Stats};
use crate::request::{Keys, Request, RequestBuilder};
use crate::segment::{BoundEngine, Segment};
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
    inner: Arc<Inner>,
}

struct Inner {
    bound: BoundEngine,
    definition: Arc<Definition>,
    clock: Clock,
    on_unavailable: OnUnavailable,
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
        let view = segment.view();
        let definition = view.definition.clone().ok_or_else(|| AttachError::NotASet { path: view.path() })?;
        let clock = view.checked.clock;
        let keys = Arc::new(Keys::new(&definition.limits, view.table()));
        let bound = BoundEngine::new(segment, keys)?;
        Ok(Self { inner: Arc::new(Inner { bound, definition, clock, on_unavailable }) })
    }

    /// Acquires what is asked for if the limits allow it now; see [`Request`] for what can be asked.
    ///
    /// Never waits for a limit. For the set's lock, which is held for less than a microsecond at a time, it waits as
    /// long as the segment's [`patience`](crate::SegmentOptions::patience).
    ///
    /// # Errors
    ///
    /// [`AcquireError`] says what is in the way; nothing was charged then.
    pub fn try_acquire<'r>(&self, request: impl Into<Request<'r>>) -> Result<Acquisition, AcquireError> {
        self.try_request(&request.into(), Self::clone)
    }

    /// As [`try_acquire`](Self::try_acquire), for what ends before the set goes: it saves counting one more user of the
    /// set, which is a good part of what an acquisition costs.
    ///
    /// ```
    /// use limitset::{LimitSet, ResourceLimit};
    ///
    /// let limits = LimitSet::builder().limit(ResourceLimit::new("connections", 2)).in_memory()?;
    /// let held = limits.try_acquire_ref(())?;
    /// assert_eq!(held.charged("connections"), Some(1));
    /// held.release()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The same.
    pub fn try_acquire_ref<'s, 'r>(
        &'s self,
        request: impl Into<Request<'r>>,
    ) -> Result<Acquisition<&'s Self>, AcquireError> {
        self.try_request(&request.into(), |set| set)
    }

    /// As [`try_acquire`](Self::try_acquire); `keep` makes the handle that the acquisition keeps of the set.
    pub(crate) fn try_request<'s, S: Borrow<Self>>(
        &'s self,
        request: &Request<'_>,
        keep: impl Fn(&'s Self) -> S,
    ) -> Result<Acquisition<S>, AcquireError> {
        let mut scratch = Wants::none();
        let wants = self.keys().wants(request, &mut scratch)?;
        match self.enter_at_once(wants, u64::MAX, self.segment().patience()) {
            Ok(Some(granted)) => {
                events::granted(self, request.name(), granted.ticket);
                Ok(Acquisition::new(keep(self), wants, u64::MAX, &granted))
            }
            Ok(None) => Ok(self.try_in_order(wants, u64::MAX, request.name())?.of(keep(self))),
            Err(trouble) => Ok(self.on_trouble(trouble, request.name())?.of(keep(self))),
        }
    }

    /// Asks for what cannot be had at once, as far as one can see without a look at those who wait.
    #[cold]
    pub(crate) fn try_in_order(
        &self,
        wants: &Wants,
        owing: u64,
        label: Option<&str>,
    ) -> Result<Acquisition, AcquireError> {
        match self.try_enter(wants, owing) {
            Ok(Ok(granted)) => {
                events::granted(self, label, granted.ticket);
                Ok(Acquisition::new(self.clone(), wants, owing, &granted))
            }
            Ok(Err(refusal)) => {
                events::refused(self, label, &refusal);
                Err(refusal)
            }
            Err(trouble) => self.on_trouble(trouble, label),
        }
    }

    /// What the set's policy makes of trouble.
    pub(crate) fn on_trouble(
        &self,
        trouble: Trouble,
        label: Option<&str>,
    ) -> Result<Acquisition, AcquireError> {
        match trouble {
            Trouble::Unavailable(why) if self.inner.on_unavailable == OnUnavailable::Allow => {
                self.count_unenforced();
                events::not_enforced(self, label, &why);
                Ok(Acquisition::not_enforced(self.clone()))
            }
            trouble => Err(trouble.into()),
        }
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
        let mut may_sweep = true;
        loop {
            let answer = self.locked(|engine, guard, now| {
                let mask = wants.demand();
                let judged = engine.judge(guard, wants, now)?;
                let is_possible = judged.iter().all(|it| it.standing != Standing::Never);
                let in_order = self.keys().table.order == Order::Arrival;
                let gate = if mask == 0 { None } else { engine.gate(guard, now)? };
                let is_waited_for = in_order
                    && engine.waited_for(guard, mask)? != 0
                    && !engine.leaves_enough(guard, wants, now)?;
                if let Some(at) = gate.filter(|_| is_possible)
                    && (!is_waited_for || engine.paused_until(guard, now)?.is_some())
                {
                    return Ok(Some(Err(self.cooling_down(at.saturating_sub(now)))));
                }
                if is_possible && is_waited_for {
                    if may_sweep && self.is_time_to_sweep(engine) {
                        return Ok(None);
                    }
                    return Ok(Some(Err(AcquireError::Queued { ahead: engine.ahead(guard, mask, None)? })));
                }
                if may_sweep && self.is_sweep_due(engine, &judged) {
                    return Ok(None);
                }
                Ok(Some(Ok(self.statuses(judged, now))))
            })?;
            if let Some(answer) = answer {
                return answer?.into_answer();
            }
            let reach = Reach::BOUNDED.wanting(wants.demand());
            self.sweep_within(self.segment().patience(), reach)?;
            may_sweep = false;
        }
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
        self.segment().participant().map_err(attach_trouble)?;
        Stats::read(self.segment().view(), self.keys()).map_err(|error| sync_trouble(error).into())
    }

    /// The limits as they were declared, in order. What was changed live is in [`stats`](Self::stats).
    pub fn limits(&self) -> &[Limit] {
        &self.inner.definition.limits
    }

    /// The config map of the set.
    pub fn config(&self) -> &BTreeMap<String, String> {
        &self.inner.definition.config
    }

    /// The clock of the set.
    pub fn clock(&self) -> Clock {
        self.inner.clock
    }

    /// The segment that the set lives in.
    #[inline]
    pub fn segment(&self) -> &Segment {
        self.inner.bound.segment()
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
        Ok(*self.engine())
    }

    /// Whether the two are clones of one another.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Whether the two are the same set, be it opened once or twice.
    pub(crate) fn is_same_segment(&self, other: &Self) -> bool {
        let instance = |set: &Self| set.segment().view().checked.header.instance;
        instance(self) == instance(other)
    }

    #[inline]
    pub(crate) fn keys(&self) -> &Arc<Keys> {
        self.inner.bound.keys()
    }

    pub(crate) fn declared(&self) -> &Definition {
        &self.inner.definition
    }

    #[inline]
    pub(crate) fn engine(&self) -> &Engine<'_, Machine> {
        self.inner.bound.engine()
    }

    fn count_unenforced(&self) {
        if let Some(word) = self.engine().block.words.get(StateMap::UNENFORCED) {
            word.fetch_add(1, Relaxed);
        }
    }
}

impl fmt::Debug for LimitSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limits: Vec<_> = self.limits().iter().map(ToString::to_string).collect();
        f.debug_struct("LimitSet").field("segment", self.segment()).field("limits", &limits).finish()
    }
}
