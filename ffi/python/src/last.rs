//! The last request of a set, with its keys looked up: a program asks for the same again and again.

use std::sync::{Mutex, TryLockError};

use limitset::{LimitSet, Request, ResolvedRequest};
use pyo3::prelude::*;
use pyo3::types::PyString;
use smallvec::SmallVec;

use crate::convert::Asked;

/// The last request that made sense. Keys are compared by identity: a program's own are the same objects each time.
#[derive(Default)]
pub(crate) struct LastRequest(Mutex<Option<Last>>);

struct Last {
    asked: SmallVec<[(Py<PyString>, u64); 4]>,
    resolved: ResolvedRequest,
}

impl LastRequest {
    /// Asks with the last request if it is the same, else with the keys as they are.
    pub(crate) fn with<T>(
        &self,
        set: &LimitSet,
        asked: &Asked<'_>,
        ask: impl FnOnce(Request<'_>) -> T,
    ) -> PyResult<T> {
        let mut last = match self.0.try_lock() {
            Ok(last) => last,
            Err(TryLockError::Poisoned(last)) => last.into_inner(),
            // Another thread asks right now.
            Err(TryLockError::WouldBlock) => return Ok(ask(asked.pairs()?.as_slice().into())),
        };
        if !last.as_ref().is_some_and(|last| asked.is_same(&last.asked)) {
            let pairs = asked.pairs()?;
            let builder =
                pairs.iter().fold(set.request(), |builder, (key, amount)| builder.amount(*key, *amount));
            let Ok(resolved) = builder.build() else { return Ok(ask(pairs.as_slice().into())) };
            *last = Some(Last { asked: asked.kept(), resolved });
        }
        match last.as_ref() {
            Some(last) => Ok(ask((&last.resolved).into())),
            None => Ok(ask(().into())),
        }
    }
}
