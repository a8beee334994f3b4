//! Late: what a caller is told whose time is up, in the queue or before it had the lock.

use std::time::Duration;

use crate::acquisition::Acquisition;
use crate::answer::{AcquireError, Holder, Statuses, TimedOut, Trouble, Unavailable};
use crate::core::NEVER;
use crate::events;
use crate::observe::Stats;
use crate::set::LimitSet;
use crate::sys::clock;
use crate::wait::LAST_LOCK;

/// When the time of a caller is up that began to wait at `since`.
pub(crate) fn deadline(since: u64, timeout: Option<Duration>) -> u64 {
    timeout.map_or(NEVER, |timeout| since.saturating_add(clock::nanos(timeout)))
}

impl LimitSet {
    /// How long the first look waits for the lock, in nanoseconds.
    #[inline]
    pub(crate) fn first_patience(&self, timeout: Option<Duration>) -> u64 {
        let most = timeout.map_or(u64::MAX, |timeout| clock::nanos(timeout.max(LAST_LOCK)));
        most.min(self.segment().patience())
    }

    /// What trouble at the first look means to a caller with this timeout.
    #[cold]
    pub(crate) fn on_first_trouble(
        &self,
        trouble: Trouble,
        timeout: Option<Duration>,
        label: Option<&str>,
    ) -> Result<Acquisition, AcquireError> {
        // The lock was waited for exactly so long.
        let since = clock::monotonic().saturating_sub(self.first_patience(timeout));
        match self.late(&trouble, since, deadline(since, timeout)) {
            Some(late) => {
                events::refused(self, label, &late);
                Err(late)
            }
            None => self.on_trouble(trouble, label),
        }
    }

    /// That time was up before the lock was to be had, if it was: whatever the policy is for a set that cannot be asked, this
    /// one might have answered.
    pub(crate) fn late(&self, trouble: &Trouble, since: u64, deadline: u64) -> Option<AcquireError> {
        let Trouble::Unavailable(Unavailable::Busy { pid, .. }) = trouble else { return None };
        let now = clock::monotonic();
        (now >= deadline).then(|| {
            AcquireError::TimedOut(Box::new(TimedOut {
                waited: Duration::from_nanos(now.saturating_sub(since)),
                statuses: Statuses::new(self.keys().clone(), Vec::new(), now),
                lock_holder: Some(*pid),
                ahead: 0,
                cooling_down: None,
                holders: Vec::new(),
            }))
        })
    }

    /// That time was up in the queue, of a caller that has waited since then: who is in the way.
    pub(crate) fn timed_out(
        &self,
        since: u64,
        statuses: Statuses,
        ahead: u64,
        cooling_down: Option<Duration>,
    ) -> TimedOut {
        let waited = Duration::from_nanos(clock::monotonic().saturating_sub(since));
        let in_the_way: Vec<_> =
            statuses.iter().filter(|it| !it.passed).map(|it| it.key.to_owned()).collect();
        // It may have opened the set more than once.
        let me = (u64::from(std::process::id()), clock::pid_namespace());
        let participants = Stats::read(self.segment().view(), self.keys()).map(|stats| stats.participants);
        let mut holders = Vec::new();
        for it in participants.unwrap_or_default() {
            for (key, amount) in it.holds.into_iter().filter(|(key, _)| in_the_way.contains(key)) {
                holders.push(Holder {
                    pid: it.info.as_ref().map_or(0, |info| info.pid),
                    command: it.info.as_ref().map_or_else(String::new, |info| info.command.clone()),
                    is_this_process: it
                        .info
                        .as_ref()
                        .is_some_and(|info| (info.pid, info.pid_namespace) == me),
                    key,
                    amount,
                });
            }
        }
        TimedOut { waited, statuses, lock_holder: None, ahead, cooling_down, holders }
    }
}
