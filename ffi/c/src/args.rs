//! Arguments from C: pointers that may be null, texts that may not be UTF-8, numbers that may be out of range.

use std::ffi::{CStr, OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use crate::failure::{Done, Failure};
use crate::status::limitset_status::{
    LIMITSET_BAD_ARGUMENT, LIMITSET_BAD_STRUCT_SIZE, LIMITSET_NULL, LIMITSET_TOO_MANY_HANDLES,
};
use crate::table::{Alone, Lost, Shared, Table};

/// Waits for ever.
pub const LIMITSET_FOREVER: i64 = -1;

#[cold]
fn null(what: &str) -> Failure {
    Failure::new(LIMITSET_NULL, format!("{what} is null: pass a valid pointer"))
}

#[cold]
fn askew(what: &str) -> Failure {
    bad(format!("{what} is misaligned: pass a pointer to a value of its type"))
}

#[cold]
pub(crate) fn bad(why: impl Into<String>) -> Failure {
    Failure::new(LIMITSET_BAD_ARGUMENT, why)
}

/// Checks that a pointer is neither null nor misaligned.
#[inline(always)]
pub(crate) fn check<T>(pointer: *const T, what: &str) -> Done {
    if pointer.is_null() {
        return Err(null(what));
    }
    if !pointer.is_aligned() {
        return Err(askew(what));
    }
    Ok(())
}

/// Borrows a value of the caller for reading.
///
/// # Safety
///
/// A pointer that is not null points to such a value, which does not change meanwhile.
pub(crate) unsafe fn read<'a, T>(pointer: *const T, what: &str) -> Done<&'a T> {
    check(pointer, what)?;
    // SAFETY: not null, aligned, and for the rest the caller vouches.
    Ok(unsafe { &*pointer })
}

/// Borrows the place that an answer is written to. Answers are plain numbers, for which all bytes are valid.
///
/// # Safety
///
/// A pointer that is not null points to room for such a value, which no other thread uses meanwhile.
#[inline(always)]
pub(crate) unsafe fn out<'a, T: Plain>(pointer: *mut T, what: &str) -> Done<&'a mut T> {
    check(pointer, what)?;
    // SAFETY: not null, aligned, all bytes are valid for it, and for the rest the caller vouches.
    Ok(unsafe { &mut *pointer })
}

/// Borrows the place that an optional answer is written to; `None` if the caller passed null.
///
/// # Safety
///
/// As for [`out`].
#[inline(always)]
pub(crate) unsafe fn maybe_out<'a, T: Plain>(pointer: *mut T, what: &str) -> Done<Option<&'a mut T>> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller vouches.
    unsafe { out(pointer, what) }.map(Some)
}

/// Types made of plain numbers and pointers.
///
/// # Safety
///
/// All bytes must be valid for the type.
pub(crate) unsafe trait Plain {}

macro_rules! plain {
    ($($name:ty),+) => {
        $(
            // SAFETY: numbers and pointers, at any depth.
            unsafe impl $crate::args::Plain for $name {}
        )+
    };
}
pub(crate) use plain;

plain!(u8, u32, u64, i32, i64, usize);
// SAFETY: a pointer.
unsafe impl<T> Plain for *mut T {}

/// A struct with a field for the size that the caller was compiled with.
pub(crate) trait Sized {
    fn struct_size(&self) -> usize;
}

macro_rules! sized {
    ($($name:ty),+) => {
        $(impl $crate::args::Sized for $name {
            fn struct_size(&self) -> usize {
                self.struct_size
            }
        })+
    };
}
pub(crate) use sized;

/// Checks the `struct_size` of a struct.
pub(crate) fn check_size<T: Sized>(it: &T, what: &str) -> Done {
    let (found, expected) = (it.struct_size(), std::mem::size_of::<T>());
    if found == expected {
        return Ok(());
    }
    Err(Failure::new(
        LIMITSET_BAD_STRUCT_SIZE,
        format!(
            "the struct_size of {what} is {found}, expected {expected}: initialize it with the function that \
             limitset.h has for it, and compile with the header of this library"
        ),
    ))
}

/// Borrows an array of `count` values.
///
/// # Safety
///
/// A pointer that is not null points to `count` values, which do not change meanwhile.
pub(crate) unsafe fn slice<'a, T>(pointer: *const T, count: usize, what: &str) -> Done<&'a [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    check(pointer, what)?;
    if count > isize::MAX as usize / std::mem::size_of::<T>().max(1) {
        return Err(bad(format!("the count of {what} is {count}, more than fits into memory")));
    }
    // SAFETY: not null, aligned, not too many, and for the rest the caller vouches.
    Ok(unsafe { std::slice::from_raw_parts(pointer, count) })
}

/// Borrows a text and checks that it is UTF-8.
///
/// # Safety
///
/// A pointer that is not null points to bytes that end with a zero and do not change meanwhile.
pub(crate) unsafe fn text<'a>(pointer: *const c_char, what: &str) -> Done<&'a str> {
    check(pointer, what)?;
    // SAFETY: not null, and the caller vouches for the zero at the end.
    let bytes = unsafe { CStr::from_ptr(pointer) };
    bytes.to_str().map_err(|error| bad(format!("{what} is not UTF-8: {error}")))
}

/// Borrows the name of a set, which may have any bytes that a path may have.
///
/// # Safety
///
/// As for [`text`].
pub(crate) unsafe fn name<'a>(pointer: *const c_char) -> Done<&'a OsStr> {
    check(pointer, "the name")?;
    // SAFETY: not null, and the caller vouches for the zero at the end.
    let bytes = unsafe { CStr::from_ptr(pointer) };
    Ok(OsStr::from_bytes(bytes.to_bytes()))
}

/// Reads a timeout; `None` is for ever.
pub(crate) fn timeout(nanos: i64) -> Done<Option<Duration>> {
    match u64::try_from(nanos) {
        Ok(nanos) => Ok(Some(Duration::from_nanos(nanos))),
        Err(_) if nanos == LIMITSET_FOREVER => Ok(None),
        Err(_) => Err(bad(format!("invalid timeout of {nanos} ns: pass 0 or more, or -1 for ever"))),
    }
}

/// Returns a time in nanoseconds, or -1 for a missing one.
pub(crate) fn nanos_or_none(time: Option<Duration>) -> i64 {
    time.map_or(-1, |time| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX))
}

/// Looks up the meaning of a constant of the header.
pub(crate) fn choice<T: Copy>(number: u32, words: &[(u32, T)], what: &str) -> Done<T> {
    let found = words.iter().find(|(it, _)| *it == number).map(|(_, word)| *word);
    found.ok_or_else(|| bad(format!("unknown {what} {number}: use one of the constants of limitset.h")))
}

/// Returns the value of a handle, shared with other threads.
#[inline(always)]
pub(crate) fn shared<'a, T, H>(table: &'a Table<T>, handle: *const H, what: &str) -> Done<Shared<'a, T>> {
    if handle.is_null() {
        return Err(null(what));
    }
    table.share(handle.addr() as u64).map_err(|lost| crate::failure::lost(what, lost))
}

/// Stores a value in its table and writes its handle.
///
/// # Safety
///
/// As for [`out`].
pub(crate) unsafe fn give<T, H>(table: &Table<T>, value: T, to: *mut *mut H, what: &str) -> Done {
    // SAFETY: the caller vouches.
    let to = unsafe { out(to, "where the handle is to be written") }?;
    let number = table.insert(value).ok_or_else(|| too_many(what))?;
    *to = std::ptr::without_provenance_mut(usize::try_from(number).map_err(|_| too_many(what))?);
    Ok(())
}

pub(crate) fn too_many(what: &str) -> Failure {
    Failure::new(LIMITSET_TOO_MANY_HANDLES, format!("too many {what}s are open: release or free some"))
}

/// Closes a handle; its value is dropped after its last use. Null is ignored.
pub(crate) fn close<T, H>(table: &Table<T>, handle: *const H, what: &str) -> Done {
    if handle.is_null() {
        return Ok(());
    }
    table.close(handle.addr() as u64).map_err(|lost: Lost| crate::failure::lost(what, lost))
}

/// Returns the value of a handle for this thread alone.
pub(crate) fn alone<'a, T, H>(table: &'a Table<T>, handle: *const H, what: &str) -> Done<Alone<'a, T>> {
    if handle.is_null() {
        return Err(null(what));
    }
    table.lock(handle.addr() as u64).map_err(|lost| crate::failure::lost(what, lost))
}

/// Writes as many entries as there are and as there is room for; returns the number written.
///
/// # Safety
///
/// A pointer that is not null points to `room` entries.
pub(crate) unsafe fn fill<T: Plain, U>(
    to: *mut T,
    room: usize,
    what: &str,
    from: impl Iterator<Item = U>,
    entry: impl Fn(U) -> T,
) -> Done<u32> {
    let mut written = 0;
    if to.is_null() {
        return Ok(0);
    }
    check(to, what)?;
    for (index, it) in from.take(room).enumerate() {
        // SAFETY: within the room that the caller vouches for.
        let place = unsafe { to.add(index) };
        // SAFETY: as above, and aligned as the first one is.
        unsafe { place.write(entry(it)) };
        written += 1;
    }
    Ok(written)
}
