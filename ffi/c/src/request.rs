//! Requests: acquiring, checking and charging.

use std::ffi::c_char;

use limits::{AcquireError, Acquisition, Charged, LimitPool, LimitSet, Request, ResolvedRequest, Statuses};

use crate::args::{self, shared, text, timeout};
use crate::denial::{self, limitset_denial};
use crate::failure::{Done, Failure, answer};
use crate::handles::{POOLS, REQUESTS, SETS, limitset_held, limitset_pool, limitset_request, limitset_set};
use crate::held;
use crate::interrupt::{limitset_interrupt, with_interrupt};
use crate::recent::{free_request, with_request};
use crate::status::limitset_status;

/// An amount of a limit.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct limitset_amount {
    /// The limit.
    pub key: *const c_char,
    /// The amount. 0: none of this limit.
    pub amount: u64,
}

/// A request, and the set or pool that it asks.
pub(crate) struct Asked {
    target: Target,
    what: What,
}

enum Target {
    Set(LimitSet),
    Pool(LimitPool),
}

enum What {
    Resolved(ResolvedRequest),
    /// For a pool whose sets differ in their limits.
    ByKey(Vec<(String, u64)>, Option<String>),
}

impl Asked {
    fn of_set(set: LimitSet, amounts: &[(&str, u64)], label: Option<&str>) -> Done<Self> {
        let what = What::Resolved(resolved(&set, amounts, label)?);
        Ok(Self { target: Target::Set(set), what })
    }

    fn of_pool(pool: LimitPool, amounts: &[(&str, u64)], label: Option<&str>) -> Done<Self> {
        let sets = pool.sets();
        let what = match sets.first().filter(|first| sets.iter().all(|it| it.limits() == first.limits())) {
            Some(first) => What::Resolved(resolved(first, amounts, label)?),
            None => {
                // The request must be valid for each set.
                for set in sets {
                    resolved(set, amounts, label)?;
                }
                let owned = amounts.iter().map(|(key, amount)| ((*key).to_owned(), *amount));
                What::ByKey(owned.collect(), label.map(str::to_owned))
            }
        };
        Ok(Self { target: Target::Pool(pool), what })
    }

    /// Calls `ask` with the target and the request.
    #[inline]
    fn with<T>(&self, ask: impl FnOnce(&Target, Request<'_>) -> T) -> T {
        match &self.what {
            What::Resolved(request) => ask(&self.target, request.into()),
            What::ByKey(amounts, label) => {
                let amounts: Vec<_> = amounts.iter().map(|(key, amount)| (key.as_str(), *amount)).collect();
                let request = Request::from(amounts.as_slice());
                match label {
                    Some(label) => ask(&self.target, request.label(label)),
                    None => ask(&self.target, request),
                }
            }
        }
    }
}

fn resolved(set: &LimitSet, amounts: &[(&str, u64)], label: Option<&str>) -> Done<ResolvedRequest> {
    let mut builder = set.request();
    for (key, amount) in amounts {
        builder = builder.amount(*key, *amount);
    }
    if let Some(label) = label {
        builder = builder.label(label);
    }
    Ok(builder.build()?)
}

impl Target {
    #[inline]
    fn try_acquire(&self, request: Request<'_>) -> Result<Acquisition, AcquireError> {
        match self {
            Self::Set(set) => set.try_acquire(request),
            Self::Pool(pool) => pool.try_acquire(request),
        }
    }

    fn acquire(&self, request: Request<'_>, nanos: i64) -> Done<Result<Acquisition, AcquireError>> {
        Ok(match (self, timeout(nanos)?) {
            (Self::Set(set), None) => set.acquire(request),
            (Self::Set(set), Some(timeout)) => set.acquire_timeout(request, timeout),
            (Self::Pool(pool), None) => pool.acquire(request),
            (Self::Pool(pool), Some(timeout)) => pool.acquire_timeout(request, timeout),
        })
    }

    /// Returns the set, for functions that do not accept a pool.
    fn set(&self) -> Done<&LimitSet> {
        match self {
            Self::Set(set) => Ok(set),
            Self::Pool(_) => Err(args::bad(
                "the request is of a pool, and this function asks one set: use limitset_request_new()",
            )),
        }
    }
}

/// Converts an array of amounts from C.
///
/// # Safety
///
/// `first` points to `count` amounts, whose keys are null or texts.
pub(crate) unsafe fn amounts<'a>(first: *const limitset_amount, count: usize) -> Done<Vec<(&'a str, u64)>> {
    // SAFETY: the caller vouches.
    let amounts = unsafe { args::slice(first, count, "the amounts") }?;
    // SAFETY: the caller vouches.
    let key = |it: &limitset_amount| unsafe { text(it.key, "the key of an amount") };
    amounts.iter().map(|it| Ok((key(it)?, it.amount))).collect()
}

/// The places that the answer to a request is written to.
struct Told<'a> {
    held: &'a mut limitset_held,
    denial: Option<&'a mut limitset_denial>,
}

impl Told<'_> {
    /// # Safety
    ///
    /// `held` is null or points to room for one, `denial` to a denial or is null.
    #[inline(always)]
    unsafe fn new(held: *mut limitset_held, denial: *mut limitset_denial) -> Done<Self> {
        // SAFETY: the caller vouches.
        let held = unsafe { args::out(held, "the place for the acquisition") }?;
        held.id = 0;
        // SAFETY: the caller vouches.
        Ok(Self { held, denial: unsafe { denial::wanted(denial) }? })
    }

    /// Writes the acquisition, or the reason of a denial.
    #[inline(always)]
    fn tell(self, answered: Result<Acquisition, AcquireError>) -> Done {
        match answered {
            Ok(acquisition) => {
                self.held.id = held::keep(acquisition)?;
                Ok(())
            }
            Err(error) => Err(refused(self.denial, error)),
        }
    }
}

/// Writes the reason of a denial.
#[cold]
fn refused(denial: Option<&mut limitset_denial>, error: AcquireError) -> Failure {
    if let Some(denial) = denial {
        // SAFETY: the caller vouches.
        unsafe { denial.fill(&error) };
    }
    error.into()
}

/// Creates a request to a set and looks up its keys. All threads may use the request, any number of times. `label`
/// names it in events and may be null.
///
/// Without amounts (`count` 0) it asks for one of each call and resource limit; a set with rates answers
/// LIMITSET_BAD_REQUEST, because the amount of a rate cannot be guessed. With amounts it asks for these, and for one of
/// each call and resource limit that is not named. Free it with limitset_request_free().
///
/// # Safety
///
/// `first` points to `count` amounts; `label` is null or a text; `request` is null or points to room for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn limitset_request_new(
    set: *const limitset_set,
    first: *const limitset_amount,
    count: usize,
    label: *const c_char,
    request: *mut *mut limitset_request,
) -> limitset_status {
    answer(|| {
        args::check(request, "where the request's handle is to be written")?;
        let set = shared(&SETS, set, "set")?.clone();
        // SAFETY: the caller vouches.
        let amounts = unsafe { amounts(first, count) }?;
        // SAFETY: the caller vouches.
        let label = unsafe { maybe_text(label) }?;
        let asked = Asked::of_set(set, &amounts, label)?;
        // SAFETY: the caller vouches.
        unsafe { args::give(&REQUESTS, asked, request, "request") }
    })
}

/// Creates a request to a pool, as limitset_request_new() does to a set.
///
/// # Safety
///
/// As limitset_request_new().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn limitset_pool_request_new(
    pool: *const limitset_pool,
    first: *const limitset_amount,
    count: usize,
    label: *const c_char,
    request: *mut *mut limitset_request,
) -> limitset_status {
    answer(|| {
        args::check(request, "where the request's handle is to be written")?;
        let pool = shared(&POOLS, pool, "pool")?.clone();
        // SAFETY: the caller vouches.
        let amounts = unsafe { amounts(first, count) }?;
        // SAFETY: the caller vouches.
        let label = unsafe { maybe_text(label) }?;
        let asked = Asked::of_pool(pool, &amounts, label)?;
        // SAFETY: the caller vouches.
        unsafe { args::give(&REQUESTS, asked, request, "request") }
    })
}

/// # Safety
///
/// `label` is null or a text.
unsafe fn maybe_text<'a>(label: *const c_char) -> Done<Option<&'a str>> {
    if label.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller vouches.
    unsafe { text(label, "the label") }.map(Some)
}

/// Frees a request; its acquisitions stay held. Null is ignored.
#[unsafe(no_mangle)]
pub extern "C" fn limitset_request_free(request: *mut limitset_request) -> limitset_status {
    answer(|| free_request(request))
}

/// Acquires the amounts of the request if the limits allow it now. `denial` may be null.
///
/// # Safety
///
/// `held` is null or points to room for one; `denial` is null or points to a denial.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn limitset_try_acquire(
    request: *const limitset_request,
    held: *mut limitset_held,
    denial: *mut limitset_denial,
) -> limitset_status {
    answer(|| {
        // SAFETY: the caller vouches.
        let told = unsafe { Told::new(held, denial) }?;
        with_request(request, |asked| {
            told.tell(match asked {
                // The hot path.
                Asked { target: Target::Set(set), what: What::Resolved(request) } => set.try_acquire(request),
                asked => asked.with(Target::try_acquire),
            })
        })?
    })
}

/// Acquires the amounts of the request; waits for its turn, at most `timeout_ns` (LIMITSET_FOREVER: for ever; 0: not at
/// all, the answer is LIMITSET_TIMED_OUT where limitset_try_acquire() answers with the reason). Signals do not end the
/// wait; raising `interrupt` does. `interrupt` and `denial` may be null.
///
/// # Safety
///
/// `interrupt` is null or points to one; `held` is null or points to room for one; `denial` is null or points to a
/// denial.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn limitset_acquire(
    request: *const limitset_request,
    timeout_ns: i64,
    interrupt: *const limitset_interrupt,
    held: *mut limitset_held,
    denial: *mut limitset_denial,
) -> limitset_status {
    answer(|| {
        // SAFETY: the caller vouches.
        let told = unsafe { Told::new(held, denial) }?;
        with_request(request, |asked| {
            let wait = || asked.with(|target, request| target.acquire(request, timeout_ns));
            // SAFETY: the caller vouches.
            told.tell(unsafe { with_interrupt(interrupt, wait) }??)
        })?
    })
}

/// Acquires as limitset_try_acquire() does, for amounts that differ each time: the call looks up the keys.
///
/// # Safety
///
/// As limitset_request_new() and limitset_try_acquire().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn limitset_try_acquire_amounts(
    set: *const limitset_set,
    first: *const limitset_amount,
    count: usize,
    held: *mut limitset_held,
    denial: *mut limitset_denial,
) -> limitset_status {
    answer(|| {
        // SAFETY: the caller vouches.
        let told = unsafe { Told::new(held, denial) }?;
        let set = shared(&SETS, set, "set")?;
        // SAFETY: the caller vouches.
        let amounts = unsafe { amounts(first, count) }?;
        told.tell(set.try_acquire(amounts.as_slice()))
    })
}

/// Acquires as limitset_acquire() does, for amounts that differ each time.
///
/// # Safety
///
/// As limitset_request_new() and limitset_acquire().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn limitset_acquire_amounts(
    set: *const limitset_set,
    first: *const limitset_amount,
    count: usize,
    timeout_ns: i64,
    interrupt: *const limitset_interrupt,
    held: *mut limitset_held,
    denial: *mut limitset_denial,
) -> limitset_status {
    answer(|| {
        // SAFETY: the caller vouches.
        let told = unsafe { Told::new(held, denial) }?;
        let target = Target::Set(shared(&SETS, set, "set")?.clone());
        // SAFETY: the caller vouches.
        let amounts = unsafe { amounts(first, count) }?;
        let wait = || target.acquire(amounts.as_slice().into(), timeout_ns);
        // SAFETY: the caller vouches.
        told.tell(unsafe { with_interrupt(interrupt, wait) }??)
    })
}

/// Acquires from a pool as limitset_try_acquire_amounts() does from a set.
///
/// # Safety
///
/// As limitset_try_acquire_amounts().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn limitset_pool_try_acquire_amounts(
    pool: *const limitset_pool,
    first: *const limitset_amount,
    count: usize,
    held: *mut limitset_held,
    denial: *mut limitset_denial,
) -> limitset_status {
    answer(|| {
        // SAFETY: the caller vouches.
        let told = unsafe { Told::new(held, denial) }?;
        let pool = shared(&POOLS, pool, "pool")?;
        // SAFETY: the caller vouches.
        let amounts = unsafe { amounts(first, count) }?;
        told.tell(pool.try_acquire(amounts.as_slice()))
    })
}

/// Acquires from a pool as limitset_acquire_amounts() does from a set.
///
/// # Safety
///
/// As limitset_acquire_amounts().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn limitset_pool_acquire_amounts(
    pool: *const limitset_pool,
    first: *const limitset_amount,
    count: usize,
    timeout_ns: i64,
    interrupt: *const limitset_interrupt,
    held: *mut limitset_held,
    denial: *mut limitset_denial,
) -> limitset_status {
    answer(|| {
        // SAFETY: the caller vouches.
        let told = unsafe { Told::new(held, denial) }?;
        let target = Target::Pool(shared(&POOLS, pool, "pool")?.clone());
        // SAFETY: the caller vouches.
        let amounts = unsafe { amounts(first, count) }?;
        let wait = || target.acquire(amounts.as_slice().into(), timeout_ns);
        // SAFETY: the caller vouches.
        told.tell(unsafe { with_interrupt(interrupt, wait) }??)
    })
}

/// Checks whether limitset_try_acquire() would succeed now, and writes the status of every limit. Charges nothing. Not
/// for a request of a pool.
///
/// # Safety
///
/// `denial` is null or points to a denial.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn limitset_check(
    request: *const limitset_request,
    denial: *mut limitset_denial,
) -> limitset_status {
    answer(|| {
        let ask = |set: &LimitSet, request: Request<'_>| set.check(request);
        let found = |denial: &mut limitset_denial, statuses: &Statuses| {
            // SAFETY: the caller vouches.
            unsafe { denial.fill_granted(statuses) };
        };
        // SAFETY: the caller vouches.
        unsafe { ask_one(request, denial, ask, found) }
    })
}

/// Charges the rates of the request if all of them allow it now, and holds nothing: no permits are taken, and no
/// report is due. Not for a request of a pool. `is_enforced` may be null; it becomes 0 if the set was unavailable and
/// is set to allow requests then. `denial` may be null.
///
/// # Safety
///
/// `is_enforced` is null or points to a number; `denial` is null or points to a denial.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn limitset_try_charge(
    request: *const limitset_request,
    is_enforced: *mut u32,
    denial: *mut limitset_denial,
) -> limitset_status {
    // SAFETY: the caller vouches.
    answer(|| unsafe { charge(request, is_enforced, denial, |set, request| set.try_charge(request)) })
}

/// Charges the rates of the request as limitset_try_charge() does, but waits for its turn, as limitset_acquire() does:
/// at most `timeout_ns`, or until `interrupt` is raised.
///
/// # Safety
///
/// `interrupt` is null or points to one; for the rest as limitset_try_charge().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn limitset_charge_timeout(
    request: *const limitset_request,
    timeout_ns: i64,
    interrupt: *const limitset_interrupt,
    is_enforced: *mut u32,
    denial: *mut limitset_denial,
) -> limitset_status {
    answer(|| {
        let timeout = timeout(timeout_ns)?;
        let wait = |set: &LimitSet, request: Request<'_>| match timeout {
            None => set.charge(request),
            Some(timeout) => set.charge_timeout(request, timeout),
        };
        // SAFETY: the caller vouches.
        let charge = || unsafe { charge(request, is_enforced, denial, wait) };
        // SAFETY: the caller vouches.
        unsafe { with_interrupt(interrupt, charge) }?
    })
}

/// Charges without waiting: the former name of limitset_try_charge().
///
/// # Safety
///
/// As limitset_try_charge().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn limitset_charge(
    request: *const limitset_request,
    is_enforced: *mut u32,
    denial: *mut limitset_denial,
) -> limitset_status {
    // SAFETY: the caller vouches.
    unsafe { limitset_try_charge(request, is_enforced, denial) }
}

/// Charges the one set of a request.
///
/// # Safety
///
/// `is_enforced` is null or points to a number; `denial` is null or points to a denial.
unsafe fn charge(
    request: *const limitset_request,
    is_enforced: *mut u32,
    denial: *mut limitset_denial,
    charge: impl FnOnce(&LimitSet, Request<'_>) -> Result<Charged, AcquireError>,
) -> Done {
    // SAFETY: the caller vouches.
    let is_enforced = unsafe { args::maybe_out(is_enforced, "is_enforced") }?;
    let ask = |set: &LimitSet, request: Request<'_>| {
        let charged = charge(set, request)?;
        if let Some(to) = is_enforced {
            *to = charged.enforced.into();
        }
        Ok(())
    };
    // SAFETY: the caller vouches.
    unsafe { ask_one(request, denial, ask, |_, ()| {}) }
}

/// Asks the one set of a request something that holds nothing.
///
/// # Safety
///
/// `denial` is null or points to a denial.
unsafe fn ask_one<T>(
    request: *const limitset_request,
    denial: *mut limitset_denial,
    ask: impl FnOnce(&LimitSet, Request<'_>) -> Result<T, AcquireError>,
    found: impl FnOnce(&mut limitset_denial, &T),
) -> Done {
    // SAFETY: the caller vouches.
    let mut denial = unsafe { denial::wanted(denial) }?;
    let asked = shared(&REQUESTS, request, "request")?;
    match asked.with(|target, request| Ok::<_, Failure>(ask(target.set()?, request)))? {
        Ok(answer) => {
            if let Some(denial) = &mut denial {
                found(denial, &answer);
            }
            Ok(())
        }
        Err(error) => Err(refused(denial, error)),
    }
}
