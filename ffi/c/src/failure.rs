//! Failures of calls, and the message of the last error of each thread.

use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use limits::error::AttachError;
use limits::{AcquireError, BadRequest, ManageError, OpenError, PoolError, QueueError, UsageError};

use crate::status::limitset_status::{self, *};
use crate::status::{of_acquire, of_attach, of_manage, of_open, of_pool, of_queue, of_usage};
use crate::table::Lost;

/// The reason why a call failed.
pub(crate) enum Failure {
    /// A denied request. Its message is written only if the program asks for it, because denials may be frequent.
    Refused(AcquireError),
    Said(limitset_status, String),
}

pub(crate) type Done<T = ()> = Result<T, Failure>;

/// The last error of a thread.
enum Last {
    Nothing,
    Refused(AcquireError),
    Said(CString),
}

thread_local! {
    static LAST: RefCell<Last> = const { RefCell::new(Last::Nothing) };
}

/// Calls `act` and returns its status. A panic becomes a status and does not cross the boundary.
#[inline(always)]
pub(crate) fn answer(act: impl FnOnce() -> Done) -> limitset_status {
    // After a panic nothing is half done: the core rolls back, and a table changes by single words.
    match catch_unwind(AssertUnwindSafe(act)) {
        Ok(Ok(())) => LIMITSET_OK,
        Ok(Err(failure)) => failure.tell(),
        Err(panic) => {
            let told = panic.downcast_ref::<String>().map(String::as_str);
            let told = told.or(panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
            Failure::Said(LIMITSET_DEFECT, format!("defect in limitset, please report it: {told}")).tell()
        }
    }
}

impl Failure {
    pub(crate) fn new(status: limitset_status, why: impl Into<String>) -> Self {
        Self::Said(status, why.into())
    }

    #[cold]
    fn tell(self) -> limitset_status {
        let (status, last) = match self {
            Self::Refused(error) => (of_acquire(&error), Last::Refused(error)),
            Self::Said(status, text) => (status, Last::Said(in_c(text))),
        };
        // A thread that is being destroyed has no such variable any more; it gets the status without a message.
        let before = LAST.try_with(|it| it.replace(last));
        // Dropped here, where the variable is no longer borrowed: the destructor may use it.
        drop(before);
        status
    }
}

/// Returns the message of the last error of this thread; empty if there was none.
pub(crate) fn last_message() -> *const c_char {
    let message = LAST.try_with(|it| {
        let mut last = it.borrow_mut();
        if let Last::Refused(error) = &*last {
            let said = Last::Said(in_c(error.to_string()));
            *last = said;
        }
        match &*last {
            Last::Said(text) => text.as_ptr(),
            _ => c"".as_ptr(),
        }
    });
    message.unwrap_or(c"".as_ptr())
}

fn in_c(text: String) -> CString {
    // A key may contain a zero, which would end the text in C.
    CString::new(text.replace('\0', "\u{fffd}")).unwrap_or_default()
}

macro_rules! from_errors {
    ($($error:ty => $status:expr;)+) => {
        $(impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                Self::Said($status(&error), error.to_string())
            }
        })+
    };
}

from_errors! {
    UsageError => of_usage;
    ManageError => of_manage;
    QueueError => of_queue;
    OpenError => of_open;
    AttachError => of_attach;
    PoolError => of_pool;
    BadRequest => |_: &BadRequest| LIMITSET_BAD_REQUEST;
}

impl From<AcquireError> for Failure {
    fn from(error: AcquireError) -> Self {
        Self::Refused(error)
    }
}

/// The failure of a call with an invalid handle.
#[cold]
pub(crate) fn lost(what: &str, lost: Lost) -> Failure {
    match lost {
        Lost::Unknown => Failure::new(
            LIMITSET_BAD_HANDLE,
            format!("unknown {what}: pass one that a successful call has returned"),
        ),
        Lost::Gone => Failure::new(
            LIMITSET_SPENT,
            format!("this {what} was released, finished or freed before: do not use it again"),
        ),
        Lost::InUse => Failure::new(
            LIMITSET_IN_USE,
            format!("another thread uses this {what}: use it from one thread at a time"),
        ),
    }
}
