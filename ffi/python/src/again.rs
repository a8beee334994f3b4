//! A cache of each set: its last request, with its keys looked up, and ended acquisitions. A program makes the same
//! request many times, and needs few acquisitions at once.

use std::ptr;

use limitset::{LimitSet, ResolvedRequest};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyInt, PyString};
use smallvec::SmallVec;

use crate::acquisition::Acquisition;
use crate::lone::HAS_GIL;

/// The last request by a dict, and spare acquisitions.
#[derive(Default)]
pub(crate) struct Again {
    /// Plain strings and numbers, which never change. They are compared by identity: literals of a program are the same
    /// objects each time.
    asked: SmallVec<[(Py<PyString>, Py<PyInt>); 4]>,
    /// Looked up when the request came for the second time, if it was valid.
    resolved: Option<ResolvedRequest>,
    spares: SmallVec<[Py<Acquisition>; MOST_SPARES]>,
}

/// One that a variable still refers to while the next is acquired, and a few for nested blocks and threads.
const MOST_SPARES: usize = 4;

impl Again {
    /// Returns the last request, if this one is the same.
    #[inline]
    pub(crate) fn resolved(&self, requested: &Bound<'_, PyDict>) -> Option<&ResolvedRequest> {
        self.resolved.as_ref().filter(|_| self.is_same(requested))
    }

    /// Keeps a new request, or looks up the keys of a repeated one.
    pub(crate) fn keep(&mut self, set: &LimitSet, requested: &Bound<'_, PyDict>, asked: &[(&str, u64)]) {
        if self.is_same(requested) {
            let builder = asked.iter().fold(set.request(), |it, (key, amount)| it.amount(*key, *amount));
            self.resolved = builder.build().ok();
            return;
        }
        let pair = |(key, amount): (Bound<'_, PyAny>, Bound<'_, PyAny>)| {
            let key = key.cast_into_exact::<PyString>().ok()?;
            Some((key.unbind(), amount.cast_into_exact::<PyInt>().ok()?.unbind()))
        };
        // Empty if a type is mutable.
        self.asked = requested.iter().map(pair).collect::<Option<_>>().unwrap_or_default();
        self.resolved = None;
    }

    /// Returns whether the dict has the identical keys and amounts, in the same order.
    #[inline]
    fn is_same(&self, requested: &Bound<'_, PyDict>) -> bool {
        let (mut position, mut key, mut amount) = (0, ptr::null_mut(), ptr::null_mut());
        for (kept_key, kept_amount) in &self.asked {
            // SAFETY: the dict is alive, and no other thread changes it while this one holds the GIL and runs no
            // Python; the pointers that are written are local, and their values are only compared.
            let found = unsafe { ffi::PyDict_Next(requested.as_ptr(), &mut position, &mut key, &mut amount) };
            if found == 0 || key != kept_key.as_ptr() || amount != kept_amount.as_ptr() {
                return false;
            }
        }
        !self.asked.is_empty() && requested.len() == self.asked.len()
    }

    /// Returns an ended acquisition without other references.
    #[inline]
    pub(crate) fn spare(&mut self) -> Option<Py<Acquisition>> {
        let is_free = |it: &Py<Acquisition>| {
            // SAFETY: the object is alive, because `spares` refers to it.
            let count = unsafe { ffi::Py_REFCNT(it.as_ptr()) };
            HAS_GIL && count == 1
        };
        let place = self.spares.iter().position(is_free)?;
        Some(self.spares.swap_remove(place))
    }

    /// Keeps an ended acquisition.
    #[inline]
    pub(crate) fn put(&mut self, over: Py<Acquisition>) {
        if self.spares.len() < MOST_SPARES && HAS_GIL {
            self.spares.push(over);
        }
    }
}
