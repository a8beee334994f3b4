//! What C holds: one table for each kind of thing.

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

/// What is asked for, of which set or pool, looked up once. All threads may use it.
pub struct limitset_request {
    _private: [u8; 0],
}

/// A held acquisition: a small value, to be copied at will. All copies are the same acquisition, which ends once. One
/// thread at a time may use it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct limitset_held {
    /// 0: nothing is held.
    pub id: u64,
}

/// An item of work that this process has: a small value, as limitset_held.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct limitset_item {
    /// 0: no item.
    pub id: u64,
}

/// A finished item that this process collects: a small value, as limitset_held.
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
