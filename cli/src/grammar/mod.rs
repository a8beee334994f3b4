//! Limits, needs and times as text.
//!
//! ```text
//! limit     KEY=NUMBER                        permits, held and returned
//!           KEY=NUMBER/TIME[:OPTION]...       a rate: units per time
//! need      KEY=NUMBER
//! KEY       any characters except = : / , " \ and blanks, or "in quotes" with \" and \\
//!           bare calls is call_count, the default key of call limits
//! NUMBER    200000, 200_000, 200k, 5M, 1G
//! TIME      s, min, h, day, or a length such as 30s, 100ms, 1h30min
//! OPTION    token_bucket, leaky_bucket, sliding_window, fixed_window, gcra
//!           burst=NUMBER, resolution=NUMBER, report=required|optional, calls, rate
//! ```
//!
//! Errors point at the character.

mod cursor;
mod length;
mod limit;
mod need;

pub(crate) use self::cursor::{BadText, show_key};
pub(crate) use self::length::{length, show_length};
pub(crate) use self::limit::{LimitText, limits, show_limit};
pub(crate) use self::need::{Needs, needs};
