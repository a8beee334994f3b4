//! Limits, as C declares them.

use std::ffi::c_char;
use std::time::Duration;

use limits::{Algorithm, CallLimit, Limit, RateLimit, Report, ResourceLimit};

use crate::args::{self, choice, sized};
use crate::failure::Done;

/// The `kind` of a limitset_limit.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum limitset_kind {
    /// Units per time; each request names its amount: tokens, bytes, rows.
    LIMITSET_RATE = 1,
    /// Calls per time: each request takes 1 unless it names another amount.
    LIMITSET_CALL = 2,
    /// Permits that are held and returned: connections, slots. Each request holds 1 unless it names another amount.
    LIMITSET_RESOURCE = 3,
}

/// The `algorithm` of a limitset_limit: how a rate counts. docs/algorithms.md compares the algorithms.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum limitset_algorithm {
    /// The default: the token bucket.
    LIMITSET_USUAL = 0,
    /// Bursts up to the capacity (or the burst set), continuous refill.
    LIMITSET_TOKEN_BUCKET = 1,
    /// A meter that leaks at a constant rate; strictly spaced with a burst of 1.
    LIMITSET_LEAKY_BUCKET = 2,
    /// Never more than the capacity in any window of that length.
    LIMITSET_SLIDING_WINDOW = 3,
    /// A counter per window, windows aligned to the Unix epoch.
    LIMITSET_FIXED_WINDOW = 4,
    /// Generic cell rate algorithm.
    LIMITSET_GCRA = 5,
}

/// A limit. Initialize it with limitset_rate(), limitset_call() or limitset_resource(), then change its fields.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct limitset_limit {
    /// sizeof(limitset_limit).
    pub struct_size: usize,
    /// A limitset_kind.
    pub kind: u32,
    /// A limitset_algorithm; not for resources.
    pub algorithm: u32,
    /// The key by which requests name the limit: 1 to 64 bytes of UTF-8. Null for a call limit is "call_count".
    pub key: *const c_char,
    /// Units per window; permits of a resource limit.
    pub capacity: u64,
    /// Length of the window; not for resources.
    pub window_ns: u64,
    /// The most units at once; 0: as many as the capacity. Not for windows and resources.
    pub burst: u64,
    /// Sub-windows of a sliding window; 0: the default of 10.
    pub resolution: u32,
    /// For a rate: 1 if its use need not be reported before release.
    pub report_optional: u32,
}

sized!(limitset_limit);

const KINDS: [(u32, limitset_kind); 3] = [
    (limitset_kind::LIMITSET_RATE as u32, limitset_kind::LIMITSET_RATE),
    (limitset_kind::LIMITSET_CALL as u32, limitset_kind::LIMITSET_CALL),
    (limitset_kind::LIMITSET_RESOURCE as u32, limitset_kind::LIMITSET_RESOURCE),
];

const ALGORITHMS: [(u32, Algorithm); 6] = [
    (limitset_algorithm::LIMITSET_USUAL as u32, Algorithm::TokenBucket),
    (limitset_algorithm::LIMITSET_TOKEN_BUCKET as u32, Algorithm::TokenBucket),
    (limitset_algorithm::LIMITSET_LEAKY_BUCKET as u32, Algorithm::LeakyBucket),
    (limitset_algorithm::LIMITSET_SLIDING_WINDOW as u32, Algorithm::SlidingWindow),
    (limitset_algorithm::LIMITSET_FIXED_WINDOW as u32, Algorithm::FixedWindow),
    (limitset_algorithm::LIMITSET_GCRA as u32, Algorithm::Gcra),
];

/// Converts a limit from C. The core checks its parameters.
///
/// # Safety
///
/// The key is null or a text.
pub(crate) unsafe fn limit(it: &limitset_limit) -> Done<Limit> {
    args::check_size(it, "a limit")?;
    let algorithm = choice(it.algorithm, &ALGORITHMS, "algorithm")?;
    let key = if it.key.is_null() && it.kind == limitset_kind::LIMITSET_CALL as u32 {
        limits::limit::CALL_COUNT
    } else {
        // SAFETY: the caller vouches.
        unsafe { args::text(it.key, "the key of a limit") }?
    };
    let window = Duration::from_nanos(it.window_ns);
    // Both kinds of rates have these methods, but no common type.
    macro_rules! with_rest {
        ($limit:expr) => {{
            let mut limit = $limit.algorithm(algorithm);
            if it.burst != 0 {
                limit = limit.burst(it.burst);
            }
            if it.resolution != 0 {
                limit = limit.resolution(it.resolution);
            }
            limit
        }};
    }
    Ok(match choice(it.kind, &KINDS, "kind of limit")? {
        limitset_kind::LIMITSET_RATE => {
            let report = if it.report_optional == 0 { Report::Required } else { Report::Optional };
            with_rest!(RateLimit::new(key, it.capacity, window)).report(report).into()
        }
        limitset_kind::LIMITSET_CALL => with_rest!(CallLimit::new(it.capacity, window).key(key)).into(),
        limitset_kind::LIMITSET_RESOURCE => ResourceLimit::new(key, it.capacity).into(),
    })
}

/// Converts an array of limits from C.
///
/// # Safety
///
/// `first` points to `count` limits, whose keys are null or texts.
pub(crate) unsafe fn limits(first: *const limitset_limit, count: usize) -> Done<Vec<Limit>> {
    // SAFETY: the caller vouches.
    let limits = unsafe { args::slice(first, count, "the limits") }?;
    // SAFETY: the caller vouches.
    limits.iter().map(|it| unsafe { limit(it) }).collect()
}
