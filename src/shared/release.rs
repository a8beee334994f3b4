//! After the grant: report use, release, cancel, report "too many requests".

use std::sync::Arc;

use super::SharedSet;
use super::admin::Pause;
use super::error::SetError;
use super::events;
use crate::engine::{Charge, Ending, Report, Time, Wants};
use crate::protocol::Participant;
use crate::segment::grantee::Grantee;

impl SharedSet {
    /// Releases permits on the fast path: false if a waiter may want them or the lock is taken, and then nothing has
    /// changed.
    #[inline(always)]
    pub(crate) fn release_fast(
        &self,
        me: Participant,
        granted: &Wants,
        permits: u64,
    ) -> Result<bool, SetError> {
        match self.engine().give_at_once(me, granted, permits) {
            Ok(is_done) => Ok(is_done),
            Err(fault) => Err(self.error(fault)),
        }
    }

    /// Changes the charge of one limit; returns the amount that is charged afterwards.
    pub(crate) fn settle(&self, grantee: Grantee, charge: &Charge, to: u64) -> Result<u64, SetError> {
        let lock_timeout = self.lock_timeout();
        self.locked_as(grantee, lock_timeout, |engine, guard, now| engine.recharge(guard, charge, to, now))
    }

    /// Ends an acquisition, if this process still is the participant that it was granted to: releases or cancels its charges.
    #[inline]
    pub(crate) fn finish(
        &self,
        grantee: Grantee,
        charges: &[Charge],
        ending: Ending,
        lock_timeout: u64,
    ) -> Result<(), SetError> {
        self.locked_without_time(lock_timeout, |engine, guard| {
            if !grantee.is_us(self.segment()) {
                return Ok(());
            }
            let needs_time = engine.end_needs_time(guard, ending)?;
            let now = if needs_time {
                engine.now(guard, self.clock().reading())?
            } else {
                engine.last_now(guard)?
            };
            engine.finish(guard, charges, ending, now)
        })
    }

    /// Ends an acquisition in the background, because its caller cannot wait for the lock.
    pub(crate) fn finish_deferred(self: &Arc<Self>, grantee: Grantee, charges: Vec<Charge>, ending: Ending) {
        self.defer(move |set, lock_timeout| set.finish(grantee, &charges, ending, lock_timeout));
    }

    /// Ends an acquisition because the other side answered "too many requests", and pauses the set. If the lock is
    /// stuck, another thread does so as soon as it can.
    pub(crate) fn report_rate_limited(
        self: &Arc<Self>,
        grantee: Grantee,
        charges: impl AsRef<[Charge]> + Send + 'static,
        report: Report,
    ) -> Result<Pause, SetError> {
        let pause = self.or_deferred(move |set, lock_timeout| {
            set.locked_within(lock_timeout, |engine, guard, now| {
                // A handle that was returned meanwhile has nothing to give back; the report is true all the same.
                let charges = if grantee.is_us(set.segment()) { charges.as_ref() } else { &[] };
                let paused = engine.rate_limited(guard, charges, report, now)?;
                Ok(Pause::new(&paused, now))
            })
        })?;
        events::paused(self, &pause);
        Ok(pause)
    }
}
