//! Limits, needs and times as text.
//!
//! ```text
//! limit     KEY=NUMBER                        so many, held and returned
//!           KEY=NUMBER/TIME[:OPTION]...       so many per time
//! need      KEY=NUMBER
//! KEY       any characters but = : / " \ and blanks, or "in quotes" with \" and \\
//!           bare calls is call_count, the key of limits on calls that were given none
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
