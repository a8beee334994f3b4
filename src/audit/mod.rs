//! Check: whether everything in a segment fits together. Reads only, waits for nobody, believes nothing.
//!
//! ```text
//! snapshot   the words of a set at one instant
//! segment    header and definition; lock, version and journal of every block; semaphores
//! limits     numbers, totals against holders, rates, clock, cooldown
//! queue      who waits: lists, states, what is waited for
//! work       items of work: lists, states, counts
//! ```
//!
//! What a death left behind and the next to come puts right is [`Pending`](Gravity::Pending); what no correct
//! participant can have written is [`Broken`](Gravity::Broken).

mod limits;
mod queue;
mod segment;
mod snapshot;
#[cfg(test)]
mod tests;
mod work;

use std::fmt;

use crate::segment::error::{AttachError, SyncError};
use crate::segment::{Observer, Segment, View};

/// Findings of one kind that are told one by one; of more only the number is.
const MOST_TOLD: usize = 16;

/// What a check of a whole segment found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Audit {
    /// What was looked at, in order.
    pub checks: Vec<AuditCheck>,
}

/// One kind of thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AuditCheck {
    /// Which.
    pub what: &'static str,
    /// How many of them.
    pub looked_at: u64,
    /// What is not as it should be.
    pub findings: Vec<Finding>,
    /// How many more findings there are than are told.
    pub untold: u64,
}

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// How bad it is.
    pub gravity: Gravity,
    /// What was found, and what was expected.
    pub what: String,
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Gravity {
    /// Left behind by a death; whoever uses the set next puts it right.
    Pending,
    /// No correct participant can have written this.
    Broken,
}

impl Audit {
    /// Whether nothing is broken. What is pending is in order.
    pub fn is_sound(&self) -> bool {
        self.findings().all(|finding| finding.gravity == Gravity::Pending)
    }

    /// Every finding that is told.
    pub fn findings(&self) -> impl Iterator<Item = &Finding> {
        self.checks.iter().flat_map(|check| &check.findings)
    }

    fn of(view: &View) -> Result<Self, SyncError> {
        let mut audit = Self::default();
        segment::check(view, &mut audit)?;
        // Where a journal cannot be undone, the words behind it are not worth a look.
        if audit.is_sound() && view.definition.is_some() {
            let table = view.table();
            let picture = snapshot::Picture::take(view, &table)?;
            limits::check(view, &table, &picture, &mut audit);
            queue::check(view, &table, &picture, &mut audit);
            work::check(view, &table, &picture, &mut audit);
        }
        Ok(audit)
    }

    /// Begins to look at a kind of thing.
    fn begin(&mut self, what: &'static str) -> &mut AuditCheck {
        self.checks.push(AuditCheck { what, looked_at: 0, findings: Vec::new(), untold: 0 });
        let last = self.checks.len() - 1;
        // Just pushed.
        #[expect(clippy::indexing_slicing, reason = "it was pushed two lines above")]
        &mut self.checks[last]
    }
}

impl AuditCheck {
    fn broken(&mut self, what: impl fmt::Display) {
        self.find(Gravity::Broken, what);
    }

    fn pending(&mut self, what: impl fmt::Display) {
        self.find(Gravity::Pending, what);
    }

    fn find(&mut self, gravity: Gravity, what: impl fmt::Display) {
        // A broken thing is told in any case: at least the first.
        let is_new = gravity == Gravity::Broken && self.findings.iter().all(|it| it.gravity != gravity);
        if self.findings.len() < MOST_TOLD || is_new {
            self.findings.push(Finding { gravity, what: what.to_string() });
        } else {
            self.untold += 1;
        }
    }
}

impl Observer {
    /// Checks whether everything in the segment fits together: totals against holders, journals, lists, checksums.
    /// Changes nothing, and may be used while others are at work.
    ///
    /// ```
    /// use limitset::{LimitSet, ResourceLimit};
    ///
    /// # let name = format!("test-doc-audit-{}", std::process::id());
    /// let set = LimitSet::builder().limit(ResourceLimit::new("db", 8)).open(&name)?;
    /// let audit = LimitSet::observe(&name)?.segment().audit()?;
    /// assert!(audit.is_sound(), "{audit:?}");
    /// # set.remove()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`SyncError::Busy`] if a living writer is stopped in the middle, or others change the set faster than it can be
    /// copied: try again.
    pub fn audit(&self) -> Result<Audit, SyncError> {
        Audit::of(self.view())
    }
}

impl Segment {
    /// Checks whether everything in the segment fits together; see [`Observer::audit`].
    ///
    /// # Errors
    ///
    /// As [`Observer::audit`], and if this process cannot take part.
    pub fn audit(&self) -> Result<Audit, SyncError> {
        self.participant().map_err(|error: AttachError| SyncError::Enrol(error))?;
        Audit::of(self.view())
    }
}
