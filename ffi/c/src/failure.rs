//! Why a function answers something else than success, and the message of the last error of each thread.

use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use limits::error::AttachError;
use limits::{AcquireError, BadRequest, ManageError, OpenError, PoolError, QueueError, UsageError};

use crate::status::limitset_status::{self, *};
use crate::status::{of_acquire, of_attach, of_manage, of_open, of_pool, of_queue, of_usage};
use crate::table::Lost;

/// Why something was not done.
pub(crate) enum Failure {
    /// A refusal, which is put into words only if somebody asks: it may be the usual answer.
    Refused(AcquireError),
    Said(limitset_status, String),
}

pub(crate) type Done<T = ()> = Result<T, Failure>;

/// What this thread was told last.
enum Last {
    Nothing,
    Refused(AcquireError),
    Said(CString),
}

thread_local! {
    static LAST: RefCell<Last> = const { RefCell::new(Last::Nothing) };
}

/// Acts, and answers; nothing panics across the boundary.
#[inline(always)]
pub(crate) fn answer(act: impl FnOnce() -> Done) -> limitset_status {
    // After a panic nothing of ours is half done: the core undoes what it did, and tables change by single words.
    match catch_unwind(AssertUnwindSafe(act)) {
        Ok(Ok(())) => LIMITSET_OK,
        Ok(Err(failure)) => failure.tell(),
        Err(panic) => {
            let told = panic.downcast_ref::<String>().map(String::as_str);
            let told = told.or(panic.downcast_ref::<&str>().copied()).unwrap_or("no words");
            Failure::Said(LIMITSET_DEFECT, format!("a defect of limitset, worth a report: {told}")).tell()
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
        // A thread that is being destroyed has no variable any more; its status stands.
        let before = LAST.try_with(|it| it.replace(last));
        // Dropped only now: nothing that it runs can find the variable borrowed.
        drop(before);
        status
    }
}

/// The message of the last error of this thread; empty if there was none.
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
    // A key may hold any character but this one ends a text in C.
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

/// What it is called that a handle leads nowhere.
#[cold]
pub(crate) fn lost(what: &str, lost: Lost) -> Failure {
    match lost {
        Lost::Unknown => Failure::new(
            LIMITSET_BAD_HANDLE,
            format!("this is no {what} that was ever given out: pass what a successful call has given"),
        ),
        Lost::Gone => Failure::new(
            LIMITSET_SPENT,
            format!("this {what} was released, finished or freed before: what is gone cannot be used"),
        ),
        Lost::InUse => {
            Failure::new(LIMITSET_IN_USE, format!("another thread uses this {what} now: one at a time may"))
        }
    }
}
