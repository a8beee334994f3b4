//! The Python binding: a translation of the core, which holds no rules of its own. The package `limitset` beside it
//! wraps this private module `limitset._limitset`.
//!
//! ```text
//! set          LimitSet: acquire, look, change, remove
//! again        what a set keeps for the next time
//! open         how a set is opened, and how it travels by pickle
//! pool         LimitPool
//! acquisition  what was granted, or refused
//! queue        WorkQueue: push, take, collect, wait for the end
//! item         WorkItem, Finished: what became of an item
//! lone         a value that one caller at a time has to itself
//! waiting      blocked, in an event loop, or among greenlets
//! convert      amounts, times and limits, from Python and to it
//! stats        a set at one instant
//! error        errors, as exceptions
//! ```

mod acquisition;
mod again;
mod convert;
mod error;
mod item;
mod lone;
mod open;
mod pool;
mod queue;
mod set;
mod stats;
mod waiting;

/// The private extension of the package `limitset`.
#[pyo3::pymodule]
mod _limitset {
    #[pymodule_export]
    use crate::acquisition::{Acquisition, Ready};
    #[pymodule_export]
    use crate::item::{Finished, WorkItem};
    #[pymodule_export]
    use crate::open::remove;
    #[pymodule_export]
    use crate::pool::LimitPool;
    #[pymodule_export]
    use crate::queue::WorkQueue;
    #[pymodule_export]
    use crate::set::LimitSet;
    #[pymodule_export]
    use crate::waiting::{Bell, Pending};
}
