//! A free list per thread, for a value that is created and dropped a million times a second and is too large
//! to move. The value stays in place together with its owner, and only its address moves.
//!
//! One address, not two: a pair of words that was just stored and is then loaded as a whole is slower to move
//! than all the rest.

use std::cell::{Cell, UnsafeCell};
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ops::{Deref, DerefMut};
use std::thread::LocalKey;

/// The spare places of a thread. They do not matter to a forked child or at the end of the thread.
pub(crate) struct Spares<T> {
    first: Cell<Option<Box<Place<T>>>>,
    count: Cell<usize>,
}

impl<T> Spares<T> {
    pub(crate) const fn new() -> Self {
        Self { first: Cell::new(None), count: Cell::new(0) }
    }

    #[inline(always)]
    fn take(&self) -> Option<Box<Place<T>>> {
        let mut place = self.first.take()?;
        self.first.set(place.next.take());
        self.count.set(self.count.get().wrapping_sub(1));
        Some(place)
    }

    #[inline(always)]
    fn put(&self, mut place: Box<Place<T>>) {
        if self.count.get() < MOST {
            self.count.set(self.count.get() + 1);
            place.next = self.first.take();
            self.first.set(Some(place));
        }
    }
}

/// The largest number of spare places.
const MOST: usize = 64;

/// A value whose place can be reused.
pub(crate) trait Recycle: Default + 'static {
    /// Returns the thread's spare places.
    fn spares() -> &'static LocalKey<Spares<Self>>;
}

/// The place of a value.
#[derive(Default)]
pub(crate) struct Place<T> {
    /// The next spare place.
    next: Option<Box<Place<T>>>,
    /// The owner of the value, while there is one; only the handle of the value knows its type.
    owner: Owner,
    value: T,
}

/// Storage for an owner: a pointer, or a value of at most that size, possibly with interior mutability.
struct Owner(UnsafeCell<MaybeUninit<usize>>);

// SAFETY: the contents are reached through `Recycled` only, which threads share only if they may share the
// owner, by its `PhantomData`.
unsafe impl Sync for Owner {}

impl Owner {
    #[inline(always)]
    fn as_ptr<S>(&self) -> *mut S {
        self.0.get().cast()
    }
}

impl Default for Owner {
    fn default() -> Self {
        Self(UnsafeCell::new(MaybeUninit::uninit()))
    }
}

/// A value at an address of its own, and its owner.
pub(crate) struct Recycled<S, T: Recycle> {
    place: ManuallyDrop<Box<Place<T>>>,
    owner: PhantomData<S>,
}

impl<S, T: Recycle> Recycled<S, T> {
    /// Returns a reused or a new value. A reused value keeps its old contents, so the caller must set all of
    /// it.
    #[inline(always)]
    pub(crate) fn used_or_new(owner: S) -> Self {
        const {
            assert!(size_of::<S>() <= size_of::<Owner>() && align_of::<S>() <= align_of::<Owner>());
        }
        // The free list is gone at the end of a thread.
        let spare = T::spares().try_with(Spares::take).ok().flatten();
        let place = spare.unwrap_or_default();
        // SAFETY: the storage is large enough and aligned, as asserted; the previous owner was dropped with
        // its `Recycled`, or was never written.
        unsafe { place.owner.as_ptr::<S>().write(owner) };
        Self { place: ManuallyDrop::new(place), owner: PhantomData }
    }

    /// Returns the owner.
    #[inline(always)]
    pub(crate) fn owner(&self) -> &S {
        // SAFETY: written when this was made, by the only constructor, and of this type; it stays until this
        // is dropped.
        unsafe { &*self.place.owner.as_ptr::<S>() }
    }

    /// Returns the owner and the value.
    #[inline(always)]
    pub(crate) fn both(&mut self) -> (&S, &mut T) {
        let Place { owner, value, .. } = &mut **self.place;
        // SAFETY: as in `owner`; the two are different fields.
        (unsafe { &*owner.as_ptr::<S>() }, value)
    }
}

impl<S, T: Recycle> Drop for Recycled<S, T> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: written when this was made, and dropped here only, once.
        unsafe { self.place.owner.as_ptr::<S>().drop_in_place() };
        // SAFETY: the place is taken once, and not used afterwards.
        let place = unsafe { ManuallyDrop::take(&mut self.place) };
        let _ = T::spares().try_with(move |spares| spares.put(place));
    }
}

impl<S, T: Recycle> Deref for Recycled<S, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.place.value
    }
}

impl<S, T: Recycle> DerefMut for Recycled<S, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.place.value
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;

    #[derive(Default)]
    struct Number(u64);

    impl Recycle for Number {
        fn spares() -> &'static LocalKey<Spares<Self>> {
            thread_local! {
                static SPARES: Spares<Number> = const { Spares::new() };
            }
            &SPARES
        }
    }

    #[test]
    fn a_place_is_used_again_by_whoever_comes_next_and_owners_end_with_their_values() {
        let owner = Rc::new(5);
        let mut first = Recycled::<_, Number>::used_or_new(Rc::clone(&owner));
        first.0 = 7;
        let (whose, number) = first.both();
        assert_eq!((**whose, number.0, Rc::strong_count(&owner)), (5, 7, 2));
        let address = std::ptr::from_ref(&*first).addr();
        drop(first);
        assert_eq!(Rc::strong_count(&owner), 1);
        // An owner of another type.
        let again = Recycled::<_, Number>::used_or_new(&owner);
        assert_eq!((std::ptr::from_ref(&*again).addr(), again.0, ***again.owner()), (address, 7, 5));
    }

    #[test]
    fn no_more_are_kept_than_the_most() {
        let many: Vec<_> = (0..3 * MOST).map(|_| Recycled::<_, Number>::used_or_new(())).collect();
        drop(many);
        assert_eq!(Number::spares().with(|spares| spares.count.get()), MOST);
        let some: Vec<_> = (0..MOST).map(|_| Recycled::<_, Number>::used_or_new(())).collect();
        assert_eq!(Number::spares().with(|spares| spares.count.get()), 0);
        drop(some);
    }
}
