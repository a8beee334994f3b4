//! The state of a set at one instant, in structs of the caller.

use std::ffi::c_char;

use limits::{CooldownStats, LimitStats, ParticipantStats, QueueStats};

use crate::args::{self, nanos_or_none, plain, shared, sized};
use crate::denial::{LIMITSET_KEY_ROOM, in_room};
use crate::failure::answer;
use crate::handles::{SETS, limitset_set};
use crate::status::limitset_status;

/// The state of one limit at one instant.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct limitset_limit_stats {
    /// Its key.
    pub key: [c_char; LIMITSET_KEY_ROOM],
    /// Units per window, or permits in all.
    pub capacity: u64,
    /// Length of the window; -1 for permits.
    pub window_ns: i64,
    /// The most units at once.
    pub burst: u64,
    /// The amount that it would grant now.
    pub available: u64,
    /// The part of its capacity that is used up.
    pub in_use: u64,
    /// Units used beyond its grants.
    pub debt: u64,
    /// Units that waiters ask for.
    pub waiting: u64,
    /// How many acquisitions were charged to it.
    pub granted: u64,
    /// How many requests were denied because of it.
    pub denied: u64,
    /// Units refunded; returned permits are not counted.
    pub refunded: u64,
    /// How many acquisitions ended without a report that was due.
    pub unreported: u64,
    /// Units used since creation; permits ever acquired.
    pub consumed: u64,
    /// How often its parameters were changed live.
    pub revision: u64,
}

/// An attached process, or a dead participant whose permits have not been returned yet.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct limitset_participant {
    /// Its slot.
    pub slot: u32,
    /// 1: it is alive.
    pub is_alive: u32,
    /// Its process number; 0 if it is dead.
    pub pid: u64,
    /// Permits it holds, of all limits together.
    pub holds: u64,
    /// Its name.
    pub command: [c_char; 24],
}

/// The pauses of a set at one instant.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct limitset_cooldown_stats {
    /// How many pauses there have been.
    pub generation: u64,
    /// How long the present pause lasts; -1: there is none.
    pub remaining_ns: i64,
    /// The time until the next admission; -1: at once.
    pub next_admission_ns: i64,
    /// How many pauses in a row, since the last success.
    pub consecutive: u64,
    /// How many reports belong to the last pause.
    pub participants: u64,
    /// How many reports began no pause, over all pauses.
    pub absorbed: u64,
    /// How many more admissions the slow start spaces.
    pub slow_admissions: u64,
}

/// The state of a work queue at one instant.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct limitset_queue_stats {
    /// How many items there is room for; 0: the set has no queue.
    pub capacity: u64,
    /// Items that wait for a worker.
    pub ready: u64,
    /// Items that wait for the end of the set's pause.
    pub parked: u64,
    /// Items that wait for the time of their next attempt.
    pub delayed: u64,
    /// Items that a worker has.
    pub leased: u64,
    /// Results that have not been collected.
    pub results: u64,
    /// Dead letters that have not been collected.
    pub dead_letters: u64,
    /// 1: nothing more can be pushed.
    pub is_closed: u64,
    /// How many items were ever pushed.
    pub pushed: u64,
    /// How often a worker took an item.
    pub taken: u64,
    /// How many items were done.
    pub done: u64,
    /// How often a worker returned an item for another attempt.
    pub retried: u64,
    /// How often an item was parked after "too many requests".
    pub rate_limited: u64,
    /// How often a worker took a parked item again.
    pub redistributed: u64,
    /// How often an item returned from a dead worker.
    pub returned: u64,
    /// How many items became dead letters.
    pub dead_lettered: u64,
}

/// The state of a set at one instant. Initialize with limitset_stats_init(), and set `limits` and `participants` and
/// their room to get these.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct limitset_stats {
    /// sizeof(limitset_stats).
    pub struct_size: usize,
    /// Where the limits are to be written, in the order of their definition; null: nowhere.
    pub limits: *mut limitset_limit_stats,
    /// Where the participants are to be written; null: nowhere.
    pub participants: *mut limitset_participant,
    /// How many limits there is room for.
    pub limits_room: u32,
    /// How many participants there is room for.
    pub participants_room: u32,
    /// How many limits there are, written or not.
    pub limits_count: u32,
    /// How many participants there are, written or not.
    pub participants_count: u32,
    /// How many waiters there are.
    pub waiters: u64,
    /// How often the lock was taken from a dead holder.
    pub steals: u64,
    /// How many of these steals found an unfinished transaction, which was rolled back.
    pub recoveries: u64,
    /// How often the set was swept for dead participants.
    pub sweeps: u64,
    /// How many dead participants were reaped.
    pub reaped_participants: u64,
    /// How many permits reaping returned.
    pub reaped_permits: u64,
    /// Acquisitions allowed because the set was unavailable.
    pub unenforced: u64,
    /// How often a holder lost its lock to another process. Any number but 0 is a defect to report.
    pub deposed: u64,
    /// Pauses after "too many requests".
    pub cooldown: limitset_cooldown_stats,
    /// The state of the work queue.
    pub queue: limitset_queue_stats,
}

sized!(limitset_stats);
plain!(limitset_stats, limitset_limit_stats, limitset_participant);

/// Reads the state of a set at one instant.
///
/// # Safety
///
/// `stats` is null or points to one, whose pointers are null or point to as many entries as it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn limitset_read_stats(
    set: *const limitset_set,
    stats: *mut limitset_stats,
) -> limitset_status {
    answer(|| {
        // SAFETY: the caller vouches.
        let to = unsafe { args::out(stats, "the stats") }?;
        args::check_size(to, "the stats")?;
        let now = shared(&SETS, set, "set")?.stats()?;
        let (limits, participants) = (now.limits.iter(), now.participants.iter());
        let (room, more_room) = (to.limits_room as usize, to.participants_room as usize);
        // SAFETY: the caller vouches.
        unsafe { args::fill(to.limits, room, "limits of the stats", limits, limit) }?;
        let what = "participants of the stats";
        // SAFETY: the caller vouches.
        unsafe { args::fill(to.participants, more_room, what, participants, participant) }?;
        to.limits_count = u32::try_from(now.limits.len()).unwrap_or(u32::MAX);
        to.participants_count = u32::try_from(now.participants.len()).unwrap_or(u32::MAX);
        (to.waiters, to.steals, to.recoveries) = (now.waiters, now.steals, now.recoveries);
        (to.sweeps, to.unenforced, to.deposed) = (now.sweeps, now.unenforced, now.deposed);
        (to.reaped_participants, to.reaped_permits) = (now.reaped_participants, now.reaped_permits);
        to.cooldown = cooldown(&now.cooldown);
        to.queue = now.queue.as_ref().map(queue).unwrap_or_default();
        Ok(())
    })
}

fn limit(it: &LimitStats) -> limitset_limit_stats {
    limitset_limit_stats {
        key: in_room(&it.key),
        capacity: it.capacity,
        window_ns: nanos_or_none(it.window),
        burst: it.burst,
        available: it.available,
        in_use: it.in_use,
        debt: it.debt,
        waiting: it.waiting,
        granted: it.granted,
        denied: it.denied,
        refunded: it.refunded,
        unreported: it.unreported,
        consumed: it.consumed,
        revision: it.revision,
    }
}

fn participant(it: &ParticipantStats) -> limitset_participant {
    limitset_participant {
        slot: it.participant.slot,
        is_alive: it.info.is_some().into(),
        pid: it.info.as_ref().map_or(0, |info| info.pid),
        holds: it.holds.iter().fold(0, |sum: u64, (_, amount)| sum.saturating_add(*amount)),
        command: in_room(it.info.as_ref().map_or("", |info| &info.command)),
    }
}

fn cooldown(it: &CooldownStats) -> limitset_cooldown_stats {
    limitset_cooldown_stats {
        generation: it.generation,
        remaining_ns: nanos_or_none(it.remaining),
        next_admission_ns: nanos_or_none(it.next_admission),
        consecutive: it.consecutive,
        participants: it.participants,
        absorbed: it.absorbed,
        slow_admissions: it.slow_admissions,
    }
}

fn queue(it: &QueueStats) -> limitset_queue_stats {
    limitset_queue_stats {
        capacity: it.capacity,
        ready: it.ready,
        parked: it.parked,
        delayed: it.delayed,
        leased: it.leased,
        results: it.results,
        dead_letters: it.dead_letters,
        is_closed: it.is_closed.into(),
        pushed: it.pushed,
        taken: it.taken,
        done: it.done,
        retried: it.retried,
        rate_limited: it.rate_limited,
        redistributed: it.redistributed,
        returned: it.returned,
        dead_lettered: it.dead_lettered,
    }
}
