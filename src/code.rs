//! The codes of all public errors: one list for Rust, C, Python, the command and events.
//!
//! Every public error has a method `code()` that matches its variants exhaustively, so a new variant does not compile
//! before it has a code. Bindings match exhaustively on [`Code`], so a new code does not compile before all of them know
//! it.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// Makes the enum and its columns from one table.
macro_rules! codes {
    ($($(#[$about:meta])* $variant:ident = $number:literal, $name:literal, $http:literal, $exit:literal, $retry:literal;)+) => {
        /// The stable code of an error: a name and a number that never change their meaning.
        ///
        /// This enum is exhaustive on purpose: a program that maps codes to answers of its own learns about a new one
        /// from the compiler.
        ///
        /// ```
        /// use limitset::{CallLimit, Code, LimitSet};
        ///
        /// let limits = LimitSet::builder().limit(CallLimit::per_day(1)).in_memory()?;
        /// limits.try_acquire(())?.release()?;
        /// let code = limits.try_acquire(()).unwrap_err().code();
        /// assert_eq!(code, Code::DeniedRate);
        /// assert_eq!((code.name(), code.number(), code.http_status()), ("denied_rate", 1, 429));
        /// assert!(code.can_retry());
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u16)]
        pub enum Code {
            $($(#[$about])* $variant = $number,)+
        }

        impl Code {
            /// All codes, by rising number.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The name of the code in small letters, `denied_rate` for example.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }

            /// The HTTP status that fits, should a server pass the error on to its client.
            pub const fn http_status(self) -> u16 {
                match self { $(Self::$variant => $http),+ }
            }

            /// The exit code of the `limitset` command.
            pub const fn exit_code(self) -> u8 {
                match self { $(Self::$variant => $exit),+ }
            }

            /// Whether the same call may succeed later, without a change to the program or to the set.
            pub const fn can_retry(self) -> bool {
                match self { $(Self::$variant => $retry),+ }
            }
        }
    };
}

codes! {
    /// A rate has too few units now; permits may be missing, too.
    DeniedRate = 1, "denied_rate", 429, 75, true;
    /// Other requests wait for the same limits.
    Queued = 2, "queued", 503, 75, true;
    /// The set pauses, or starts slowly after a pause.
    CoolingDown = 3, "cooling_down", 503, 75, true;
    /// The wait queue has no free entry.
    QueueFull = 4, "queue_full", 503, 75, true;
    /// The timeout of a wait has expired.
    TimedOut = 5, "timed_out", 503, 75, true;
    /// The request exceeds the most that a limit ever grants at once.
    Never = 6, "never", 400, 76, false;
    /// The program interrupted the wait.
    Interrupted = 7, "interrupted", 503, 75, true;
    /// The request names an unknown limit, names one twice, or leaves out a rate.
    BadRequest = 8, "bad_request", 500, 2, false;
    /// Other acquisitions hold the permits.
    DeniedPermits = 9, "denied_permits", 503, 75, true;

    /// The set cannot be asked: a stopped process holds its lock, or this process cannot enrol.
    Unavailable = 20, "unavailable", 503, 69, true;
    /// The set was removed.
    Removed = 21, "removed", 503, 3, false;
    /// The set is private memory of the parent process.
    NotShared = 22, "not_shared", 500, 1, false;
    /// The handle belongs to the parent process.
    Forked = 23, "forked", 500, 1, false;

    /// The handle was returned when the process took its lent slot lock back.
    Returned = 24, "returned", 500, 1, false;

    /// The item was finished before.
    Spent = 30, "spent", 500, 1, false;
    /// The acquisition has nothing of that limit.
    NotRequested = 31, "not_requested", 500, 1, false;
    /// The report exceeds the requested amount.
    AboveRequested = 32, "above_requested", 500, 1, false;
    /// The refund exceeds the charged amount.
    AboveCharged = 33, "above_charged", 500, 1, false;
    /// A report cannot acquire permits.
    Permits = 34, "permits", 500, 1, false;
    /// The amount exceeds the capacity of any limit.
    TooMuch = 35, "too_much", 500, 1, false;
    /// The acquisition was released without a report that was due.
    Unreported = 36, "unreported", 500, 1, false;

    /// A limit has a parameter out of range.
    BadLimit = 50, "bad_limit", 500, 2, false;
    /// An option of the set is out of range.
    BadSetting = 51, "bad_setting", 500, 2, false;
    /// The set has no such limit.
    UnknownKey = 52, "unknown_key", 500, 2, false;
    /// The kind or the algorithm of a limit cannot change in place.
    NotNumbers = 53, "not_numbers", 500, 5, false;
    /// Only a manual clock can be moved.
    ClockMovesItself = 54, "clock_moves_itself", 500, 1, false;

    /// The name of a segment breaks the rules.
    BadName = 70, "bad_name", 500, 2, false;
    /// No set has this name.
    NotFound = 71, "not_found", 503, 3, false;
    /// A set of this name exists.
    Exists = 72, "exists", 500, 5, false;
    /// The set was declared differently.
    Differs = 73, "differs", 500, 5, false;
    /// The file is not a segment that this version reads.
    Malformed = 74, "malformed", 500, 4, false;
    /// This user lacks a permission.
    Permission = 75, "permission", 500, 77, false;
    /// Another process has not finished opening the set.
    Busy = 76, "busy", 503, 69, true;
    /// Living processes have all slots.
    TooManyParticipants = 77, "too_many_participants", 503, 69, true;
    /// The file system is full.
    NoSpace = 78, "no_space", 500, 1, true;
    /// The kernel lacks a feature.
    Unsupported = 79, "unsupported", 500, 1, false;
    /// The system reported an error.
    Io = 80, "io", 500, 1, true;
    /// Words in the segment make no sense.
    Damaged = 81, "damaged", 500, 4, false;
    /// The segment holds no set, or the path is not a regular file.
    NotASet = 82, "not_a_set", 500, 4, false;
    /// The file system does not share locks and mappings reliably.
    FileSystem = 83, "file_system", 500, 1, false;
    /// The file belongs to another user.
    OtherOwner = 84, "other_owner", 500, 77, false;
    /// The set is in use in another time namespace.
    TimeNamespace = 85, "time_namespace", 500, 1, false;

    /// The set has no work queue.
    NoQueue = 90, "no_queue", 500, 1, false;
    /// The payload or result is too long.
    TooLong = 91, "too_long", 500, 1, false;
    /// The work queue is closed.
    Closed = 92, "closed", 500, 1, false;
    /// The work queue is full.
    Full = 93, "full", 503, 75, true;
    /// The work queue has no item now.
    Empty = 94, "empty", 503, 75, true;
    /// Another process has the item.
    NotHeld = 96, "not_held", 500, 1, false;

    /// The segment has no region of that label and kind.
    NoSuchRegion = 100, "no_such_region", 500, 1, false;
    /// A word index is out of range.
    OutOfRange = 101, "out_of_range", 500, 1, false;
    /// One update changed more words than its journal holds.
    TooManyChanges = 102, "too_many_changes", 500, 1, false;
    /// The pool has no sets.
    NoSets = 103, "no_sets", 500, 2, false;
    /// The set has no name for other processes to open.
    NoName = 104, "no_name", 500, 2, false;
    /// The process has other threads and cannot fork safely.
    Threads = 105, "threads", 500, 1, false;
}

impl Code {
    /// The number of the code, the same as the status of the C library.
    pub const fn number(self) -> u16 {
        self as u16
    }

    /// The code with this number.
    pub fn from_number(number: u16) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| code.number() == number)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A word that is not the name of a code.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("unknown error code {found:?}")]
pub struct UnknownCode {
    /// The word that was given.
    pub found: String,
}

impl FromStr for Code {
    type Err = UnknownCode;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let code = Self::ALL.iter().copied().find(|code| code.name() == text);
        code.ok_or_else(|| UnknownCode { found: text.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_rise_and_names_and_numbers_lead_back_to_their_code() {
        assert!(Code::ALL.is_sorted_by(|a, b| a.number() < b.number()));
        for code in Code::ALL {
            assert_eq!(Code::from_number(code.number()), Some(*code));
            assert_eq!(code.name().parse(), Ok(*code));
            assert!(code.name().bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'));
        }
        assert_eq!(Code::from_number(0), None);
        assert_eq!("denied".parse::<Code>().unwrap_err().to_string(), "unknown error code \"denied\"");
    }

    #[test]
    fn only_a_rate_is_answered_with_too_many_requests() {
        let with_429: Vec<_> = Code::ALL.iter().filter(|code| code.http_status() == 429).collect();
        assert_eq!(with_429, [&Code::DeniedRate]);
        for code in Code::ALL {
            assert_eq!(
                code.exit_code() == 75,
                code.can_retry() && matches!(code.number(), 1..=9 | 93 | 94),
                "{code}"
            );
        }
    }
}
