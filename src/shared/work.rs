//! Operations of the work queue.

use std::sync::Arc;

use super::SharedSet;
use super::admin::Pause;
use super::error::SetError;
use super::interrupt::Interrupt;
use super::{events, wait};
use crate::engine::{
    Charge, Collected, Finishes, Lease, Part, Pushed, Report, Taken, Verdict, Watch, WorkBell,
};
use crate::limit::GivingUp;
use crate::protocol::Reach;
use crate::sys::clock;

/// The sizes of a work queue, fixed at creation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueShape {
    pub(crate) items: u32,
    pub(crate) payload_bytes: u32,
    pub(crate) result_bytes: u32,
}

impl SharedSet {
    /// The sizes of the work queue; none if the set has no queue.
    pub(crate) fn queue_shape(&self) -> Option<QueueShape> {
        let checked = &self.segment().view().checked;
        let header = &checked.header;
        checked.items.as_ref().map(|_| QueueShape {
            items: header.items,
            payload_bytes: header.payload_bytes,
            result_bytes: header.result_bytes,
        })
    }

    /// When the queue gives an item up.
    pub(crate) fn giving_up(&self) -> GivingUp {
        self.keys().table.giving_up
    }

    /// Adds an item, if there is room.
    pub(crate) fn push_item(&self, id: u64, payload: &[u8], lock_timeout: u64) -> Result<Pushed, SetError> {
        self.locked_within(lock_timeout, |engine, guard, _| engine.push_item(guard, id, payload))
    }

    /// Takes the next item; a caller that waits may have to keep the alarm for the others.
    pub(crate) fn take_item(&self, watch: &mut Watch, lock_timeout: u64) -> Result<Taken, SetError> {
        self.locked_within(lock_timeout, |engine, guard, now| {
            engine.take_or_watch(guard, &self.clock(), watch, now)
        })
    }

    /// Takes the oldest finished item of this kind.
    pub(crate) fn collect_item(&self, from: Finishes, lock_timeout: u64) -> Result<Taken, SetError> {
        self.locked_within(lock_timeout, |engine, guard, _| engine.collect_item(guard, from))
    }

    /// The number of items that are not finished.
    pub(crate) fn unfinished_items(&self, lock_timeout: u64) -> Result<u64, SetError> {
        self.locked_within(lock_timeout, |engine, guard, _| engine.unfinished(guard))
    }

    /// Refuses all further pushes.
    pub(crate) fn close_queue(&self) -> Result<(), SetError> {
        self.locked(|engine, guard, _| engine.close_work(guard))
    }

    /// Reads the payload or the result of an item that this process has.
    pub(crate) fn read_item(&self, lease: &Lease, part: Part, bytes: usize) -> Result<Vec<u8>, SetError> {
        self.engine().read_bytes(lease.item, part, bytes).map_err(|fault| self.error(fault))
    }

    /// Writes the result of an item that this process has.
    pub(crate) fn write_result(&self, lease: &Lease, result: &[u8]) -> Result<(), SetError> {
        self.engine().write_bytes(lease.item, Part::Result, result).map_err(|fault| self.error(fault))
    }

    /// Ends a lease; false if this process no longer has it. If the lock is stuck, another thread does so as soon as it
    /// can.
    pub(crate) fn end_lease(
        self: &Arc<Self>,
        lease: Lease,
        verdict: Verdict,
        lock_timeout: u64,
    ) -> Result<bool, SetError> {
        self.or_deferred_within(lock_timeout, move |set, lock_timeout| {
            set.locked_within(lock_timeout, |engine, guard, now| {
                engine.end_lease(guard, &lease, verdict, now)
            })
        })
    }

    /// Ends the collection of a finished item; false if this process no longer has it. If the lock is stuck, another
    /// thread does so as soon as it can.
    pub(crate) fn end_collecting(
        self: &Arc<Self>,
        lease: Lease,
        what: Collected,
        lock_timeout: u64,
    ) -> Result<bool, SetError> {
        self.or_deferred_within(lock_timeout, move |set, lock_timeout| {
            set.locked_within(lock_timeout, |engine, guard, _| engine.end_collecting(guard, &lease, what))
        })
    }

    /// Reports "too many requests" and parks the item, in one transaction; none if this process no longer has the item.
    pub(crate) fn park(
        self: &Arc<Self>,
        lease: Lease,
        charges: impl AsRef<[Charge]> + Send + 'static,
        report: Report,
    ) -> Result<Option<Pause>, SetError> {
        let pause = self.or_deferred(move |set, lock_timeout| {
            set.locked_within(lock_timeout, |engine, guard, now| {
                let paused = engine.park(guard, &lease, charges.as_ref(), report, now)?;
                Ok(paused.map(|paused| Pause::new(&paused, now)))
            })
        })?;
        if let Some(pause) = &pause {
            events::paused(self, pause);
        }
        Ok(pause)
    }

    /// Parks an item after the report has been made; false if this process no longer has the item.
    pub(crate) fn park_item(self: &Arc<Self>, lease: Lease) -> Result<bool, SetError> {
        self.or_deferred(move |set, lock_timeout| {
            set.locked_within(lock_timeout, |engine, guard, _| engine.park_item(guard, &lease))
        })
    }

    /// What a doorbell of the queue says: to be read before the queue is polled.
    pub(crate) fn work_bell(&self, bell: WorkBell) -> u32 {
        self.engine().work_bell(bell)
    }

    /// Looks for dead participants if that is due: they may have the item, the room or the result that a caller lacks.
    pub(crate) fn sweep_for_work(&self) -> Result<(), SetError> {
        if self.is_slice_over() {
            match self.sweep_within(wait::last_lock(), Reach::BOUNDED) {
                Err(error) if !error.is_lock_timeout() => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// How long a poll of the queue before this deadline waits for the lock.
    pub(crate) fn work_lock_timeout(&self, deadline: u64) -> u64 {
        let left = deadline.saturating_sub(clock::monotonic()).max(wait::last_lock());
        left.min(self.lock_timeout())
    }

    /// Wakes one waiter in place of one that leaves without a poll, or that kept the alarm.
    pub(crate) fn ring_on(&self, bell: WorkBell, watch: &Watch) {
        self.engine().ring_on(bell, watch.alarm);
    }

    /// Sleeps while a doorbell of the queue is as seen; may end early.
    pub(crate) fn sleep_for_work(
        &self,
        bell: (WorkBell, u32),
        until: u64,
        interrupt: Option<&Interrupt>,
    ) -> Result<(), SetError> {
        let me = self.participant()?;
        if let Some(interrupt) = interrupt {
            return interrupt.sleep_for_work(self, bell, until);
        }
        let slept = self.engine().sleep_for_work(me, bell, until, self.vigil(), &self.clock(), |swept| {
            events::swept(self, &swept);
            self.segment().view().look_at_name()
        });
        slept.map_err(|fault| self.error(fault))
    }
}
