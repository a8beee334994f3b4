//! Acquire: the set of limits itself.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::acquisition::Acquisition;
use crate::answer::{AcquireError, ManageError, RunError, Statuses, Trouble, Unavailable};
use crate::builder::{LimitSetBuilder, OnUnavailable};
use crate::clock::Clock;
use crate::core::{Fault, Guard};
use crate::engine::{Engine, Standing, Wants};
use crate::error::AttachError;
use crate::layout::state::StateMap;
use crate::limit::{Definition, Limit};
use crate::observe::{SetObserver, Stats};
use crate::request::{Keys, Request, RequestBuilder};
use crate::segment::Segment;
use crate::segment::view::damage;
use crate::sys::clock;
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
    segment: Segment,
    definition: Arc<Definition>,
    keys: Arc<Keys>,
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
        let keys = Arc::new(Keys { limits: definition.limits.clone(), table: view.table() });
        Ok(Self { inner: Arc::new(Inner { segment, definition, keys, clock, on_unavailable }) })
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
        let request = request.into();
        let mut scratch = Wants::none();
        let wants = self.inner.keys.wants(&request, &mut scratch)?;
        match self.take(wants, u64::MAX) {
            Ok(Ok(ticket)) => Ok(Acquisition::new(self.clone(), wants, ticket)),
            Ok(Err(statuses)) => Err(statuses.into_refusal()),
            Err(Trouble::Unavailable(_)) if self.inner.on_unavailable == OnUnavailable::Allow => {
                self.count_unenforced();
                Ok(Acquisition::not_enforced(self.clone()))
            }
            Err(trouble) => Err(trouble.into()),
        }
    }

    /// Whether [`try_acquire`](Self::try_acquire) would succeed now, and how every limit stands. Changes nothing.
    ///
    /// # Errors
    ///
    /// What `try_acquire` would answer.
    pub fn check<'r>(&self, request: impl Into<Request<'r>>) -> Result<Statuses, AcquireError> {
        let request = request.into();
        let mut scratch = Wants::none();
        let wants = self.inner.keys.wants(&request, &mut scratch)?;
        let interval = self.inner.segment.view().machine.doorbell_slice;
        let judge = |sweeps: bool| {
            self.locked(|engine, guard, now| {
                let judged = engine.judge(guard, wants, now)?;
                let is_held = judged.iter().any(|it| it.standing == Standing::Held);
                Ok(if sweeps && is_held && engine.block.sweep_is_due(interval) {
                    None
                } else {
                    Some(Statuses::new(self.inner.keys.clone(), &judged, now))
                })
            })
        };
        let mut statuses = judge(true)?;
        if statuses.is_none() {
            self.sweep()?;
            statuses = judge(false)?;
        }
        match statuses {
            Some(statuses) => statuses.into_answer(),
            None => Err(AcquireError::Removed),
        }
    }

    /// Acquires, runs `body`, and releases. If `body` fails or panics, what was charged is given back where that is
    /// possible; if it succeeds without the reports it owes, that is counted as by dropping the acquisition.
    ///
    /// ```
    /// use limitset::{LimitSet, RateLimit, RunError};
    ///
    /// let limits = LimitSet::builder().limit(RateLimit::per_minute("tokens", 1_000)).in_memory()?;
    /// let answer = limits.run([("tokens", 600)], |held| {
    ///     held.settle("tokens", 250)?;
    ///     Ok::<_, limitset::UsageError>("done")
    /// })?;
    /// assert_eq!(answer, "done");
    /// let failed = limits.run([("tokens", 600)], |_| Err::<(), _>("no answer"));
    /// assert!(matches!(failed, Err(RunError::Body("no answer"))));
    /// assert_eq!(limits.stats()?.limit("tokens").unwrap().consumed, 250);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`RunError::Acquire`] if nothing was acquired, [`RunError::Body`] if `body` failed.
    pub fn run<'r, T, E>(
        &self,
        request: impl Into<Request<'r>>,
        body: impl FnOnce(&mut Acquisition) -> Result<T, E>,
    ) -> Result<T, RunError<E>> {
        self.try_acquire(request)?.run(body)
    }

    /// Resolves a request beforehand; see [`Request`].
    pub fn request(&self) -> RequestBuilder<'_> {
        RequestBuilder::new(&self.inner.keys)
    }

    /// The set at one instant: every limit, every participant, and what went wrong so far.
    ///
    /// # Errors
    ///
    /// If the set cannot be read.
    pub fn stats(&self) -> Result<Stats, ManageError> {
        self.inner.segment.participant().map_err(attach_trouble)?;
        Stats::read(self.inner.segment.view(), &self.inner.keys).map_err(|error| sync_trouble(error).into())
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
    pub fn segment(&self) -> &Segment {
        &self.inner.segment
    }

    /// Removes the set: every request to it, by whomever, answers [`Removed`](AcquireError::Removed) from now on, and
    /// the name is free again.
    ///
    /// # Errors
    ///
    /// If the name cannot be taken away; then nothing has changed.
    pub fn remove(&self) -> Result<(), AttachError> {
        self.inner.segment.remove_here()
    }

    pub(crate) fn keys(&self) -> &Arc<Keys> {
        &self.inner.keys
    }

    pub(crate) fn declared(&self) -> &Definition {
        &self.inner.definition
    }

    /// Charges what is wanted and gives its ticket, or says how the limits stand.
    pub(crate) fn take(&self, wants: &Wants, owing: u64) -> Result<Result<u64, Statuses>, Trouble> {
        let interval = self.inner.segment.view().machine.doorbell_slice;
        let mut may_sweep = true;
        loop {
            let answer = self.locked(|engine, guard, now| {
                if let Some(ticket) = engine.take(guard, wants, owing, now)? {
                    return Ok(Some(Ok(ticket)));
                }
                let judged = engine.judge(guard, wants, now)?;
                let is_held = judged.iter().any(|it| it.standing == Standing::Held);
                if may_sweep && is_held && engine.block.sweep_is_due(interval) {
                    return Ok(None);
                }
                engine.count_denied(guard, &judged)?;
                Ok(Some(Err(Statuses::new(self.inner.keys.clone(), &judged, now))))
            })?;
            if let Some(answer) = answer {
                return Ok(answer);
            }
            // Before refusing for want of permits, make sure that the dead hold none of them.
            self.sweep()?;
            may_sweep = false;
        }
    }

    /// Acts under the lock, at one instant.
    pub(crate) fn locked<T>(
        &self,
        act: impl FnOnce(&Engine<'_, Machine>, &mut Guard<'_, Machine>, u64) -> Result<T, Fault>,
    ) -> Result<T, Trouble> {
        self.locked_within(self.inner.segment.patience(), act)
    }

    /// The same with another patience.
    pub(crate) fn locked_within<T>(
        &self,
        patience: u64,
        act: impl FnOnce(&Engine<'_, Machine>, &mut Guard<'_, Machine>, u64) -> Result<T, Fault>,
    ) -> Result<T, Trouble> {
        let me = self.inner.segment.participant().map_err(attach_trouble)?;
        let engine = self.engine()?;
        let done = (|| {
            let reading = self.reading();
            let from = if self.inner.clock == Clock::Manual { clock::monotonic() } else { reading };
            let mut guard = engine.block.lock(me, from.saturating_add(patience))?.guard();
            // What the clock said before a sleep is old.
            let reading = if guard.has_waited() { self.reading() } else { reading };
            let now = engine.now(&guard, reading)?;
            let value = act(&engine, &mut guard, now)?;
            guard.unlock()?;
            Ok(value)
        })();
        done.map_err(|fault| self.trouble(fault))
    }

    fn engine(&self) -> Result<Engine<'_, Machine>, Trouble> {
        let block = self.inner.segment.view().state().map_err(attach_trouble)?;
        Ok(Engine::new(block, &self.inner.keys.table))
    }

    pub(crate) fn sweep(&self) -> Result<u64, Trouble> {
        let segment = &self.inner.segment;
        let me = segment.participant().map_err(attach_trouble)?;
        let swept = self.engine()?.sweep(me, segment.deadline());
        let looked = swept.and_then(|units| segment.view().look_at_name().map(|()| units));
        looked.map_err(|fault| self.trouble(fault))
    }

    fn reading(&self) -> u64 {
        match self.inner.clock {
            Clock::Monotonic => clock::monotonic(),
            Clock::Coarse => clock::coarse(),
            Clock::Manual => 0,
        }
    }

    fn count_unenforced(&self) {
        if let Ok(engine) = self.engine()
            && let Some(word) = engine.block.words.get(StateMap::UNENFORCED)
        {
            word.fetch_add(1, Relaxed);
        }
    }

    fn trouble(&self, fault: Fault) -> Trouble {
        match fault {
            Fault::Closed => Trouble::Removed,
            Fault::Busy { slot } => {
                Trouble::Unavailable(Unavailable::Busy { slot, pid: self.inner.segment.view().pid_of(slot) })
            }
            other => Trouble::Unavailable(Unavailable::Damaged(damage(other))),
        }
    }
}

fn attach_trouble(error: AttachError) -> Trouble {
    match error {
        AttachError::NotShared => Trouble::NotShared,
        AttachError::Removed { .. } => Trouble::Removed,
        other => Trouble::Unavailable(Unavailable::Enrol(other)),
    }
}

fn sync_trouble(error: crate::error::SyncError) -> Trouble {
    use crate::error::SyncError;
    match error {
        SyncError::Busy { slot, pid } => Trouble::Unavailable(Unavailable::Busy { slot, pid }),
        SyncError::Damaged(what) => Trouble::Unavailable(Unavailable::Damaged(what)),
        SyncError::Enrol(error) => attach_trouble(error),
        _ => Trouble::Removed,
    }
}

impl fmt::Debug for LimitSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limits: Vec<_> = self.limits().iter().map(ToString::to_string).collect();
        f.debug_struct("LimitSet").field("segment", &self.inner.segment).field("limits", &limits).finish()
    }
}
