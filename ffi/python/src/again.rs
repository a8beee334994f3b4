//! What a set keeps for the next time: its last request, with its keys looked up, and acquisitions that are over. A
//! program asks for the same again and again, and needs but a few at once.

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
    /// Plain strings and numbers, which never change. They are compared by identity: those that a program writes down are
    /// the same objects each time.
    asked: SmallVec<[(Py<PyString>, Py<PyInt>); 4]>,
    /// Looked up when it came for the second time, if it made sense.
    resolved: Option<ResolvedRequest>,
    spares: SmallVec<[Py<Acquisition>; MOST_SPARES]>,
}

/// One that a variable still refers to while the next is made, and a few for nested blocks and threads.
const MOST_SPARES: usize = 4;

impl Again {
    /// The last request, if this is the same.
    #[inline]
    pub(crate) fn resolved(&self, requested: &Bound<'_, PyDict>) -> Option<&ResolvedRequest> {
        self.resolved.as_ref().filter(|_| self.is_same(requested))
    }

    /// Keeps a request that is not the last one, or looks it up if it is.
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
        // Nothing, if it is of types that can change.
        self.asked = requested.iter().map(pair).collect::<Option<_>>().unwrap_or_default();
        self.resolved = None;
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

    /// An acquisition that is over, and that nobody else refers to.
    #[inline]
    pub(crate) fn spare(&mut self) -> Option<Py<Acquisition>> {
        let is_free = |it: &Py<Acquisition>| {
            // SAFETY: the object is alive, since it is ours, too.
            let count = unsafe { ffi::Py_REFCNT(it.as_ptr()) };
            HAS_GIL && count == 1
        };
        let place = self.spares.iter().position(is_free)?;
        Some(self.spares.swap_remove(place))
    }

    /// Keeps an acquisition that is over.
    #[inline]
    pub(crate) fn put(&mut self, over: Py<Acquisition>) {
        if self.spares.len() < MOST_SPARES && HAS_GIL {
            self.spares.push(over);
        }
    }
}
