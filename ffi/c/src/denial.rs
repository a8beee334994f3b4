//! What a refusal says, in a struct of the caller's.

use std::ffi::c_char;

use limits::{AcquireError, LimitStatus, Statuses};

use crate::args::{self, nanos_or_none, plain, sized};
use crate::failure::Done;
use crate::status::limitset_status::LIMITSET_OK;
use crate::status::of_acquire;

/// Room for a key and the zero at its end: keys have at most 64 bytes.
pub const LIMITSET_KEY_ROOM: usize = 72;

/// How one limit stands to a request.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct limitset_limit_status {
    /// The limit.
    pub key: [c_char; LIMITSET_KEY_ROOM],
    /// How much was asked of it; 0: it was left alone.
    pub requested: u64,
    /// How much it would give now; negative is debt.
    pub available: i64,
    /// How much it ever gives at once.
    pub most: u64,
    /// How long until it fits if nobody else asks before; -1: it fits, or that depends on others, or it never does.
    pub retry_after_ns: i64,
    /// 1: the request fits.
    pub passed: u32,
    /// 0.
    pub reserved: u32,
}

/// Why nothing was acquired. Initialize with limitset_denial_init(), and set `limits` and `limits_room` if the status of
/// every limit is wanted. It may be used again without being initialized again.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct limitset_denial {
    /// sizeof(limitset_denial).
    pub struct_size: usize,
    /// What was answered: a limitset_status. LIMITSET_OK by a limitset_check() that found room.
    pub status: i32,
    /// How many entries of `limits` were written: the limits in the order of their definition, as many as there is
    /// room for. Of LIMITSET_DENIED, LIMITSET_TIMED_OUT, and a limitset_check() that found room.
    pub limits_written: u32,
    /// How long to wait before the same request succeeds, if nobody else asks before; -1: not known.
    pub retry_after_ns: i64,
    /// How many others who want the same wait before. Of LIMITSET_QUEUED and LIMITSET_TIMED_OUT.
    pub ahead: u64,
    /// The limit that is most in the way; empty if none is. Of LIMITSET_DENIED, LIMITSET_TIMED_OUT and LIMITSET_NEVER.
    pub bottleneck: [c_char; LIMITSET_KEY_ROOM],
    /// How much was asked of that limit.
    pub requested: u64,
    /// How much it would give now. Not of LIMITSET_NEVER.
    pub available: i64,
    /// How much it ever gives at once. Of LIMITSET_QUEUE_FULL, how many places there are.
    pub most: u64,
    /// Where the status of every limit is to be written; null: nowhere.
    pub limits: *mut limitset_limit_status,
    /// How many entries there is room for.
    pub limits_room: u32,
    /// 0.
    pub reserved: u32,
}

sized!(limitset_denial);
plain!(limitset_denial, limitset_limit_status);

/// Where the caller wants to be told why, if anywhere.
///
/// # Safety
///
/// `denial` is null or points to one, whose `limits` is null or points to as many entries as it says.
#[inline]
pub(crate) unsafe fn wanted<'a>(denial: *mut limitset_denial) -> Done<Option<&'a mut limitset_denial>> {
    // SAFETY: the caller vouches.
    let denial = unsafe { args::maybe_out(denial, "the denial") }?;
    if let Some(it) = &denial {
        args::check_size(*it, "the denial")?;
        if !it.limits.is_null() && it.limits_room > 0 {
            args::check(it.limits, "limits of the denial")?;
        }
    }
    Ok(denial)
}

impl limitset_denial {
    /// Says why; entries go where the caller wants them.
    ///
    /// # Safety
    ///
    /// `limits` is null or points to as many entries as `limits_room` says.
    pub(crate) unsafe fn fill(&mut self, error: &AcquireError) {
        self.clear();
        self.status = of_acquire(error) as i32;
        self.retry_after_ns = nanos_or_none(error.retry_after());
        match error {
            AcquireError::Denied(denial) => {
                self.name(denial.bottleneck().as_ref());
                // SAFETY: the caller vouches.
                unsafe { self.list(denial.statuses()) };
            }
            AcquireError::TimedOut(it) => {
                self.ahead = it.ahead;
                self.name(it.bottleneck().as_ref());
                // SAFETY: the caller vouches.
                unsafe { self.list(&it.statuses) };
            }
            AcquireError::Queued { ahead } => self.ahead = *ahead,
            AcquireError::QueueFull { waiters } => self.most = (*waiters).into(),
            AcquireError::Never { key, requested, most } => {
                (self.bottleneck, self.requested, self.most) = (in_room(key), *requested, *most);
            }
            _ => {}
        }
    }

    /// Says how all limits stand to a request that would be granted.
    ///
    /// # Safety
    ///
    /// As for `fill`.
    pub(crate) unsafe fn fill_granted(&mut self, statuses: &Statuses) {
        self.clear();
        // SAFETY: the caller vouches.
        unsafe { self.list(statuses) };
    }

    fn clear(&mut self) {
        self.status = LIMITSET_OK as i32;
        (self.limits_written, self.retry_after_ns, self.ahead) = (0, -1, 0);
        (self.bottleneck, self.requested, self.available, self.most) = (in_room(""), 0, 0, 0);
    }

    fn name(&mut self, status: Option<&LimitStatus<'_>>) {
        if let Some(it) = status {
            self.bottleneck = in_room(it.key);
            (self.requested, self.available, self.most) = (it.requested, it.available, it.most);
        }
    }

    /// # Safety
    ///
    /// As for `fill`.
    unsafe fn list(&mut self, statuses: &Statuses) {
        if self.limits.is_null() {
            return;
        }
        for (index, it) in statuses.iter().take(self.limits_room as usize).enumerate() {
            let entry = limitset_limit_status {
                key: in_room(it.key),
                requested: it.requested,
                available: it.available,
                most: it.most,
                retry_after_ns: nanos_or_none(it.retry_after),
                passed: it.passed.into(),
                reserved: 0,
            };
            // SAFETY: within the room that the caller vouches for.
            let place = unsafe { self.limits.add(index) };
            // SAFETY: as above; entries are plain numbers.
            unsafe { place.write(entry) };
            self.limits_written += 1;
        }
    }
}

/// A key with a zero behind it. Keys fit: the core lets none be longer.
pub(crate) fn in_room<const ROOM: usize>(text: &str) -> [c_char; ROOM] {
    let mut room = [0; ROOM];
    for (to, byte) in room.iter_mut().zip(text.bytes().take(ROOM - 1)) {
        *to = c_char::from_ne_bytes([byte]);
    }
    room
}
