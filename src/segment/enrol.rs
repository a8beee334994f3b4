//! Enrolment: becoming a participant, when attaching and at the first use after a fork.
//!
//! One process enrols at a time, under the init lock: take a slot's byte, bump its generation, say who we are,
//! return what the slot's last owner left behind. Whoever finds nobody else enrolled also cleans up after all
//! the others, and takes the set's clock over into this boot and time namespace.

use std::fs;
use std::io;
use std::mem::offset_of;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::Duration;

use super::attach::Source;
use super::view::View;
use super::{Inner, attach_io};
use crate::clock::Clock;
use crate::core::{Fault, Participant, Transaction};
use crate::engine::Time;
use crate::error::AttachError;
use crate::layout::slots::SlotIdentity;
use crate::layout::state::StateMap;
use crate::sys::fork::ForkLock;
use crate::sys::liveness::{Descriptors, Own};
use crate::sys::machine::Machine;
use crate::sys::{barrier, clock, fork};

/// Between the first two tries at the init lock: the kernel has no timed wait for locks of this kind.
pub(super) const INIT_LOCK_PAUSE: Duration = Duration::from_micros(500);
/// Later pauses grow to this: hundreds who try every half millisecond leave no processor to the one who enrols.
const LONGEST_INIT_LOCK_PAUSE: Duration = Duration::from_millis(40);

/// So many slots are tried one after the other, whoever has them.
const FEW_SLOTS: u32 = 64;

/// No process's epoch.
const NOBODYS: u64 = u64::MAX;

/// This process's name in a segment.
pub(crate) struct Enrolment {
    /// How long to wait for somebody who is alive.
    patience: Duration,
    /// Whether to be able to lend our life to a command.
    lends_life: bool,
    patience_nanos: u64,
    /// One thread at a time enrols; a fork in the middle does not leave this locked in the child.
    turn: ForkLock,
    /// The epoch the other fields belong to: in a forked child they are the parent's. Nobody's before the first
    /// enrolment, and after the name was given up.
    epoch: AtomicU64,
    slot: AtomicU32,
    generation: AtomicU64,
    /// Both in one word; see [`Participant::name`].
    name: AtomicU64,
    /// The epoch in which a process last gave up its name; nobody's if none did.
    left_epoch: AtomicU64,
}

impl Enrolment {
    pub(crate) fn new(patience: Duration, lends_life: bool) -> Self {
        Self {
            patience,
            lends_life,
            patience_nanos: clock::nanos(patience),
            turn: ForkLock::new(),
            epoch: AtomicU64::new(NOBODYS),
            slot: AtomicU32::new(0),
            generation: AtomicU64::new(0),
            name: AtomicU64::new(0),
            left_epoch: AtomicU64::new(NOBODYS),
        }
    }

    #[inline(always)]
    fn current(&self) -> Option<Participant> {
        fork::has_epoch(self.epoch.load(Acquire))
            .then(|| Participant { slot: self.slot.load(Relaxed), generation: self.generation.load(Relaxed) })
    }

    /// Whether this process is the participant with this name.
    #[inline(always)]
    fn is_named(&self, name: u64) -> bool {
        fork::has_epoch(self.epoch.load(Acquire)) && self.name.load(Relaxed) == name
    }

    fn publish(&self, me: Participant) {
        self.slot.store(me.slot, Relaxed);
        self.generation.store(me.generation, Relaxed);
        self.name.store(me.name(), Relaxed);
        self.epoch.store(fork::epoch(), Release);
    }
}

impl Inner {
    /// Who this process is. Usually two loads; enrols after a fork.
    #[inline(always)]
    pub(crate) fn me(&self) -> Result<Participant, AttachError> {
        match self.enrolment.current() {
            Some(me) => Ok(me),
            None => self.enrol(),
        }
    }

    #[inline(always)]
    pub(super) fn name(&self) -> u64 {
        self.enrolment.name.load(Relaxed)
    }

    /// Whether this process is the participant with this name.
    #[inline(always)]
    pub(super) fn is_named(&self, name: u64) -> bool {
        self.enrolment.is_named(name)
    }

    /// Whether this process has given up a name that it had.
    pub(super) fn has_changed_its_name(&self) -> bool {
        fork::has_epoch(self.enrolment.left_epoch.load(Acquire))
    }

    #[cold]
    fn enrol(&self) -> Result<Participant, AttachError> {
        let _turn = self.enrolment.turn.lock();
        if let Some(me) = self.enrolment.current() {
            return Ok(me);
        }
        // Before the first lock. Threads make it slow, once in the life of a process: before the init lock, too.
        barrier::register();
        let Some(descriptors) = &self.view.machine.descriptors else {
            return self.enrol_privately();
        };
        let path = self.view.path();
        let deadline = self.deadline();
        let own = self.view.init_lock(descriptors, self.enrolment.patience)?;
        self.check_still_there()?;
        let slots = self.view.checked.header.slots;
        let alone = own.nobody_enrolled(slots);
        if !alone {
            self.check_time_namespace()?;
        }
        // The kernel looks through all locks for each byte that is asked for, so of many bytes first those that
        // nobody seems to have.
        let unused = (FEW_SLOTS + 1..=slots).filter(|slot| self.view.seems_unused(*slot));
        let in_turn = (1..=slots.min(FEW_SLOTS)).chain(unused).chain(FEW_SLOTS + 1..=slots);
        let claimed = own.claim(in_turn).map_err(|error| attach_io("lock a slot of", &path, error))?;
        let (slot, pin) = claimed.ok_or(AttachError::TooManyParticipants { path, slots })?;
        let me = self.view.introduce(slot)?;
        // Nobody may use the name before it is certain that we keep it.
        self.view.clean_up(me, alone, deadline).map_err(|fault| self.attach_error(fault))?;
        own.keep(pin, self.enrolment.lends_life);
        self.enrolment.publish(me);
        Ok(me)
    }

    /// Private memory has one participant for ever: the process that made it.
    fn enrol_privately(&self) -> Result<Participant, AttachError> {
        if self.enrolment.epoch.load(Acquire) != NOBODYS {
            return Err(AttachError::NotShared);
        }
        let me = self.view.introduce(1)?;
        self.enrolment.publish(me);
        Ok(me)
    }

    /// Becomes nobody: what this process held under its name is a dead one's as soon as nothing holds the slot's byte.
    /// The next use enrols anew.
    pub(super) fn leave(&self, descriptors: &Descriptors) {
        let _turn = self.enrolment.turn.lock();
        self.enrolment.left_epoch.store(fork::epoch(), Release);
        self.enrolment.epoch.store(NOBODYS, Release);
        descriptors.unpin();
    }

    /// Removes the segment.
    pub(super) fn remove(&self) -> Result<(), AttachError> {
        let _turn = self.enrolment.turn.lock();
        self.view.remove(self.enrolment.patience)
    }

    #[inline]
    pub(crate) fn patience(&self) -> u64 {
        self.enrolment.patience_nanos
    }

    /// When an operation on the segment as a whole gives up.
    pub(crate) fn deadline(&self) -> u64 {
        clock::deadline(self.enrolment.patience)
    }

    /// What a fault during such an operation means.
    pub(crate) fn attach_error(&self, fault: Fault) -> AttachError {
        self.view.attach_error(fault, self.enrolment.patience)
    }

    /// Under the init lock: is this still the segment that the name leads to?
    fn check_still_there(&self) -> Result<(), AttachError> {
        let (Source::File(path), Some(sight)) = (&self.view.source, &self.view.sight) else { return Ok(()) };
        let removed = || AttachError::Removed { path: path.clone() };
        self.view.look_at_name().map_err(|fault| self.attach_error(fault))?;
        let is_first = self.enrolment.epoch.load(Acquire) == NOBODYS;
        // After a fork the name may be out of reach (chroot, another mount namespace); the look above is
        // what is left then.
        let leads_here = sight.leads_to_file();
        if is_first && !leads_here {
            return Err(removed());
        }
        if self.view.is_closed()? {
            // Whoever removed it died before unlinking: finish that, or nobody could use the name again. First
            // tell those who use blocks it had not closed yet, or both segments would hand out permits.
            self.view.close_all();
            if leads_here {
                let _ = fs::remove_file(path);
            }
            return Err(removed());
        }
        Ok(())
    }

    fn check_time_namespace(&self) -> Result<(), AttachError> {
        let state = self.view.state()?;
        let found = state.words.get(StateMap::TIME_NAMESPACE).map_or(0, |word| word.load(Relaxed));
        let expected = clock::time_namespace();
        // 0 is a process that cannot see its own namespace.
        if found != expected && found != 0 && expected != 0 {
            return Err(AttachError::TimeNamespace { path: self.view.path(), found, expected });
        }
        Ok(())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // In a forked child that never enrolled, the name is the parent's.
        if let Some(me) = self.enrolment.current()
            && let Some(pid) = self.view.slot_words(me.slot).get(offset_of!(SlotIdentity, pid) / 8)
        {
            pid.store(0, Relaxed);
        }
        if let Some(descriptors) = &self.view.machine.descriptors {
            descriptors.retire();
        }
    }
}

impl View {
    /// Takes the init lock, through a description of our own, waiting for others at most `patience`.
    pub(super) fn init_lock<'a>(
        &self,
        descriptors: &'a Descriptors,
        patience: Duration,
    ) -> Result<Own<'a>, AttachError> {
        let path = self.path();
        let deadline = clock::deadline(patience);
        let own = descriptors.own().map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => {
                AttachError::Permission { path: path.clone(), access: "write" }
            }
            _ => attach_io("open again", &path, error),
        })?;
        let mut pause = INIT_LOCK_PAUSE;
        loop {
            if own.try_init_lock().map_err(|error| attach_io("lock", &path, error))? {
                return Ok(own);
            }
            let left = deadline.saturating_sub(clock::monotonic());
            if left == 0 {
                return Err(AttachError::Busy { path, waited: patience });
            }
            std::thread::sleep(pause.min(Duration::from_nanos(left)));
            pause = pause.mul_f32(1.5).min(LONGEST_INIT_LOCK_PAUSE);
        }
    }

    /// Whether a slot has nobody's number in it: nobody has had it, or the last one left in order.
    fn seems_unused(&self, slot: u32) -> bool {
        let pid = self.slot_words(slot).get(offset_of!(SlotIdentity, pid) / 8);
        pid.is_some_and(|pid| pid.load(Relaxed) == 0)
    }

    /// Bumps the generation of a slot whose byte we hold, and says who we are.
    fn introduce(&self, slot: u32) -> Result<Participant, AttachError> {
        let damaged = || AttachError::Damaged {
            path: self.path(),
            what: crate::error::Damage::OutOfRange { index: slot as usize, words: 0 },
        };
        let me = self.slots().enrol(slot).ok_or_else(damaged)?;
        let [command_a, command_b] = clock::command();
        let facts = [
            (offset_of!(SlotIdentity, pid), u64::from(std::process::id())),
            (offset_of!(SlotIdentity, pid_namespace), clock::pid_namespace()),
            (offset_of!(SlotIdentity, uid), u64::from(nix::unistd::geteuid().as_raw())),
            (offset_of!(SlotIdentity, enrolled_unix_nanos), clock::unix_nanos()),
            (offset_of!(SlotIdentity, command), command_a),
            (offset_of!(SlotIdentity, command) + 8, command_b),
        ];
        for (offset, value) in facts {
            self.slot_words(slot).get(offset / 8).ok_or_else(damaged)?.store(value, Relaxed);
        }
        Ok(me)
    }

    /// Returns what our predecessor in the slot held; if nobody else is there, what anybody held.
    fn clean_up(&self, me: Participant, alone: bool, deadline: u64) -> Result<(), Fault> {
        self.clean_up_set(me, alone, deadline)?;
        for (region, holdings) in self.semaphores() {
            let Some(block) = self.try_block(&region) else { continue };
            if alone {
                holdings.sweep(&block, me, deadline)?;
            }
            let mut guard = block.lock(me, deadline)?.guard();
            holdings.adopt(&mut guard)?;
            if alone {
                holdings.clear_others(&mut guard)?;
            }
        }
        Ok(())
    }

    fn clean_up_set(&self, me: Participant, alone: bool, deadline: u64) -> Result<(), Fault> {
        let table = self.table();
        let Ok(engine) = self.engine(&table) else { return Ok(()) };
        let clock = self.checked.clock;
        if alone {
            // Taken from a dead holder without serving the queue: all waiters are dead too, and an admission in a slow
            // start that is spent on one of them cannot be given back.
            drop(engine.block.lock(me, deadline)?);
            engine.sweep(me, deadline, &clock)?;
        }
        let mut guard = engine.lock(me, deadline)?;
        engine.adopt(&mut guard)?;
        if alone {
            engine.holdings().clear_others(&mut guard)?;
            engine.clear_queue(&mut guard)?;
            let now = guard.get(StateMap::LAST_NOW)?;
            engine.return_items(&mut guard, |who| who != me, now)?;
            engine.mend(&mut guard)?;
            let mut change = guard.begin();
            rebase(&mut change, clock)?;
            change.commit();
        }
        // Our predecessor may have held what others wait for.
        let now = engine.now(&guard, clock.reading())?;
        engine.serve(&mut guard, u64::MAX, now)
    }

    /// Whether the segment was removed.
    pub(crate) fn is_closed(&self) -> Result<bool, AttachError> {
        Ok(self.state()?.closed.load(Relaxed) != 0)
    }

    /// Notices that the file lost its name: it was unlinked, moved, or another file has the name. Processes that open the
    /// name then find another segment, and limits kept in both would add up. So every process that is attached here is told
    /// that this one was removed.
    pub(crate) fn look_at_name(&self) -> Result<(), Fault> {
        let (Some(sight), Some(descriptors)) = (&self.sight, &self.machine.descriptors) else {
            return Ok(());
        };
        if descriptors.names().is_ok_and(|names| names == 0) || sight.is_gone() {
            self.close_all();
            return Err(Fault::Closed);
        }
        Ok(())
    }

    /// Tells everybody that the segment is removed, without its locks: for a name that somebody else took.
    pub(super) fn close_all(&self) {
        for block in self.blocks().filter_map(|region| self.try_block(region)) {
            block.close_unlocked();
        }
        let table = self.table();
        if let Ok(engine) = self.engine(&table) {
            // Again for the state, with the doorbells of its work queue.
            engine.block.close_unlocked();
            // Fails for damaged words only, whose waiters find out when their slice is over.
            let _ = engine.ring_all();
        }
    }
}

/// After a reboot or in another time namespace the clock reads differently: set time goes on where it
/// stopped, so that nobody gains and nothing expires early.
fn rebase(change: &mut Transaction<'_, '_, Machine>, kind: Clock) -> Result<(), Fault> {
    let [boot_a, boot_b] = clock::boot_id();
    let now_here = [
        (StateMap::BOOT_ID, boot_a),
        (StateMap::BOOT_ID + 1, boot_b),
        (StateMap::TIME_NAMESPACE, clock::time_namespace()),
    ];
    let mut moved = false;
    for (word, value) in now_here {
        // 0 is what we cannot see. Then nothing is taken over: decisions never go back behind the latest
        // instant, so that a clock that starts anew stands still for a while and gives nobody anything.
        if value != 0 && change.get(word)? != value {
            moved = true;
            change.set(word, value)?;
        }
    }
    // A clock that the program moves is in the segment, and has not changed.
    if moved && kind != Clock::Manual {
        let now = change.get(StateMap::LAST_NOW)?;
        change.set(StateMap::CLOCK_OFFSET, now.wrapping_sub(clock::monotonic()))?;
        // Windows follow the wall clock again, and never back: a window that was counted does not begin anew.
        let wall_offset = clock::unix_nanos().saturating_sub(now).max(change.get(StateMap::WALL_OFFSET)?);
        change.set(StateMap::WALL_OFFSET, wall_offset)?;
    }
    Ok(())
}
