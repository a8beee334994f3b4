//! Forks that catch another thread in a bad moment: in the middle of starting, or in the middle of its first attach. The
//! child must still be able to use the library.
//!
//! The moments are not left to chance: an allocator holds a thread at the allocation that it makes there.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[path = "support/forks.rs"]
mod forks;
#[path = "forks/instructions.rs"]
mod instructions;
#[path = "support/mod.rs"]
mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32};
use std::time::Duration;

use forks::Forked;
use limitset::error::AttachError;
use limitset::{AcquireError, LimitSet, ResourceLimit, Segment};
use nix::sys::wait::WaitStatus;
use support::{TempName, Worker, say};

fn main() {
    let roles: [support::Role; 3] = [
        ("thread_start", thread_start_role),
        ("first_attach", first_attach_role),
        ("instructions", instructions::role),
    ];
    let tests: Vec<(&str, fn())> = vec![
        ("a_future_ends_in_time_in_a_child_whose_parent_was_starting_a_thread", || thread_start("future")),
        ("a_blocking_wait_ends_in_time_in_a_child_whose_parent_was_starting_a_thread", || {
            thread_start("blocking");
        }),
        ("a_child_attaches_whatever_its_parents_first_attach_was_doing", first_attach),
        ("a_child_attaches_between_any_two_instructions_of_its_parents_first_attach", instructions::test),
    ];
    support::main(&roles, tests);
}

/// Seconds after which a child is taken to hang. Its work takes milliseconds.
const HANGS_AFTER: u32 = 60;

/// Holds every thread at one allocation, while it is told to.
struct Holding;

/// The number of the thread that is to be held; 0 for none, `ANY_NEW` for any that is not the first.
static WHOM: AtomicI32 = AtomicI32::new(0);
const ANY_NEW: i32 = -1;
/// Only allocations larger than this count.
static LARGER_THAN: AtomicU32 = AtomicU32::new(0);
/// How many of them to let pass first.
static PASS: AtomicU32 = AtomicU32::new(0);
/// A thread is held.
static IS_HELD: AtomicBool = AtomicBool::new(false);
/// No thread is held any more.
static LET_GO: AtomicBool = AtomicBool::new(false);

impl Holding {
    fn hold(layout: Layout) {
        let whom = WHOM.load(SeqCst);
        let me = nix::unistd::gettid();
        let is_meant = whom == me.as_raw() || whom == ANY_NEW && me != nix::unistd::getpid();
        if whom == 0 || !is_meant || layout.size() <= LARGER_THAN.load(SeqCst) as usize {
            return;
        }
        if PASS.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok() {
            return;
        }
        WHOM.store(0, SeqCst);
        IS_HELD.store(true, SeqCst);
        nap_until(|| LET_GO.load(SeqCst));
    }
}

// SAFETY: every call is passed on as it is to the system's allocator, which keeps the contract.
unsafe impl GlobalAlloc for Holding {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Self::hold(layout);
        // SAFETY: the caller's promises are those that the system's allocator asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the pointer came from the system's allocator, with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Holding = Holding;

fn nap_until(is_over: impl Fn() -> bool) {
    while !is_over() {
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// In a child: ends it by a signal if it hangs.
fn beware_of_hanging() {
    // SAFETY: sets a timer whose signal has its default action.
    unsafe { libc::alarm(HANGS_AFTER) };
}

/// Waits for the child, and lets go of the thread that is held.
fn join(child: &Forked, what: &str) {
    let ended = child.wait();
    // Before any panic: a process does not end while a thread of it is held in a lock of `std`.
    LET_GO.store(true, SeqCst);
    judge(ended, what);
}

fn judge(ended: WaitStatus, what: &str) {
    match ended {
        WaitStatus::Exited(_, 0) => {}
        WaitStatus::Signaled(_, nix::sys::signal::Signal::SIGALRM, _) => panic!("the child hung: {what}"),
        other => panic!("{other:?}: {what}"),
    }
}

fn thread_start(what: &str) {
    let mut worker = Worker::start("thread_start", &[what]);
    match worker.hear().as_str() {
        "held" => worker.wait_for_end(),
        "not held" => {
            println!("SKIPPED {what} beside a starting thread: std makes no large allocation there")
        }
        other => panic!("{other}"),
    }
}

/// A thread is held inside the lock that `std` takes for every thread that begins: its map of threads allocates a node
/// there, which is the only large allocation of a new thread before its closure.
fn thread_start_role(arguments: &[String]) {
    const PATIENCE: Duration = Duration::from_millis(3);
    let set = LimitSet::builder().limit(ResourceLimit::new("db", 1)).open_anonymous().unwrap();
    let held = set.try_acquire(()).unwrap();
    LARGER_THAN.store(300, SeqCst);
    WHOM.store(ANY_NEW, SeqCst);
    // A node is for several threads, so they must stay.
    for _ in 0..64 {
        let has_begun = std::sync::Arc::new(AtomicBool::new(false));
        let begins = has_begun.clone();
        std::thread::spawn(move || {
            begins.store(true, SeqCst);
            std::thread::park();
        });
        nap_until(|| has_begun.load(SeqCst) || IS_HELD.load(SeqCst));
        if IS_HELD.load(SeqCst) {
            break;
        }
    }
    WHOM.store(0, SeqCst);
    if !IS_HELD.load(SeqCst) {
        return say("not held");
    }
    say("held");
    let child = Forked::new(|| {
        beware_of_hanging();
        let late = match arguments[0].as_str() {
            "future" => pollster::block_on(set.acquire_async(()).timeout(PATIENCE)),
            _ => set.acquire_timeout((), PATIENCE),
        };
        assert!(matches!(late, Err(AcquireError::TimedOut(_))), "{late:?}");
    });
    join(&child, &arguments[0]);
    drop(held);
}

/// The first attach of a process, held at each of its allocations in turn while another thread forks.
fn first_attach() {
    let name = TempName::new();
    let set = LimitSet::builder().limit(ResourceLimit::new("db", 100)).open(&name).unwrap();
    let mut held = 0;
    loop {
        let mut worker = Worker::start("first_attach", &[&name.0, &held.to_string()]);
        let said = worker.hear();
        worker.wait_for_end();
        match said.as_str() {
            "held" => held += 1,
            "not held" => break,
            other => panic!("{other}"),
        }
    }
    assert!(held > 10, "an attach makes many allocations, and it was held at {held}");
    set.remove().unwrap();
}

/// The fork is under way.
static FORKING: AtomicBool = AtomicBool::new(false);
/// The first attach is over.
static ATTACHED: AtomicBool = AtomicBool::new(false);

/// Runs first in every fork: lets the first attach begin, and waits until it is held. Handlers that the attach registers
/// are too late for this fork.
extern "C" fn before_fork() {
    if !FORKING.swap(true, SeqCst) {
        let naps = std::cell::Cell::new(0);
        // A libc that lets no thread register handlers while one runs cannot be held at what follows.
        nap_until(|| {
            naps.set(naps.get() + 1);
            IS_HELD.load(SeqCst) || ATTACHED.load(SeqCst) || naps.get() > 50_000
        });
    }
}

fn first_attach_role(arguments: &[String]) {
    let name = arguments[0].clone();
    PASS.store(arguments[1].parse().unwrap(), SeqCst);
    // SAFETY: the handler may do anything that this thread may: it runs in it, before the fork.
    assert_eq!(unsafe { libc::pthread_atfork(Some(before_fork), None, None) }, 0);
    let attacher = std::thread::spawn(move || {
        nap_until(|| FORKING.load(SeqCst));
        WHOM.store(nix::unistd::gettid().as_raw(), SeqCst);
        let set = LimitSet::attach(&name).unwrap();
        WHOM.store(0, SeqCst);
        ATTACHED.store(true, SeqCst);
        set
    });
    let (answered, answers) = nix::unistd::pipe().unwrap();
    let child = Forked::new(|| {
        beware_of_hanging();
        // Busy, if its parent is held while it enrols. That is an answer, not a hang.
        let first = attach(&arguments[0]);
        nix::unistd::write(&answers, b".").unwrap();
        let set =
            first.or_else(|| std::iter::repeat_with(|| attach(&arguments[0])).flatten().next()).unwrap();
        set.try_acquire(()).unwrap().release().unwrap();
        // Its own forks are complete.
        Forked::new(|| set.try_acquire(()).unwrap().release().unwrap()).join();
    });
    drop(answers);
    // Nothing is read if it hangs.
    let _ = nix::unistd::read(&answered, &mut [0]).unwrap();
    LET_GO.store(true, SeqCst);
    join(&child, &format!("held at allocation {}", arguments[1]));
    attacher.join().unwrap().try_acquire(()).unwrap().release().unwrap();
    say(if IS_HELD.load(SeqCst) { "held" } else { "not held" });
}

/// None if the lock for enrolling is taken.
fn attach(name: &str) -> Option<LimitSet> {
    let options = Segment::options().patience(Duration::from_millis(5));
    match LimitSet::builder().segment(options).attach(name) {
        Ok(set) => Some(set),
        Err(AttachError::Busy { .. }) => None,
        Err(other) => panic!("{other}"),
    }
}
