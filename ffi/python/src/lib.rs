//! The Python binding: translates calls to the core and has no rules of its own. The package `limitset` beside it wraps
//! this private module `limitset._limitset`.
//!
//! ```text
//! set          LimitSet: acquire, charge, check, change, remove
//! again        a set's cache of its last request and of ended acquisitions
//! open         options for opening a set, and for reopening it from a pickle
//! pool         LimitPool
//! acquisition  Acquisition: a granted or denied request
//! queue        WorkQueue: push, take, collect, wait for the end
//! item         WorkItem, Finished
//! lone         a value for one caller at a time
//! waiting      waits: blocking, in an event loop, or among greenlets
//! convert      amounts, times and limits, from Python and to it
//! stats        stats as dicts
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
