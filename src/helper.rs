//! The helper thread: wakes futures whose turn it may be.
//!
//! One thread per process serves all sets. It sleeps on this process's doorbell in each of them, on the doorbells of a
//! work queue that futures wait at, and until the earliest alarm of a future; it takes no place in any queue and
//! decides nothing: a future that is woken looks for itself. A ring of a work queue wakes one future; one that looked and
//! left something for others rings on. Started when it is first needed, it ends when it has had nothing
//! to do for a while. A forked child starts one of its own.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};
use std::sync::atomic::{AtomicU32, AtomicU64, fence};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use crate::answer::Trouble;
use crate::core::{Participant, Reach};
use crate::engine::WorkBell;
use crate::enter::attach_trouble;
use crate::events;
use crate::grantee::Grantee;
use crate::set::LimitSet;
use crate::sys::fork::PerProcess;
use crate::sys::{clock, futex, thread};
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
    /// What each doorbell of the work queue said when it was last looked at for those who sleep on it.
    heard: [u32; WorkBell::ALL.len()],
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
    /// One of the work queue, which is every process's: the helper sleeps on it itself.
    Work(WorkBell),
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
            // One ring is for one of those who sleep on it; see `Watched::take_rung`.
            Doorbell::Work(_) => false,
        }
    }
}

/// Whether a doorbell of a work queue has changed. Whether somebody sleeps on it says nothing of changes.
fn is_changed(now: u32, seen: u32) -> bool {
    (now ^ seen) & !SOMEBODY_SLEEPS != 0
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
    if let Doorbell::Work(bell) = sleep.on
        && is_changed(set.engine().work_bell(bell), sleep.seen)
    {
        // Rung after its look. The ring may have been for a waiter that slept, or for this one.
        drop(state);
        waker.wake_by_ref();
        return Ok(ticket);
    }
    let sleeper = Sleeper { ticket, sleep, waker: waker.clone() };
    match state.sets.iter_mut().find(|watched| watched.set.is_same(set)) {
        Some(watched) => watched.add(sleeper),
        None => {
            let mut watched =
                Watched { set: set.clone(), sleepers: Vec::new(), heard: [0; WorkBell::ALL.len()] };
            watched.add(sleeper);
            state.sets.push(watched);
        }
    }
    if !state.is_running {
        thread::start(c"limitset-helper", move || serve(helper)).map_err(|error| {
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

/// Wakes a future no longer; false if it was woken already.
pub(crate) fn forget(ticket: &Ticket) -> bool {
    let forgotten = helper().lock().forget(*ticket);
    // Its waker may own other futures, which come back for the lock when they are dropped with it.
    forgotten.is_some()
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

/// A doorbell of a set's work queue, and what it says once it says that somebody sleeps.
fn marked_work_bell(set: &LimitSet, bell: WorkBell) -> Option<(&AtomicU32, u32)> {
    let doorbell = set.engine().work_doorbell(bell)?;
    // Either the process that rings sees the mark and wakes, or we see what it has changed.
    Some((doorbell, doorbell.fetch_or(SOMEBODY_SLEEPS, AcqRel) | SOMEBODY_SLEEPS))
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
        let deadline = clock::monotonic().saturating_add(SWEEP_PATIENCE);
        if let Ok(swept) = engine.sweep_in(me, Reach::BOUNDED, deadline, &set.clock()) {
            events::swept(set, &swept);
        }
        let _ = view.look_at_name();
    }
}

impl Watched {
    /// The doorbells of the work queue that futures sleep on.
    fn work_bells(&self) -> impl Iterator<Item = WorkBell> {
        let is_slept_on =
            |bell: &WorkBell| self.sleepers.iter().any(|it| it.sleep.on == Doorbell::Work(*bell));
        WorkBell::ALL.into_iter().filter(is_slept_on)
    }

    fn add(&mut self, sleeper: Sleeper) {
        if let Doorbell::Work(bell) = sleeper.sleep.on
            && !self.work_bells().any(|it| it == bell)
            && let Some(heard) = self.heard.get_mut(bell as usize)
        {
            *heard = sleeper.sleep.seen;
        }
        self.sleepers.push(sleeper);
    }

    /// Takes out one of those who sleep on each doorbell of the work queue that has rung: it rings on for the next. After
    /// a slice, also where something is there and was not taken: a future that was woken may not be polled. Of those who
    /// wait for the end, all.
    fn take_rung(&mut self, slice_is_over: bool, wakers: &mut Vec<Waker>) {
        let bells: Vec<WorkBell> = self.work_bells().collect();
        for bell in bells {
            let says = self.set.engine().work_bell(bell);
            let Some(heard) = self.heard.get_mut(bell as usize) else { continue };
            let is_rung = is_changed(says, std::mem::replace(heard, says));
            let is_left = || slice_is_over && self.set.engine().seems_worth_a_look(bell);
            if !is_rung && !is_left() {
                continue;
            }
            let most = if bell == WorkBell::Drainers { usize::MAX } else { 1 };
            let rung = self.sleepers.extract_if(.., |it| it.sleep.on == Doorbell::Work(bell)).take(most);
            wakers.extend(rung.map(|sleeper| sleeper.waker));
        }
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

fn serve(helper: &Helper) {
    let mut last_look = clock::monotonic();
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
        let (sets, at_work): (Vec<LimitSet>, Vec<Vec<WorkBell>>) =
            state.sets.iter().map(|watched| (watched.set.clone(), watched.work_bells().collect())).unzip();
        let mut doorbells = Vec::with_capacity(sets.len());
        doorbells.extend(sets.iter().filter_map(doorbell).map(|doorbell| (doorbell, doorbell.load(Acquire))));
        for (set, bells) in sets.iter().zip(at_work) {
            doorbells.extend(bells.into_iter().filter_map(|bell| marked_work_bell(set, bell)));
        }
        let now = clock::monotonic();
        let slices = sets.iter().map(|set| set.segment().view().machine.doorbell_slice);
        let slice = slices.min().unwrap_or(0);
        let slice_is_over = now.saturating_sub(last_look) >= slice;
        if slice_is_over {
            last_look = now;
        }
        let mut wakers = Vec::new();
        for watched in &mut state.sets {
            watched.take_roused(now, &mut wakers);
            watched.take_rung(slice_is_over, &mut wakers);
        }
        state.sets.retain(|watched| !watched.sleepers.is_empty());
        let alarms = state.sets.iter().flat_map(|watched| &watched.sleepers).map(|it| it.sleep.wakes_at);
        let alarm = alarms.min().unwrap_or(now);
        // A waker may poll its future right here, which comes back for the lock.
        drop(state);
        if wakers.is_empty() {
            futex::wait_any(&doorbells, alarm.min(now.saturating_add(slice)));
        }
        for waker in wakers {
            // Code of the program: if it panics, the other futures are woken all the same.
            let _ = catch_unwind(AssertUnwindSafe(|| thread::foreign(|| waker.wake())));
        }
        // A doorbell that rings all the time must not keep us from looking for the dead of any set.
        sets.iter().for_each(sweep_if_due);
    }
}
