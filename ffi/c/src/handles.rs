//! The types that C holds by handle: one table for each.

use limits::{Acquisition, Finished, LimitPool, LimitSet, WorkItem};

use crate::builder::Description;
use crate::request::Asked;
use crate::table::Table;

/// The description of a set. One thread at a time may use it.
pub struct limitset_builder {
    _private: [u8; 0],
}

/// An open set. All threads may use it.
pub struct limitset_set {
    _private: [u8; 0],
}

/// Several sets behind a balancer. All threads may use it.
pub struct limitset_pool {
    _private: [u8; 0],
}

/// A request to a set or pool, with its keys looked up. All threads may use it.
pub struct limitset_request {
    _private: [u8; 0],
}

/// A held acquisition: a small value that may be copied. All copies are one acquisition, which ends once. One thread at
/// a time may use it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct limitset_held {
    /// 0: nothing is held.
    pub id: u64,
}

/// An item of work that this process has taken: a small value that may be copied, like limitset_held.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct limitset_item {
    /// 0: no item.
    pub id: u64,
}

/// A finished item that this process has collected: a small value that may be copied, like limitset_held.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct limitset_finished {
    /// 0: none.
    pub id: u64,
}

crate::args::plain!(limitset_held, limitset_item, limitset_finished);

pub(crate) static BUILDERS: Table<Description> = Table::new(1);
pub(crate) static SETS: Table<LimitSet> = Table::new(2);
pub(crate) static POOLS: Table<LimitPool> = Table::new(3);
pub(crate) static REQUESTS: Table<Asked> = Table::new(4);
pub(crate) static HELD: Table<Acquisition> = Table::new(5);
pub(crate) static ITEMS: Table<WorkItem> = Table::new(6);
pub(crate) static FINISHED: Table<Finished> = Table::new(7);
