//! Memory that a thread uses again: a value that is made and ended a million times a second, and is too large to be moved
//! about, stays where it is, and only its address moves.

use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::thread::LocalKey;

/// What a thread keeps for later. Nothing in it matters to a forked child or to the end of the thread.
pub(crate) type Spares<T> = RefCell<Vec<Box<T>>>;

/// More than that many are not kept.
const MOST: usize = 64;

/// What can be used again.
pub(crate) trait Recycle: Default + 'static {
    /// Where the thread keeps them.
    fn spares() -> &'static LocalKey<Spares<Self>>;
}

/// A value at an address of its own.
pub(crate) struct Recycled<T: Recycle>(ManuallyDrop<Box<T>>);

impl<T: Recycle> Recycled<T> {
    /// A value that somebody else has used: whatever it says must be said anew.
    #[inline]
    pub(crate) fn used_or_new() -> Self {
        // Not kept any more at the end of a thread, nor within a handler that came in between.
        let spare = T::spares().try_with(|spares| spares.try_borrow_mut().ok()?.pop()).ok().flatten();
        Self(ManuallyDrop::new(spare.unwrap_or_else(Box::default)))
    }
}

impl<T: Recycle> Drop for Recycled<T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: a value is dropped once, and nobody looks at it afterwards.
        let value = unsafe { ManuallyDrop::take(&mut self.0) };
        let _ = T::spares().try_with(move |spares| {
            if let Ok(mut spares) = spares.try_borrow_mut()
                && spares.len() < MOST
            {
                spares.push(value);
            }
        });
    }
}

impl<T: Recycle> Deref for Recycled<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Recycle> DerefMut for Recycled<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}
