//! Ending a wait, from a signal handler or another thread.

use limits::Interrupt;

use crate::args::{self, plain};
use crate::failure::{Done, answer};
use crate::status::limitset_status;

/// Ends waits when it is raised. Initialize it with zeros (a static variable is), and keep it as long as a thread may
/// wait with it or raise it.
#[repr(C)]
#[derive(Debug)]
pub struct limitset_interrupt {
    /// Reserved for the functions of this header.
    pub raised: u32,
}

plain!(limitset_interrupt);

const _: () = assert!(std::mem::size_of::<Interrupt>() == std::mem::size_of::<limitset_interrupt>());
const _: () = assert!(std::mem::align_of::<Interrupt>() == std::mem::align_of::<limitset_interrupt>());

/// Calls `act`; the interrupt, if there is one, ends its waits.
///
/// # Safety
///
/// `interrupt` is null or points to one that lives as long as the call.
pub(crate) unsafe fn with_interrupt<T>(
    interrupt: *const limitset_interrupt,
    act: impl FnOnce() -> T,
) -> Done<T> {
    if interrupt.is_null() {
        return Ok(act());
    }
    args::check(interrupt, "the interrupt")?;
    // SAFETY: the types have the same size and alignment: one word with atomic access only. It need not live for ever:
    // `during` does not keep it beyond its return.
    let interrupt: &'static Interrupt = unsafe { &*interrupt.cast() };
    Ok(interrupt.during(act))
}

/// Ends all waits that were given this interrupt, and every later one until limitset_interrupt_clear(), with
/// LIMITSET_INTERRUPTED; a request that fits at once is still granted. **The one function of this header that may be
/// called from a signal handler.** It leaves errno as it is. Null is ignored.
///
/// # Safety
///
/// `interrupt` is null or points to one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn limitset_interrupt_raise(interrupt: *mut limitset_interrupt) {
    if interrupt.is_null() || !interrupt.is_aligned() {
        return;
    }
    // SAFETY: every thread has this variable.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { errno.read() };
    // SAFETY: as in `with_interrupt`.
    let it: &Interrupt = unsafe { &*interrupt.cast() };
    it.raise();
    // SAFETY: as above.
    unsafe { errno.write(before) };
}

/// Clears the interrupt: later waits are not ended by it.
///
/// # Safety
///
/// `interrupt` is null or points to one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn limitset_interrupt_clear(interrupt: *mut limitset_interrupt) -> limitset_status {
    answer(|| {
        args::check(interrupt, "the interrupt")?;
        // SAFETY: as in `with_interrupt`.
        let it: &Interrupt = unsafe { &*interrupt.cast() };
        it.clear();
        Ok(())
    })
}
