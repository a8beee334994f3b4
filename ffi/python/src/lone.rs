//! A value that one caller at a time has to itself.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::prelude::*;

/// Whether this is built for an interpreter with a GIL: without one, the head of every object is longer. (With
/// `Py_TRACE_REFS` it is, too; what is done without a GIL is right with one.)
pub(crate) const HAS_GIL: bool = size_of::<ffi::PyObject>() == 2 * size_of::<usize>();

/// A value that one caller at a time has to itself, and nobody waits for. Nearly free where there is a GIL. A panic leaves
/// the value as it is.
#[derive(Default)]
pub(crate) struct Lone<T> {
    is_taken: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the flag lets one `Taken` at a time reach the value, and what it wrote is seen by the next, so that sharing a
// `Lone` is sending its value back and forth. Two cannot find the flag down at once: it is raised by a swap, or by who
// holds the GIL, as the token says, and does not let go of it in between.
unsafe impl<T: Send> Sync for Lone<T> {}

impl<T> Lone<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { is_taken: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// The value, of which there is no other user.
    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    /// The value, unless somebody has it.
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

    /// The value, or what Python says where it is in use: by another thread, or further up in this one.
    #[inline]
    pub(crate) fn take(&self, py: Python<'_>) -> PyResult<Taken<'_, T>> {
        self.try_take(py).ok_or_else(|| PyRuntimeError::new_err("it is in use right now"))
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
