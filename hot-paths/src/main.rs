//! Does one hot path so many times: `hot-paths PATH COUNT`. Its test runs it under valgrind, which counts what is within
//! [`try_now`] or [`release_now`], once with a count and once with twice the count: the difference is what the path takes,
//! without what only the first time takes.

use std::error::Error;
use std::hint::black_box;

use limitset::{
    AcquireError, Acquisition, Algorithm, CallLimit, LimitSet, RateLimit, Report, ResolvedRequest,
    ResourceLimit, UsageError,
};

type Done = Result<(), Box<dyn Error>>;

/// More than any run uses.
const PLENTY: u64 = 1_000_000_000_000;

fn main() -> Done {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, count] = arguments.as_slice() else { return Err("usage: hot-paths PATH COUNT".into()) };
    let count: u32 = count.parse()?;
    match path.as_str() {
        "1" => granted(&one()?, count),
        "3" => granted(&three()?, count),
        "denied" => denied(&one_of_which_is_none_left()?, count),
        _ => Err(format!("there is no path {path:?}").into()),
    }
}

struct Hot {
    set: LimitSet,
    request: ResolvedRequest,
}

fn one() -> Result<Hot, Box<dyn Error>> {
    let set =
        LimitSet::builder().limit(CallLimit::per_second(PLENTY).algorithm(Algorithm::Gcra)).in_memory()?;
    let request = set.request().build()?;
    Ok(Hot { set, request })
}

fn three() -> Result<Hot, Box<dyn Error>> {
    let tokens = RateLimit::per_second("tokens", PLENTY).algorithm(Algorithm::Gcra);
    let set = LimitSet::builder()
        .limit(CallLimit::per_second(PLENTY).algorithm(Algorithm::Gcra))
        .limit(tokens.report(Report::Optional))
        .limit(ResourceLimit::new("connections", PLENTY))
        .in_memory()?;
    let request = set.request().amount("tokens", 1).build()?;
    Ok(Hot { set, request })
}

fn one_of_which_is_none_left() -> Result<Hot, Box<dyn Error>> {
    let set = LimitSet::builder().limit(CallLimit::per_day(1).algorithm(Algorithm::Gcra)).in_memory()?;
    let request = set.request().build()?;
    set.try_acquire(&request)?.release()?;
    Ok(Hot { set, request })
}

#[inline(never)]
fn try_now(hot: &Hot) -> Result<Acquisition, AcquireError> {
    hot.set.try_acquire(&hot.request)
}

#[inline(never)]
fn release_now(held: Acquisition) -> Result<(), UsageError> {
    held.release()
}

fn granted(hot: &Hot, count: u32) -> Done {
    for _ in 0..count {
        release_now(black_box(try_now(hot)?))?;
    }
    Ok(())
}

fn denied(hot: &Hot, count: u32) -> Done {
    for _ in 0..count {
        if black_box(try_now(hot)).is_ok() {
            return Err("there was one left".into());
        }
    }
    Ok(())
}
