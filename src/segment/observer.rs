//! Reading a segment without a slot, without a lock, and without write access.

use std::mem::offset_of;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::view::View;
use crate::format::FORMAT_VERSION;
use crate::format::header::{RegionEntry, RegionKind};
use crate::format::slots::SlotIdentity;
use crate::protocol::{Env, Fault, Participant, semaphore};
use crate::segment::error::{AttachError, SyncError};

/// How often a block is read in each of [`ROUNDS`] rounds, before the reader gives up on a living writer.
const TRIES: u32 = 1_000;
/// The number of rounds. A writer that lost its CPU can go on in the rest between two rounds.
const ROUNDS: u32 = 50;
const REST: Duration = Duration::from_millis(1);

/// A segment that is open for reading only.
#[derive(Clone)]
pub struct Observer {
    pub(super) view: Arc<View>,
}

/// The facts in a segment's header.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SegmentInfo {
    /// The path of the file, or a word in parentheses for a segment without one.
    pub path: PathBuf,
    /// The version of the format.
    pub format_version: u32,
    /// The size of the segment.
    pub bytes: u64,
    /// A random number that tells the segment from an earlier one of the same name.
    pub instance: [u8; 16],
    /// The time of creation.
    pub created: SystemTime,
    /// The process that created the segment.
    pub creator_pid: u32,
    /// The user that created the segment.
    pub creator_uid: u32,
    /// How many processes can be attached.
    pub slots: u32,
    /// How many limits the segment has room for.
    pub limits: u32,
    /// How many waiters the segment has room for.
    pub waiters: u32,
}

/// A process attached to a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ParticipantInfo {
    /// The slot of the process.
    pub slot: u32,
    /// Tells successive owners of the slot apart.
    pub generation: u64,
    /// The process number, in its own PID namespace.
    pub pid: u64,
    /// The inode of that namespace.
    pub pid_namespace: u64,
    /// The user that the process runs as.
    pub uid: u64,
    /// The name of the process, at most 16 bytes.
    pub command: String,
    /// The time at which the process enrolled.
    pub enrolled: SystemTime,
}

/// A named segment found on this machine.
#[derive(Debug)]
#[non_exhaustive]
pub struct Listed {
    /// The name of the segment.
    pub name: String,
    /// The facts in its header, or why it cannot be used.
    pub info: Result<SegmentInfo, AttachError>,
}

/// The state of a semaphore at one instant.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SemaphoreState {
    /// How many permits the semaphore has.
    pub capacity: u64,
    /// How many permits are taken.
    pub taken: u64,
    /// The holders and how many permits each has, including dead participants that were not reaped yet.
    pub holders: Vec<(Participant, u64)>,
}

/// How often a lock was recovered from a dead holder. The counts are never reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockStatistics {
    /// How often the lock was taken from a dead holder.
    pub steals: u64,
    /// How many of those holders had left an update half done, which was then rolled back.
    pub rollbacks: u64,
    /// How often an unlock found another owner in the lock. Anything but 0 is a defect worth a report.
    pub deposed: u64,
}

impl Observer {
    pub(crate) fn view(&self) -> &View {
        &self.view
    }

    /// Returns the facts in the segment's header.
    pub fn info(&self) -> SegmentInfo {
        self.view.info()
    }

    /// Returns the attached processes.
    pub fn participants(&self) -> Vec<ParticipantInfo> {
        self.view.participants()
    }

    /// Returns the words that a mutex guards, as they were at one instant.
    pub fn mutex(&self, label: &str) -> Result<Vec<u64>, SyncError> {
        self.view.snapshot(&self.view.region(label, RegionKind::Mutex, "mutex")?)
    }

    /// Returns the state of a semaphore at one instant.
    pub fn semaphore(&self, label: &str) -> Result<SemaphoreState, SyncError> {
        self.view.semaphore_state(&self.view.region(label, RegionKind::Semaphore, "semaphore")?)
    }
}

impl View {
    pub(crate) fn info(&self) -> SegmentInfo {
        let header = &self.checked.header;
        SegmentInfo {
            path: self.path(),
            format_version: FORMAT_VERSION,
            bytes: header.total_bytes,
            instance: header.instance,
            created: UNIX_EPOCH + Duration::from_nanos(header.created_unix_nanos),
            creator_pid: header.creator_pid,
            creator_uid: header.creator_uid,
            slots: header.slots,
            limits: header.limits,
            waiters: header.waiters,
        }
    }

    pub(crate) fn participants(&self) -> Vec<ParticipantInfo> {
        let is_alive = |slot: &u32| self.slots().generation(*slot) != 0 && !self.machine.slot_is_free(*slot);
        (1..=self.checked.header.slots)
            .filter(is_alive)
            .filter_map(|slot| self.participant_in(slot))
            .collect()
    }

    fn participant_in(&self, slot: u32) -> Option<ParticipantInfo> {
        let words = self.slot_words(slot);
        let word = |offset: usize| words.get(offset / 8).map(|word| word.load(Relaxed));
        let command = offset_of!(SlotIdentity, command);
        let name: [u8; 16] = bytemuck::cast([word(command)?, word(command + 8)?]);
        let enrolled = Duration::from_nanos(word(offset_of!(SlotIdentity, enrolled_unix_nanos))?);
        Some(ParticipantInfo {
            slot,
            generation: word(offset_of!(SlotIdentity, generation))?,
            pid: word(offset_of!(SlotIdentity, pid))?,
            pid_namespace: word(offset_of!(SlotIdentity, pid_namespace))?,
            uid: word(offset_of!(SlotIdentity, uid))?,
            command: String::from_utf8_lossy(&name).trim_end_matches('\0').to_owned(),
            enrolled: UNIX_EPOCH + enrolled,
        })
    }

    /// Returns all words of a block at one instant. Gives a living writer time to finish.
    pub(crate) fn snapshot(&self, region: &RegionEntry) -> Result<Vec<u64>, SyncError> {
        self.snapshot_of(region, usize::MAX)
    }

    /// Returns the set's words at one instant, without those of single waiters and items.
    pub(crate) fn set_words(&self) -> Result<Vec<u64>, SyncError> {
        self.snapshot_of(&self.checked.state, self.state_map().words_before_links() as usize)
    }

    fn snapshot_of(&self, region: &RegionEntry, count: usize) -> Result<Vec<u64>, SyncError> {
        let block = self.block(region)?;
        for _ in 0..ROUNDS {
            match block.snapshot_of(count, TRIES) {
                Err(Fault::Busy { .. }) => std::thread::sleep(REST),
                done => return done.map_err(|fault| self.sync_error(fault)),
            }
        }
        block.snapshot_of(count, TRIES).map_err(|fault| self.sync_error(fault))
    }

    pub(crate) fn semaphore_state(&self, region: &RegionEntry) -> Result<SemaphoreState, SyncError> {
        let words = self.snapshot(region)?;
        let at = |index: usize| words.get(index).copied().unwrap_or(0);
        let holders = (1..=self.checked.header.slots).filter_map(|slot| {
            let row = 2 * slot as usize;
            let held = at(row + 1);
            (held > 0).then(|| (Participant { slot, generation: at(row) }, held))
        });
        let holders = holders.collect();
        Ok(SemaphoreState {
            capacity: at(semaphore::CAPACITY),
            taken: at(semaphore::HOLDINGS.totals),
            holders,
        })
    }

    pub(crate) fn statistics(&self, region: &RegionEntry) -> Result<LockStatistics, SyncError> {
        let block = self.block(region)?;
        Ok(LockStatistics {
            steals: block.steals.load(Relaxed),
            rollbacks: block.rollbacks.load(Relaxed),
            deposed: block.deposed.load(Relaxed),
        })
    }

    pub(crate) fn semaphore_capacity(&self, region: &RegionEntry) -> Result<u64, AttachError> {
        Ok(self.block(region)?.words.get(semaphore::CAPACITY).map_or(0, |word| word.load(Relaxed)))
    }
}
