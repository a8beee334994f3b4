//! The audit: a check that all parts of a segment are consistent. It only reads, never waits for a participant, and
//! trusts no word.
//!
//! ```text
//! snapshot   the words of a set at one instant
//! segment    header and definition; lock, version and journal of every block; semaphores
//! limits     parameters, totals against holders, rates, clock, cooldown
//! queue      the wait queue: lists, states, demands
//! work       work items: lists, states, counts
//! ```
//!
//! State that a dead participant left behind, and that the next participant cleans up, is
//! [`Pending`](Gravity::Pending). State that no correct participant can have written is [`Broken`](Gravity::Broken).

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

/// How many findings of one check are kept. Further findings are only counted.
const MOST_TOLD: usize = 16;

/// The findings of an audit of a whole segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Audit {
    /// The checks that were made, in order.
    pub checks: Vec<AuditCheck>,
}

/// One check of an audit: the things of one kind, and the findings about them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AuditCheck {
    /// The name of the check.
    pub what: &'static str,
    /// How many things were checked.
    pub looked_at: u64,
    /// The findings, as far as they are kept.
    pub findings: Vec<Finding>,
    /// How many more findings there were.
    pub untold: u64,
}

/// A finding: something inconsistent in the segment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// How severe the finding is.
    pub gravity: Gravity,
    /// The value that was found, and the one that was expected.
    pub what: String,
}

/// How severe a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Gravity {
    /// Left behind by a dead participant. The next participant that uses the set cleans it up.
    Pending,
    /// No correct participant can have written this.
    Broken,
}

impl Audit {
    /// Returns whether nothing is broken. Pending findings are allowed.
    pub fn is_sound(&self) -> bool {
        self.findings().all(|finding| finding.gravity == Gravity::Pending)
    }

    /// Returns all findings that were kept.
    pub fn findings(&self) -> impl Iterator<Item = &Finding> {
        self.checks.iter().flat_map(|check| &check.findings)
    }

    fn of(view: &View) -> Result<Self, SyncError> {
        let mut audit = Self::default();
        segment::check(view, &mut audit)?;
        // If a journal cannot be rolled back, the words that it guards have no meaning.
        if audit.is_sound() && view.definition.is_some() {
            let table = view.table();
            let picture = snapshot::Picture::take(view, &table)?;
            limits::check(view, &table, &picture, &mut audit);
            queue::check(view, &table, &picture, &mut audit);
            work::check(view, &table, &picture, &mut audit);
        }
        Ok(audit)
    }

    /// Begins a check.
    fn begin(&mut self, what: &'static str) -> &mut AuditCheck {
        self.checks.push(AuditCheck { what, looked_at: 0, findings: Vec::new(), untold: 0 });
        let last = self.checks.len() - 1;
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
        // The first broken finding is always kept.
        let is_new = gravity == Gravity::Broken && self.findings.iter().all(|it| it.gravity != gravity);
        if self.findings.len() < MOST_TOLD || is_new {
            self.findings.push(Finding { gravity, what: what.to_string() });
        } else {
            self.untold += 1;
        }
    }
}

impl Observer {
    /// Checks that all parts of the segment are consistent: totals against holders, journals, lists, checksums.
    /// Changes nothing, and may run while other processes use the segment.
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
    /// [`SyncError::Busy`] if a living writer is stopped in the middle of a change, or other processes change the set
    /// faster than it can be copied: try again.
    pub fn audit(&self) -> Result<Audit, SyncError> {
        Audit::of(self.view())
    }
}

impl Segment {
    /// Checks that all parts of the segment are consistent; see [`Observer::audit`].
    ///
    /// # Errors
    ///
    /// As [`Observer::audit`], and [`SyncError::Enrol`] if this process cannot become a participant.
    pub fn audit(&self) -> Result<Audit, SyncError> {
        self.participant().map_err(|error: AttachError| SyncError::Enrol(error))?;
        Audit::of(self.view())
    }
}
