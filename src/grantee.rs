//! Which participant a handle was granted to, and whether this process still is that participant.
//!
//! An acquisition, a permit, a place in the queue and an item of work belong to one participant. A process stops being
//! that participant in two ways: a forked child enrols under a name of its own, and a process that takes a lent slot
//! lock back returns everything that it held and enrols anew. From then on the handle is void: its permits may be with
//! another participant, its entry may be another waiter's. A void handle does nothing when it is dropped, and answers
//! an error when it is used.
//!
//! Every handle asks here, and nowhere else.

use crate::answer::{AcquireError, UsageError};
use crate::core::Participant;
use crate::error::SyncError;
use crate::queue::QueueError;
use crate::segment::Segment;

/// The participant that a handle was granted to: its [name](Participant::name), one word, because every acquisition
/// carries it. The default is nobody: no process has that name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Grantee(u64);

/// Why a handle is void.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Void {
    /// This process is a forked child, and the handle is its parent's.
    Forked,
    /// What it held was returned when this process took its slot lock back from a command.
    Returned,
}

impl Grantee {
    #[inline(always)]
    pub(crate) fn new(who: Participant) -> Self {
        Self(who.name())
    }

    /// Of what was granted to this process just now. The name is read behind the grant, which takes fewer instructions
    /// than carrying it there. So no thread may be within a call when another one takes a lent slot lock back, as
    /// [`Segment::spawn_lending_life`] says.
    #[inline(always)]
    pub(crate) fn now(segment: &Segment) -> Self {
        Self(segment.name_of_us())
    }

    #[inline(always)]
    pub(crate) fn participant(self) -> Participant {
        Participant::named(self.0)
    }

    /// That this process is the participant now, or why the handle is void. Never enrols.
    #[inline(always)]
    pub(crate) fn check(self, segment: &Segment) -> Result<(), Void> {
        if self.is_us(segment) { Ok(()) } else { Err(Void::of(segment)) }
    }

    /// Whether this process is the participant now.
    #[inline(always)]
    pub(crate) fn is_us(self, segment: &Segment) -> bool {
        segment.is_named(self.0)
    }
}

impl Void {
    #[cold]
    fn of(segment: &Segment) -> Self {
        if segment.has_changed_its_name() { Self::Returned } else { Self::Forked }
    }
}

impl From<Void> for AcquireError {
    fn from(void: Void) -> Self {
        match void {
            Void::Forked => Self::Forked,
            Void::Returned => Self::Returned,
        }
    }
}

impl From<Void> for UsageError {
    fn from(void: Void) -> Self {
        match void {
            Void::Forked => Self::Forked,
            Void::Returned => Self::Returned,
        }
    }
}

impl From<Void> for QueueError {
    fn from(void: Void) -> Self {
        match void {
            Void::Forked => Self::Forked,
            Void::Returned => Self::NotHeld,
        }
    }
}

impl From<Void> for SyncError {
    fn from(void: Void) -> Self {
        match void {
            Void::Forked => Self::Forked,
            Void::Returned => Self::Returned,
        }
    }
}
