//! How often a set asks for memory: not at all on the hot path, at most once to refuse.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use limitset::{
    AcquireError, Algorithm, CallLimit, Clock, LimitSet, LimitSetBuilder, RateLimit, Report, ResourceLimit,
};

/// The system's allocator, counting what each thread asks of it.
struct Counting;

thread_local! {
    static ASKED: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    // Not while the thread's own things are being torn down; nothing is measured there.
    let _ = ASKED.try_with(|asked| asked.set(asked.get() + 1));
}

// SAFETY: every call is passed on as it is to the system's allocator, which keeps the contract.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promises are those that the system's allocator asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the pointer came from the system's allocator, with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the pointer came from the system's allocator, with this layout.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// How often `work` asks for memory.
fn allocations<T>(work: impl FnOnce() -> T) -> (u64, T) {
    let before = ASKED.get();
    let result = work();
    (ASKED.get() - before, result)
}

/// Four limits of all kinds.
fn builder() -> LimitSetBuilder {
    LimitSet::builder()
        .clock(Clock::Manual)
        .limit(CallLimit::per_minute(1_000).algorithm(Algorithm::SlidingWindow))
        .limit(RateLimit::per_minute("tokens", 1_000).algorithm(Algorithm::Gcra))
        .limit(RateLimit::per_minute("rows", 1_000).report(Report::Optional))
        .limit(ResourceLimit::new("connections", 4))
}

fn sets() -> [LimitSet; 2] {
    [builder().in_memory().unwrap(), builder().open_anonymous().unwrap()]
}

#[test]
fn the_counter_counts() {
    assert_eq!(allocations(|| Box::new(7)).0, 1);
    assert_eq!(allocations(|| vec![0u8; 100].push(1)).0, 2);
    assert_eq!(allocations(|| 7).0, 0);
}

#[test]
fn a_resolved_request_is_granted_used_and_released_without_an_allocation() {
    for set in sets() {
        let request = set.request().amount("tokens", 10).amount("rows", 5).label("chat").build().unwrap();
        set.try_acquire(&request).unwrap().cancel().unwrap();
        let (count, ()) = allocations(|| {
            for _ in 0..50 {
                let mut held = set.try_acquire(&request).unwrap();
                held.update("tokens", 7).unwrap();
                held.adjust("rows", 1).unwrap();
                held.settle("tokens", 9).unwrap();
                held.release().unwrap();
            }
            drop(set.try_acquire(&request).unwrap());
            set.try_acquire(&request).unwrap().cancel().unwrap();
        });
        assert_eq!(count, 0);
    }
}

#[test]
fn few_limits_by_name_need_no_allocation_either() {
    for set in sets() {
        drop(set.try_acquire([("tokens", 1)]).unwrap());
        let (count, ()) = allocations(|| {
            let mut held = set.try_acquire([("tokens", 10), ("rows", 5)]).unwrap();
            held.acquire_more([("rows", 5)]).unwrap();
            held.cancel().unwrap();
        });
        assert_eq!(count, 0);
    }
}

#[test]
fn what_a_thread_holds_at_once_is_allocated_once_however_many_limits_there_are() {
    let permits = (0..64).map(|n| ResourceLimit::new(format!("r{n}"), 5));
    for most in [1, 4, 5, 64] {
        let set = LimitSet::builder().limits(permits.clone().take(most)).in_memory().unwrap();
        let request = set.request().build().unwrap();
        let three = || drop([(); 3].map(|()| set.try_acquire(&request).unwrap()));
        three();
        assert_eq!(allocations(three).0, 0, "{most} limits");
    }
}

#[test]
fn a_denial_makes_at_most_one_allocation_however_many_limits_there_are() {
    for others in [0, 4, 5, 12, 60] {
        let others = (0..others).map(|n| RateLimit::per_minute(format!("other{n}"), 5));
        let set = builder().limits(others).in_memory().unwrap();
        let request = set.request().amount("connections", 4).build().unwrap();
        let _held = set.try_acquire(&request).unwrap();
        // The first denial for permits also looks for the dead.
        assert!(set.try_acquire(&request).is_err());
        let (count, answer) = allocations(|| set.try_acquire(&request));
        assert!(matches!(answer, Err(AcquireError::Denied(_))));
        assert_eq!(count, 1, "{} limits", set.limits().len());
        let (count, answer) = allocations(|| set.try_acquire([("connections", 5)]));
        assert!(matches!(answer, Err(AcquireError::Never { .. })));
        assert_eq!(count, 1, "{} limits", set.limits().len());
        let (count, answer) = allocations(|| set.check(&request));
        assert!(matches!(answer, Err(AcquireError::Denied(_))));
        assert_eq!(count, 1, "{} limits", set.limits().len());
    }
}
