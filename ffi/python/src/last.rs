//! The last request of a set, with its keys looked up: a program asks for the same again and again.

use std::ptr;
use std::sync::{Mutex, TryLockError};

use limitset::{LimitSet, Request, ResolvedRequest};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyInt, PyString};
use smallvec::SmallVec;

use crate::convert::Asked;

/// The last request by a dict. Keys and amounts are compared by identity: those that a program writes down are the same
/// objects each time.
#[derive(Default)]
pub(crate) struct LastRequest(Mutex<Last>);

#[derive(Default)]
struct Last {
    /// Plain strings and numbers, which never change.
    asked: SmallVec<[(Py<PyString>, Py<PyInt>); 4]>,
    /// Looked up when it came for the second time, if it made sense.
    resolved: Option<ResolvedRequest>,
}

impl LastRequest {
    /// Asks with the last request if it is the same, else with the keys as they are.
    #[inline]
    pub(crate) fn with<T>(
        &self,
        set: &LimitSet,
        requested: &Bound<'_, PyDict>,
        ask: impl FnOnce(Request<'_>) -> T,
    ) -> PyResult<T> {
        let mut last = match self.0.try_lock() {
            Ok(last) => last,
            Err(TryLockError::Poisoned(last)) => last.into_inner(),
            // Another thread asks right now.
            Err(TryLockError::WouldBlock) => {
                return Ok(ask(Asked::new(Some(requested))?.pairs()?.as_slice().into()));
            }
        };
        let is_same = last.is_same(requested);
        if let Some(resolved) = last.resolved.as_ref().filter(|_| is_same) {
            return Ok(ask(resolved.into()));
        }
        let asked = Asked::new(Some(requested))?;
        let pairs = asked.pairs()?;
        if is_same {
            let builder =
                pairs.iter().fold(set.request(), |builder, (key, amount)| builder.amount(*key, *amount));
            last.resolved = builder.build().ok();
        } else {
            *last = Last::new(requested);
        }
        drop(last);
        Ok(ask(pairs.as_slice().into()))
    }
}

impl Last {
    /// What is asked for, or nothing if it is of types that can change.
    fn new(requested: &Bound<'_, PyDict>) -> Self {
        let pair = |(key, amount): (Bound<'_, PyAny>, Bound<'_, PyAny>)| {
            let key = key.cast_into_exact::<PyString>().ok()?;
            Some((key.unbind(), amount.cast_into_exact::<PyInt>().ok()?.unbind()))
        };
        Self { asked: requested.iter().map(pair).collect::<Option<_>>().unwrap_or_default(), resolved: None }
    }

    /// Whether the dict has the very same keys and amounts, in the same order.
    #[inline]
    fn is_same(&self, requested: &Bound<'_, PyDict>) -> bool {
        let (mut position, mut key, mut amount) = (0, ptr::null_mut(), ptr::null_mut());
        for (kept_key, kept_amount) in &self.asked {
            // SAFETY: the dict is alive, and nobody changes it while this thread holds the GIL and runs no Python; the
            // pointers that are written are our own, and what they are set to is only compared.
            let found = unsafe { ffi::PyDict_Next(requested.as_ptr(), &mut position, &mut key, &mut amount) };
            if found == 0 || key != kept_key.as_ptr() || amount != kept_amount.as_ptr() {
                return false;
            }
        }
        !self.asked.is_empty() && requested.len() == self.asked.len()
    }
}
