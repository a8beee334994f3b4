//! A value for one caller at a time.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::prelude::*;

/// Whether this is built for an interpreter with a GIL: without a GIL, the head of every object is longer. (With
/// `Py_TRACE_REFS` it is longer, too; the code for no GIL is correct there as well.)
pub(crate) const HAS_GIL: bool = size_of::<ffi::PyObject>() == 2 * size_of::<usize>();

/// A value for one caller at a time; a second caller fails instead of waiting. Nearly free with a GIL. A panic leaves
/// the value as it is.
#[derive(Default)]
pub(crate) struct Lone<T> {
    is_taken: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the flag lets one `Taken` at a time reach the value, and the next one sees its writes, so sharing a `Lone`
// is sending its value back and forth. Two threads cannot both find the flag clear: a thread sets it by a swap, or
// while it holds the GIL, which the token proves, and does not release the GIL in between.
unsafe impl<T: Send> Sync for Lone<T> {}

impl<T> Lone<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { is_taken: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Returns the value through an exclusive reference.
    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    /// Takes the value, unless another caller has it.
    #[inline]
    pub(crate) fn try_take(&self, _py: Python<'_>) -> Option<Taken<'_, T>> {
        let was_taken = match HAS_GIL {
            true => self.is_taken.load(Acquire),
            false => self.is_taken.swap(true, Acquire),
        };
        if was_taken {
            return None;
        }
        self.is_taken.store(true, Relaxed);
        Some(Taken(self))
    }

    /// Takes the value; an exception if it is in use, by another thread or further up in this one.
    #[inline]
    pub(crate) fn take(&self, py: Python<'_>) -> PyResult<Taken<'_, T>> {
        self.try_take(py)
            .ok_or_else(|| PyRuntimeError::new_err("the object is in use: use it from one thread at a time"))
    }
}

/// The value of a [`Lone`], until it is dropped.
pub(crate) struct Taken<'a, T>(&'a Lone<T>);

impl<T> Deref for Taken<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: there is no other `Taken` while this one has set the flag, and this one is borrowed.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for Taken<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: there is no other `Taken` while this one has set the flag, and this one is borrowed mutably.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for Taken<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.0.is_taken.store(false, Release);
    }
}
