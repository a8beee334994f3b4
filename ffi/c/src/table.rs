//! Tables of the values that C holds by number. An entry is found by place and life, so an unknown number, or the
//! number of a value that is gone, is an error and not a crash.
//!
//! A number is a kind, a life and a place. Places are used again, lives are not. A table never shrinks and takes no
//! lock: after a fork at any instruction the child's table works, and at worst one place stays unused.
//!
//! The state of a place, one word:
//!
//! | life | LIVE | users | meaning |
//! | ---: | :---: | ---: | --- |
//! | n | 0 | 0 | free, or being filled or emptied by one thread; the next life is n |
//! | n | 1 | u | in use: u calls use the value now |
//! | n | 0 | u > 0 | closed; the last of u users empties it |

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64};

const PLACE_BITS: u32 = 24;
const LIFE_BITS: u32 = 36;
const PLACE_MASK: u64 = (1 << PLACE_BITS) - 1;
const LIFE_MASK: u64 = (1 << LIFE_BITS) - 1;

const LIVE: u64 = 1 << (PLACE_BITS - 1);
const USERS: u64 = LIVE - 1;

/// Slots of the first chunk; each further chunk has twice as many.
const FIRST_CHUNK: u32 = 64;
/// Enough for all places.
const CHUNKS: usize = 19;

/// The reason why a number has no value to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lost {
    /// The number was never returned, or is of another kind.
    Unknown,
    /// The value was closed or taken out before.
    Gone,
    /// Another thread uses the value, which only one thread may use.
    InUse,
}

/// Values of one kind.
pub(crate) struct Table<T> {
    /// Part of each number: tells the tables apart; never 0.
    kind: u64,
    chunks: [AtomicPtr<Slot<T>>; CHUNKS],
    /// The stack of free places, with a count of changes in the upper half. 0: none.
    free: AtomicU64,
    /// How many places were ever used.
    used: AtomicU32,
}

struct Slot<T> {
    state: AtomicU64,
    /// The place below this one in the stack of free places.
    below: AtomicU32,
    value: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: a value is only reached through the state word: by threads that it counts as users, or by the one thread that
// has set it to exclusive use.
unsafe impl<T: Send + Sync> Sync for Table<T> {}

impl<T> Table<T> {
    pub(crate) const fn new(kind: u64) -> Self {
        Self {
            kind,
            chunks: [const { AtomicPtr::new(std::ptr::null_mut()) }; CHUNKS],
            free: AtomicU64::new(0),
            used: AtomicU32::new(0),
        }
    }

    /// Stores a value; returns its number. `None`: the table is full.
    pub(crate) fn insert(&self, value: T) -> Option<u64> {
        self.insert_at(self.free_place()?, value)
    }

    /// Returns a free place. It belongs to the caller until it is used or given back.
    pub(crate) fn free_place(&self) -> Option<u32> {
        self.pop().or_else(|| self.unused())
    }

    /// Stores a value at a place that the caller has from [`free_place`](Self::free_place) or
    /// [`take_out`](Self::take_out).
    #[inline(always)]
    pub(crate) fn insert_at(&self, place: u32, value: T) -> Option<u64> {
        let slot = self.slot(place)?;
        let life = slot.state.load(Acquire) >> PLACE_BITS;
        // SAFETY: the place is free and only this thread has it: it comes from the stack, from the counter, or from
        // `take_out`.
        let value_here = unsafe { &mut *slot.value.get() };
        value_here.write(value);
        slot.state.store(life << PLACE_BITS | LIVE, Release);
        Some(self.kind << (PLACE_BITS + LIFE_BITS) | life << PLACE_BITS | u64::from(place))
    }

    /// Returns the value of a number, shared with other users.
    #[inline(always)]
    pub(crate) fn share(&self, number: u64) -> Result<Shared<'_, T>, Lost> {
        let (slot, life) = self.find(number)?;
        let mut state = slot.state.load(Relaxed);
        loop {
            check(state, life)?;
            if state & USERS == USERS {
                return Err(Lost::InUse);
            }
            match slot.state.compare_exchange_weak(state, state + 1, Acquire, Relaxed) {
                Ok(_) => return Ok(Shared { table: self, slot, number }),
                Err(now) => state = now,
            }
        }
    }

    /// Returns the value of a number for this thread alone.
    pub(crate) fn lock(&self, number: u64) -> Result<Alone<'_, T>, Lost> {
        let (slot, life) = self.find(number)?;
        Self::change_idle(slot, life, life << PLACE_BITS | LIVE | USERS)?;
        Ok(Alone { table: self, slot, number })
    }

    /// Takes the value out and calls `act` with it; its number becomes invalid. The place then belongs to the caller,
    /// to use or to [give back](Self::give_back).
    #[inline(always)]
    pub(crate) fn take_out<R>(&self, number: u64, act: impl FnOnce(T) -> R) -> Result<(R, u32), Lost> {
        let (slot, life) = self.find(number)?;
        Self::change_idle(slot, life, life << PLACE_BITS)?;
        // SAFETY: the value was there, and the state keeps all other threads from it.
        let done = act(unsafe { slot.value.get().cast::<T>().read() });
        slot.state.store(next_life(life) << PLACE_BITS, Release);
        Ok((done, place_of(number)))
    }

    /// Closes a value: its last user drops it, which may be this call.
    pub(crate) fn close(&self, number: u64) -> Result<(), Lost> {
        let (slot, life) = self.find(number)?;
        let mut state = slot.state.load(Relaxed);
        loop {
            check(state, life)?;
            match slot.state.compare_exchange_weak(state, state & !LIVE, AcqRel, Relaxed) {
                Ok(_) if state & USERS == 0 => return self.empty(slot, number),
                Ok(_) => return Ok(()),
                Err(now) => state = now,
            }
        }
    }

    /// Puts a place on the stack of free places.
    pub(crate) fn give_back(&self, place: u32) {
        let Some(slot) = self.slot(place) else { return };
        let mut free = self.free.load(Relaxed);
        loop {
            slot.below.store(top_of(free), Relaxed);
            let next = (free >> 32).wrapping_add(1) << 32 | u64::from(place);
            match self.free.compare_exchange_weak(free, next, Release, Relaxed) {
                Ok(_) => return,
                Err(now) => free = now,
            }
        }
    }

    fn pop(&self) -> Option<u32> {
        let mut free = self.free.load(Acquire);
        loop {
            let place = top_of(free);
            // May be stale if another thread was faster; then the count of changes differs and the exchange fails.
            let below = self.slot(place)?.below.load(Relaxed);
            let next = (free >> 32).wrapping_add(1) << 32 | u64::from(below);
            match self.free.compare_exchange_weak(free, next, Acquire, Acquire) {
                Ok(_) => return Some(place),
                Err(now) => free = now,
            }
        }
    }

    /// Returns a place that was never used.
    fn unused(&self) -> Option<u32> {
        let most = u32::try_from(PLACE_MASK).unwrap_or(u32::MAX) - 1;
        let more = |used: u32| (used < most).then_some(used + 1);
        let place = self.used.fetch_update(Relaxed, Relaxed, more).ok()? + 1;
        let (chunk, _, count) = chunk_of(place)?;
        let pointer = self.chunks.get(chunk)?;
        if pointer.load(Acquire).is_null() {
            let slots: Box<[Slot<T>]> = (0..count).map(|_| Slot::empty()).collect();
            let made = Box::into_raw(slots).cast::<Slot<T>>();
            if pointer.compare_exchange(std::ptr::null_mut(), made, Release, Acquire).is_err() {
                let slots = std::ptr::slice_from_raw_parts_mut(made, count as usize);
                // SAFETY: allocated above with this length, and no other thread has seen it.
                drop(unsafe { Box::from_raw(slots) });
            }
        }
        Some(place)
    }

    #[inline(always)]
    fn slot(&self, place: u32) -> Option<&Slot<T>> {
        let (chunk, index, _) = chunk_of(place)?;
        let first = self.chunks.get(chunk)?.load(Acquire);
        if first.is_null() {
            return None;
        }
        // SAFETY: `index` is less than the number of slots of this chunk.
        let slot = unsafe { first.add(index) };
        // SAFETY: chunks are never freed or moved, and slots are only changed through shared references.
        Some(unsafe { &*slot })
    }

    #[inline(always)]
    fn find(&self, number: u64) -> Result<(&Slot<T>, u64), Lost> {
        if number >> (PLACE_BITS + LIFE_BITS) != self.kind {
            return Err(Lost::Unknown);
        }
        let slot = self.slot(place_of(number)).ok_or(Lost::Unknown)?;
        Ok((slot, number >> PLACE_BITS & LIFE_MASK))
    }

    /// Changes the state of a value that no call uses.
    #[inline(always)]
    fn change_idle(slot: &Slot<T>, life: u64, to: u64) -> Result<(), Lost> {
        let idle = life << PLACE_BITS | LIVE;
        let changed = slot.state.compare_exchange(idle, to, AcqRel, Relaxed);
        changed.map(drop).map_err(|found| check(found, life).err().unwrap_or(Lost::InUse))
    }

    /// Drops a closed value that no call uses.
    fn empty(&self, slot: &Slot<T>, number: u64) -> Result<(), Lost> {
        let life = number >> PLACE_BITS & LIFE_MASK;
        // SAFETY: the value was there, the state says that it is closed, and this thread is its last user.
        let value = unsafe { slot.value.get().cast::<T>().read() };
        slot.state.store(next_life(life) << PLACE_BITS, Release);
        self.give_back(place_of(number));
        drop(value);
        Ok(())
    }
}

impl<T> Slot<T> {
    fn empty() -> Self {
        let (state, below) = (AtomicU64::new(0), AtomicU32::new(0));
        Self { state, below, value: UnsafeCell::new(MaybeUninit::uninit()) }
    }
}

/// Checks that a state is that of an open value of this life.
fn check(state: u64, life: u64) -> Result<(), Lost> {
    let now = state >> PLACE_BITS;
    match (now == life, state & LIVE != 0) {
        (true, true) => Ok(()),
        // A future life was never returned, nor one that has not begun.
        (true, false) if state & USERS == 0 => Err(Lost::Unknown),
        (false, _) if (life.wrapping_sub(now) & LIFE_MASK) < LIFE_MASK / 2 => Err(Lost::Unknown),
        _ => Err(Lost::Gone),
    }
}

fn next_life(life: u64) -> u64 {
    (life + 1) & LIFE_MASK
}

/// Returns the place on top of the stack of free places.
fn top_of(free: u64) -> u32 {
    (free & 0xffff_ffff) as u32
}

fn place_of(number: u64) -> u32 {
    (number & PLACE_MASK) as u32
}

/// Returns the chunk of a place, the position in it, and the size of the chunk. Places are counted from 1.
fn chunk_of(place: u32) -> Option<(usize, usize, u32)> {
    let from_zero = place.checked_sub(1)?;
    let chunk = (from_zero / FIRST_CHUNK + 1).ilog2();
    let before = FIRST_CHUNK * ((1 << chunk) - 1);
    Some((chunk as usize, (from_zero - before) as usize, FIRST_CHUNK << chunk))
}

/// A value in use, shared with other users.
pub(crate) struct Shared<'a, T> {
    table: &'a Table<T>,
    slot: &'a Slot<T>,
    number: u64,
}

impl<T> Shared<'_, T> {
    /// Returns whether it is the value of this number.
    #[inline(always)]
    pub(crate) fn is_of(&self, number: u64) -> bool {
        self.number == number
    }

    /// Returns whether the value has not been closed.
    #[inline(always)]
    pub(crate) fn is_live(&self) -> bool {
        self.slot.state.load(Acquire) & LIVE != 0
    }
}

impl<T> Deref for Shared<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: while this thread counts as a user the value is there, and no thread has it alone.
        let value = unsafe { &*self.slot.value.get() };
        // SAFETY: as above: it was written before its number was returned.
        unsafe { value.assume_init_ref() }
    }
}

impl<T> Drop for Shared<'_, T> {
    fn drop(&mut self) {
        let before = self.slot.state.fetch_sub(1, AcqRel);
        if before & LIVE == 0 && before & USERS == 1 {
            let _ = self.table.empty(self.slot, self.number);
        }
    }
}

/// A value that one thread uses alone: its count of users is at the maximum, so no other thread can join.
pub(crate) struct Alone<'a, T> {
    table: &'a Table<T>,
    slot: &'a Slot<T>,
    number: u64,
}

impl<T> Deref for Alone<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the state went from no users to the maximum, which keeps other threads out.
        let value = unsafe { &*self.slot.value.get() };
        // SAFETY: it was written before its number was returned.
        unsafe { value.assume_init_ref() }
    }
}

impl<T> DerefMut for Alone<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above.
        let value = unsafe { &mut *self.slot.value.get() };
        // SAFETY: as above.
        unsafe { value.assume_init_mut() }
    }
}

impl<T> Drop for Alone<'_, T> {
    fn drop(&mut self) {
        let before = self.slot.state.fetch_sub(USERS, AcqRel);
        if before & LIVE == 0 {
            let _ = self.table.empty(self.slot, self.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_number_lives_as_long_as_its_value_and_never_again() {
        let table = Table::new(3);
        let first = table.insert("a").unwrap();
        assert_eq!(*table.share(first).ok().unwrap(), "a");
        assert_eq!(table.take_out(first, |it| it).unwrap().0, "a");
        for lost in [table.share(first).err(), table.lock(first).err(), table.close(first).err()] {
            assert_eq!(lost, Some(Lost::Gone));
        }
        assert_eq!(table.take_out(first, drop).err(), Some(Lost::Gone));
        table.give_back(place_of(first));
        let second = table.insert("b").unwrap();
        assert_eq!((place_of(first), first == second), (place_of(second), false), "the place is used again");
        assert_eq!(table.share(first).err(), Some(Lost::Gone));
        table.close(second).unwrap();
        assert_eq!(table.close(second).err(), Some(Lost::Gone));
    }

    #[test]
    fn numbers_that_were_never_given_out_are_unknown() {
        let (table, other) = (Table::new(3), Table::new(4));
        let number = table.insert(()).unwrap();
        other.insert(()).unwrap();
        let to_come = number + (1 << PLACE_BITS);
        for bad in [0, 1, u64::MAX, number + 1, number + 1000, to_come, number ^ 1 << 62, number | PLACE_MASK]
        {
            assert_eq!(table.share(bad).err(), Some(Lost::Unknown), "{bad:x}");
            assert_eq!(table.take_out(bad, drop).err(), Some(Lost::Unknown), "{bad:x}");
        }
        assert_eq!(other.share(number).err(), Some(Lost::Unknown), "of another kind");
    }

    #[test]
    fn the_last_user_drops_what_was_given_up() {
        let (table, value) = (Table::new(1), Arc::new(()));
        let number = table.insert(value.clone()).unwrap();
        let (one, two) = (table.share(number).ok().unwrap(), table.share(number).ok().unwrap());
        assert_eq!(table.lock(number).err(), Some(Lost::InUse));
        assert_eq!(table.take_out(number, drop).err(), Some(Lost::InUse));
        table.close(number).unwrap();
        assert_eq!(table.share(number).err(), Some(Lost::Gone));
        drop(one);
        assert_eq!(Arc::strong_count(&value), 2);
        drop(two);
        assert_eq!(Arc::strong_count(&value), 1);
        let number = table.insert(value.clone()).unwrap();
        let alone = table.lock(number).ok().unwrap();
        assert_eq!(
            (table.share(number).err(), table.lock(number).err()),
            (Some(Lost::InUse), Some(Lost::InUse))
        );
        table.close(number).unwrap();
        assert_eq!(Arc::strong_count(&value), 2);
        drop(alone);
        assert_eq!(Arc::strong_count(&value), 1);
    }

    #[test]
    fn many_are_kept_apart_over_all_chunks() {
        let table = Table::new(7);
        let numbers: Vec<u64> = (0..5_000_u64).map(|it| table.insert(it).unwrap()).collect();
        for (value, number) in numbers.iter().enumerate() {
            assert_eq!(*table.share(*number).ok().unwrap(), value as u64);
        }
        let (chunk, index, count) = chunk_of(u32::try_from(PLACE_MASK).unwrap()).unwrap();
        assert!(chunk < CHUNKS && index < count as usize);
    }

    #[test]
    fn threads_that_insert_take_out_and_close_never_meet_in_one_place() {
        let table = Arc::new(Table::new(2));
        let threads = (0..4_u64).map(|thread| {
            let table = table.clone();
            std::thread::spawn(move || {
                for round in 0..5_000 {
                    let value = Arc::new((thread, round));
                    let numbers: Vec<u64> = (0..3).map(|_| table.insert(value.clone()).unwrap()).collect();
                    for (index, number) in numbers.into_iter().enumerate() {
                        assert_eq!(**table.share(number).ok().unwrap(), (thread, round));
                        if index == 0 {
                            table.close(number).unwrap();
                            continue;
                        }
                        let (taken, place) = table.take_out(number, |it| it).unwrap();
                        assert_eq!(*taken, (thread, round));
                        table.give_back(place);
                    }
                    assert_eq!(Arc::strong_count(&value), 1);
                }
            })
        });
        threads.collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().unwrap());
    }

    #[test]
    fn two_threads_cannot_both_take_out() {
        let table = Arc::new(Table::new(2));
        for _ in 0..500 {
            let number = table.insert(()).unwrap();
            let takers: Vec<_> = (0..2)
                .map(|_| {
                    let table = table.clone();
                    std::thread::spawn(move || table.take_out(number, drop).is_ok())
                })
                .collect();
            let taken = takers.into_iter().map(|it| it.join().unwrap()).filter(|it| *it).count();
            assert_eq!(taken, 1);
        }
    }
}
