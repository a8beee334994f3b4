//! The helper thread: wakes futures whose turn it may be.
//!
//! One thread per process serves all sets. It sleeps on this process's doorbell in each of them, on the doorbell of a
//! work queue if futures wait for that, and until the earliest alarm of a future; it takes no place in any queue and
//! decides nothing: whoever is woken looks for itself. Started when it is first needed, it ends when it has had nothing
//! to do for a while. A forked child starts one of its own.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};
use std::sync::atomic::{AtomicU32, AtomicU64, fence};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use crate::answer::Trouble;
use crate::core::Participant;
use crate::enter::attach_trouble;
use crate::events;
use crate::grantee::Grantee;
use crate::set::LimitSet;
use crate::sys::fork::PerProcess;
use crate::sys::{clock, futex};
use crate::wait::Waiting;

/// How long the thread stays when nobody waits.
const IDLE: Duration = Duration::from_secs(1);
/// How long a sweep may hold up the wakers: not long, since the lock of one set is nothing to another.
const SWEEP_PATIENCE: u64 = 20_000_000;

/// The mark on the doorbell of a work queue that somebody sleeps on it; the rest counts changes.
const SOMEBODY_SLEEPS: u32 = 1;

/// Tickets given out so far, in this process and its ancestors: a forked child counts on from here, so its helper
/// gives no ticket that the parent has given before the fork.
static TICKETS: AtomicU64 = AtomicU64::new(0);

/// Where the helper knows a future by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket(u64);

/// The helper of one process.
#[derive(Default)]
struct Helper {
    state: Mutex<State>,
    /// Told when there is something to do for a thread that has nothing.
    work: Condvar,
}

#[derive(Default)]
struct State {
    sets: Vec<Watched>,
    is_running: bool,
}

/// A set, and the futures that wait for it.
struct Watched {
    set: LimitSet,
    sleepers: Vec<Sleeper>,
}

struct Sleeper {
    ticket: Ticket,
    sleep: Sleep,
    waker: Waker,
}

/// How a future sleeps.
pub(crate) struct Sleep {
    /// What wakes it.
    pub(crate) on: Doorbell,
    /// What the doorbell said when it was last looked.
    pub(crate) seen: u32,
    /// When to wake it in any case.
    pub(crate) wakes_at: u64,
}

/// A doorbell that futures sleep on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Doorbell {
    /// That of an entry in the queue for limits, and the participant whose entry it is. A process that rings it rings
    /// the participant's, too.
    Waiter(usize, Grantee),
    /// That of the work queue, which is every process's: the helper sleeps on it itself.
    Work,
}

impl Sleep {
    /// Until it is the turn of somebody who waits for limits.
    pub(crate) fn of(waiting: &Waiting) -> Self {
        let place = &waiting.place;
        let wakes_at = place.wakes_at.min(waiting.deadline);
        Self { on: Doorbell::Waiter(place.waiter, waiting.grantee()), seen: place.seen, wakes_at }
    }

    fn is_rung(&self, set: &LimitSet) -> bool {
        let engine = set.engine();
        match self.on {
            // Nobody rings for a participant that this process is no longer.
            Doorbell::Waiter(_, grantee) if !grantee.is_us(set.segment()) => true,
            Doorbell::Waiter(waiter, _) => {
                engine.doorbell(waiter).map_or(true, |bell| bell.load(Acquire) != self.seen)
            }
            // Whether somebody sleeps on it says nothing of changes.
            Doorbell::Work => (engine.work_bell() ^ self.seen) & !SOMEBODY_SLEEPS != 0,
        }
    }
}

static HELPER: PerProcess<Helper> = PerProcess::new();

/// The helper of this process. One inherited over a fork is left alone: its lock may be held by a thread that does
/// not exist here.
fn helper() -> &'static Helper {
    HELPER.get(Helper::default)
}

impl Helper {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wakes `waker` when the doorbell of somebody who waits has rung, or its alarm.
pub(crate) fn watch(set: &LimitSet, sleep: Sleep, waker: &Waker) -> Result<Ticket, Trouble> {
    let helper = helper();
    let mut state = helper.lock();
    let ticket = Ticket(TICKETS.fetch_add(1, Relaxed));
    let sleeper = Sleeper { ticket, sleep, waker: waker.clone() };
    match state.sets.iter_mut().find(|watched| watched.set.is_same(set)) {
        Some(watched) => watched.sleepers.push(sleeper),
        None => state.sets.push(Watched { set: set.clone(), sleepers: vec![sleeper] }),
    }
    if !state.is_running {
        start(helper).map_err(|error| {
            state.forget(ticket);
            let path = set.segment().view().path();
            attach_trouble(crate::segment::attach_io("start a helper thread for", &path, error))
        })?;
        state.is_running = true;
    }
    helper.work.notify_one();
    // It may be asleep on the doorbells of the sets it knew before.
    for watched in &state.sets {
        rouse_helper(&watched.set);
    }
    Ok(ticket)
}

/// Wakes all futures that wait for a set as a participant that this process is no longer. The helper may be asleep on
/// that participant's doorbell.
pub(crate) fn participant_has_changed(set: &LimitSet, before: Participant) {
    if let Ok(doorbell) = set.engine().shared_doorbell(before.slot) {
        doorbell.fetch_add(1, AcqRel);
        futex::wake(doorbell, i32::MAX);
    }
}

/// Whether there is nothing to look for yet; then `waker` is the one to wake.
pub(crate) fn is_asleep(set: &LimitSet, ticket: &Ticket, waker: &Waker) -> bool {
    let mut state = helper().lock();
    let watched = state.sets.iter_mut().find(|watched| watched.set.is_same(set));
    let sleepers = watched.into_iter().flat_map(|watched| &mut watched.sleepers);
    let old = sleepers.into_iter().find(|sleeper| sleeper.ticket == *ticket).map(|sleeper| {
        let is_other = !sleeper.waker.will_wake(waker);
        is_other.then(|| std::mem::replace(&mut sleeper.waker, waker.clone()))
    });
    // A waker may own other futures, which come back for the lock when they are dropped with it.
    drop(state);
    old.is_some()
}

/// Wakes a future no longer.
pub(crate) fn forget(ticket: &Ticket) {
    let forgotten = helper().lock().forget(*ticket);
    // Its waker may own other futures, which come back for the lock when they are dropped with it.
    drop(forgotten);
}

impl State {
    fn forget(&mut self, ticket: Ticket) -> Option<Sleeper> {
        for watched in &mut self.sets {
            let place = watched.sleepers.iter().position(|sleeper| sleeper.ticket == ticket);
            if let Some(place) = place {
                let forgotten = watched.sleepers.remove(place);
                if watched.sleepers.is_empty() {
                    // The thread keeps the set attached as long as it sleeps on it.
                    rouse_helper(&watched.set);
                }
                return Some(forgotten);
            }
        }
        None
    }
}

/// This process's doorbell in a set.
fn doorbell(set: &LimitSet) -> Option<&AtomicU32> {
    let me = set.segment().participant().ok()?;
    set.engine().shared_doorbell(me.slot).ok()
}

/// The doorbell of a set's work queue, and what it says once it says that somebody sleeps.
fn marked_work_bell(set: &LimitSet) -> (&AtomicU32, u32) {
    let doorbell = set.engine().block.doorbell;
    // Either whoever rings sees the mark and wakes, or we see what it has changed.
    (doorbell, doorbell.fetch_or(SOMEBODY_SLEEPS, AcqRel) | SOMEBODY_SLEEPS)
}

fn rouse_helper(set: &LimitSet) {
    if let Some(doorbell) = doorbell(set) {
        doorbell.fetch_add(1, AcqRel);
        futex::wake(doorbell, i32::MAX);
    }
}

fn sweep_if_due(set: &LimitSet) {
    let (view, engine) = (set.segment().view(), set.engine());
    if let Ok(me) = set.segment().participant()
        && engine.block.sweep_is_due(view.machine.doorbell_slice)
    {
        // What stands in the way of a sweep is found by those who want something of the set.
        if let Ok(swept) = engine.sweep(me, clock::monotonic().saturating_add(SWEEP_PATIENCE), &set.clock()) {
            events::swept(set, &swept);
        }
        let _ = view.look_at_name();
    }
}

impl Watched {
    /// Whether somebody waits for the work queue.
    fn is_at_work(&self) -> bool {
        self.sleepers.iter().any(|sleeper| sleeper.sleep.on == Doorbell::Work)
    }

    /// Takes out those who have to look: rung, or late. All of them when the set is removed.
    fn take_roused(&mut self, now: u64, wakers: &mut Vec<Waker>) {
        let set = &self.set;
        // As in `Engine::sleep`: either we see the mark, or whoever sets it sees those who wait and rings.
        fence(SeqCst);
        let is_removed = set.engine().block.closed.load(Acquire) != 0;
        let is_roused =
            |sleeper: &mut Sleeper| is_removed || sleeper.sleep.is_rung(set) || now >= sleeper.sleep.wakes_at;
        wakers.extend(self.sleepers.extract_if(.., is_roused).map(|sleeper| sleeper.waker));
    }
}

fn start(helper: &'static Helper) -> std::io::Result<()> {
    let builder = std::thread::Builder::new().name("limitset-helper".to_owned());
    builder.spawn(move || {
        // Signals are the program's business.
        let _ = nix::sys::signal::SigSet::all().thread_block();
        serve(helper);
    })?;
    Ok(())
}

fn serve(helper: &Helper) {
    loop {
        let mut state = helper.lock();
        if state.sets.is_empty() {
            let waited = helper.work.wait_timeout_while(state, IDLE, |state| state.sets.is_empty());
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            if state.sets.is_empty() {
                state.is_running = false;
                return;
            }
        }
        // First what the doorbells say, then who has been rung: whoever is rung in between turns one of them.
        let (sets, at_work): (Vec<LimitSet>, Vec<bool>) =
            state.sets.iter().map(|watched| (watched.set.clone(), watched.is_at_work())).unzip();
        let mut doorbells = Vec::with_capacity(sets.len());
        doorbells.extend(sets.iter().filter_map(doorbell).map(|doorbell| (doorbell, doorbell.load(Acquire))));
        let at_work = sets.iter().zip(at_work).filter(|(_, is_at_work)| *is_at_work);
        doorbells.extend(at_work.map(|(set, _)| marked_work_bell(set)));
        let now = clock::monotonic();
        let mut wakers = Vec::new();
        state.sets.iter_mut().for_each(|watched| watched.take_roused(now, &mut wakers));
        state.sets.retain(|watched| !watched.sleepers.is_empty());
        let alarms = state.sets.iter().flat_map(|watched| &watched.sleepers).map(|it| it.sleep.wakes_at);
        let alarm = alarms.min().unwrap_or(now);
        // A waker may poll its future right here, which comes back for the lock.
        drop(state);
        if wakers.is_empty() {
            let slices = sets.iter().map(|set| set.segment().view().machine.doorbell_slice);
            let slice_over = now.saturating_add(slices.min().unwrap_or(0));
            futex::wait_any(&doorbells, alarm.min(slice_over));
        }
        for waker in wakers {
            // Somebody else's code: if it panics, the others are woken all the same.
            let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
        }
        // A doorbell that rings all the time must not keep us from looking for the dead of any set.
        sets.iter().for_each(sweep_if_due);
    }
}
