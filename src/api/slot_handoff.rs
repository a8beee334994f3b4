//! Lending a life: a command that keeps its participant alive.
//!
//! The participant's byte is held by an open file description, and the command inherits a descriptor of it. So what
//! the participant holds stays held until both have ended, whoever ends first and how.
//!
//! A participant that seems to live must not die with the lock of the segment in its hands, or nobody would take it
//! from it. While the command runs, the participant has no business with the segment. When it wants to return what it
//! holds, something that the command started may still have the descriptor: then it first takes the byte away from
//! all of them, and returns the rest as what it has become, somebody else who finds a dead one's permits.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::{Child, Command};

use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};

use crate::api::acquisition::Acquisition;
use crate::api::error::UsageError;
use crate::segment::Segment;
use crate::segment::grantee::Grantee;
use crate::sys::{ofd, process};

impl Segment {
    /// Spawns a command that keeps this process's place in the segment: if this process dies, what it holds stays held
    /// until the command has ended, too. The segment must have been attached to with
    /// [`lends_life`](crate::SegmentOptions::lends_life). `unblock` are signals that this thread blocks and the command shall not.
    ///
    /// ```
    /// use std::process::Command;
    /// use limitset::{LimitSet, ResourceLimit, Segment};
    ///
    /// let limits = LimitSet::builder()
    ///     .limit(ResourceLimit::new("connections", 8))
    ///     .segment(Segment::options().lends_life(true))
    ///     .open_anonymous()?;
    /// let held = limits.acquire(())?;
    /// let (mut child, life) = limits.segment().spawn_lending_life(Command::new("true"), &[])?;
    /// child.wait()?;
    /// life.release(held)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # What to know
    ///
    /// * From now on this process's death is hidden as long as anybody has one of the two descriptors that the command
    ///   inherits: the command, and whatever it starts that does not close them. A program that closes all descriptors
    ///   gives the life back, and then only this process keeps it.
    /// * Do not use the segment, from any thread, until the command has ended and the life is back: if this process died
    ///   in the middle of an update, nobody would finish it. Threads and futures that wait for limits may go on waiting.
    /// * A life can be lent to one command at a time. Do not fork without exec meanwhile: such a child has a copy of it.
    ///
    /// # Errors
    ///
    /// If the command cannot be started, or there is no life to be lent: [`io::ErrorKind::InvalidInput`].
    pub fn spawn_lending_life(&self, command: Command, unblock: &[i32]) -> io::Result<(Child, LentLife)> {
        let lender = self.inner.me().map_err(io::Error::other)?;
        let descriptors = self.inner.view.machine.descriptors.as_ref();
        let life = descriptors.and_then(|it| it.kept.take());
        let (Some(descriptors), Some(life)) = (descriptors, life) else {
            let why = "no life to lend: attach with SegmentOptions::lends_life, and lend it once at a time";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        };
        let mut signals = SigSet::empty();
        for signal in unblock {
            signals.add(Signal::try_from(*signal)?);
        }
        let children_wait = process::ChildrenWait::new();
        let spawned =
            nix::unistd::pipe2(OFlag::O_CLOEXEC).map_err(io::Error::from).and_then(|(end, others)| {
                Ok((process::spawn_inheriting(command, [life.as_fd(), others.as_fd()], signals)?, end))
            });
        match spawned {
            Ok((child, end)) => {
                let (segment, life) = (self.clone(), Some(life));
                let lender = Grantee::new(lender);
                Ok((child, LentLife { segment, life, end, lender, _children_wait: children_wait }))
            }
            Err(error) => {
                descriptors.kept.put_back(life);
                Err(error)
            }
        }
    }
}

/// The life of a participant, lent to a command by [`Segment::spawn_lending_life`].
///
/// Dropped without [`release`](Self::release), it goes back to the segment, which can lend it again. What this process
/// holds stays held. If the command, or something it started, still has the life, they keep it alive as before.
#[must_use = "what is held is to be released by it"]
pub struct LentLife {
    segment: Segment,
    /// The description that holds our byte; none once it was put back or given up.
    life: Option<OwnedFd>,
    /// Says when nobody has the other end any more.
    end: OwnedFd,
    /// The participant whose life it is.
    lender: Grantee,
    /// So that the command can be asked how it ended, also where the program ignores that.
    _children_wait: Option<process::ChildrenWait>,
}

impl LentLife {
    /// Whether the command, or something it started, still has it.
    pub fn is_lent(&self) -> bool {
        let mut ends = [PollFd::new(self.end.as_fd(), PollFlags::empty())];
        let is_over = poll(&mut ends, PollTimeout::ZERO).is_ok_and(|ready| ready > 0);
        !is_over
    }

    /// Takes the life back and ends an acquisition, as [`Acquisition::release`] does. If something still has it, it is
    /// taken from them, and with it everything that this process holds in the segment is returned, as for a dead
    /// participant: without the reports it owes.
    ///
    /// This process is another participant then. Its other acquisitions, permits, guards and items of work are void:
    /// dropping one does nothing, and using one is an error that says so ([`UsageError::Returned`]). Threads and futures
    /// that wait for limits join the queue anew, at its end.
    ///
    /// # Errors
    ///
    /// As [`Acquisition::release`].
    pub fn release(mut self, held: Acquisition) -> Result<(), UsageError> {
        // A child has a copy of the descriptor, and the life is its parent's.
        self.lender.check(&self.segment)?;
        let before = self.lender.participant();
        let is_lent = self.is_lent();
        let (Some(descriptors), true) = (&self.segment.inner.view.machine.descriptors, is_lent) else {
            self.put_back();
            return held.release();
        };
        let Some(life) = self.life.take() else { return held.release() };
        let set = held.set().clone();
        // What it holds is returned below, by a participant that is not its owner any more.
        held.abandon();
        Ok(set.shared().enrol_anew(before, || {
            ofd::unlock(life.as_raw_fd(), 0, 0);
            self.segment.inner.leave(descriptors);
        })?)
    }

    /// Gives the life back to the segment, if this process is the participant whose life it is.
    fn put_back(&mut self) {
        if let (Some(descriptors), Some(life)) =
            (&self.segment.inner.view.machine.descriptors, self.life.take())
            && self.lender.is_us(&self.segment)
        {
            descriptors.kept.put_back(life);
        }
    }
}

impl Drop for LentLife {
    fn drop(&mut self) {
        self.put_back();
    }
}
