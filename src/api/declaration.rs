//! What a set was declared as, to show it or to write it down.

use std::collections::BTreeMap;

use crate::api::observer::SetObserver;
use crate::limit::Clock;
use crate::limit::{Cooldown, Limit, Order, QueueOptions};

/// What a set was declared as. Numbers that were changed live are in [`Stats`](crate::Stats).
///
/// ```
/// use limitset::{LimitSet, Order, ResourceLimit};
///
/// # let name = format!("test-doc-declared-{}", std::process::id());
/// let set = LimitSet::builder().limit(ResourceLimit::new("db", 8)).order(Order::Any).open(&name)?;
/// let declared = LimitSet::observe(&name)?.declaration();
/// assert_eq!((declared.order, declared.limits.len(), declared.queue), (Order::Any, 1, None));
/// # set.remove()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Declaration {
    /// The limits, in order.
    pub limits: Vec<Limit>,
    /// The config map.
    pub config: BTreeMap<String, String>,
    /// Who goes first when there is not enough for all.
    pub order: Order,
    /// The clock.
    pub clock: Clock,
    /// How the set pauses after "too many requests".
    pub cooldown: Cooldown,
    /// The work queue, if there is one.
    pub queue: Option<QueueOptions>,
    /// How many processes can be attached.
    pub slots: u32,
    /// How many blocked acquirers there is room for.
    pub waiters: u32,
}

impl SetObserver {
    /// What the set was declared as.
    pub fn declaration(&self) -> Declaration {
        let view = self.segment().view();
        let (header, definition) = (&view.checked.header, view.definition.as_deref().cloned());
        let definition = definition.unwrap_or_default();
        let queue = (header.items != 0).then(|| {
            QueueOptions::new(header.items, header.payload_bytes)
                .result_bytes(header.result_bytes)
                .attempts(definition.giving_up.attempts)
                .rate_limits(definition.giving_up.rate_limits)
        });
        Declaration {
            limits: definition.limits,
            config: definition.config,
            order: definition.order,
            clock: view.checked.clock,
            cooldown: definition.cooldown,
            queue,
            slots: header.slots,
            waiters: header.waiters,
        }
    }
}
