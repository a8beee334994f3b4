//! The library's own threads: starting them, and forking beside them.
//!
//! They are started by `pthread_create`, not by `std::thread`. Every `std` thread takes a lock inside `std` when it begins
//! and when it ends. A fork that happens while another thread holds that lock leaves it locked in the child, and then no
//! `std` thread of the child ever gets to its closure. A thread started here does not touch that lock.
//!
//! A supervisor forks beside these threads. So each of them says whether it may hold a lock that the child could need:
//!
//! ```text
//! busy    starting, or running code of the program (a waker, a subscriber of events): may hold any lock
//! calm    running code of this library: holds only locks that a child never uses
//! ending  running the destructors of its thread-local variables: neither, and counted as any other thread
//! ```
//!
//! [`Alone`] is the supervisor's side. While it exists no thread is busy, and calm ones wait before they become busy.

use std::cell::Cell;
use std::ffi::{CStr, c_void};
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{AcqRel, Acquire};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{SigSet, SigmaskHow};

use super::fork::PerProcess;
use super::{clock, futex};

/// As much as `std` gives a thread: wakers are code of the program. (musl's default is 128 KiB.)
const STACK_BYTES: usize = 2 << 20;
/// What the names of all these threads begin with.
const NAME_PREFIX: &str = "limitset-";

/// One busy thread.
const BUSY: u32 = 1;
/// One calm thread.
const CALM: u32 = 1 << 15;
/// The number of busy threads; that of calm ones is in the bits above it.
const BUSY_MASK: u32 = CALM - 1;
/// A supervisor is about to fork.
const FORKING: u32 = 1 << 31;

/// How many library threads are busy and calm in this process, and whether a fork is under way.
struct Threads(AtomicU32);

static THREADS: PerProcess<Threads> = PerProcess::new();

thread_local! {
    /// In a calm thread of this library: where it is counted.
    static CALM_IN: Cell<Option<&'static Threads>> = const { Cell::new(None) };
    /// Whether this thread has an [`Alone`]. Fork handlers of the program run in this thread and must not wait for it.
    static IS_FORKING: Cell<bool> = const { Cell::new(false) };
}

/// The counts of this process. A child of a fork begins with new ones, since it has none of the threads.
fn threads() -> &'static Threads {
    THREADS.get(|| Threads(AtomicU32::new(0)))
}

impl Threads {
    /// Counts one more busy thread; `was` is [`CALM`] if it was calm before. Waits while a fork is under way.
    fn become_busy(&self, was: u32) {
        let mut seen = self.0.load(Acquire);
        loop {
            if seen & FORKING != 0 && !IS_FORKING.get() {
                futex::wait(&self.0, seen, 10_000_000);
                seen = self.0.load(Acquire);
                continue;
            }
            let wanted = seen.wrapping_add(BUSY).wrapping_sub(was);
            match self.0.compare_exchange(seen, wanted, AcqRel, Acquire) {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }

    /// The calling thread is calm from here on.
    fn become_calm(&'static self) {
        self.0.fetch_add(CALM - BUSY, AcqRel);
        CALM_IN.set(Some(self));
    }
}

/// What a new thread is given.
struct Order {
    name: &'static CStr,
    threads: &'static Threads,
    work: Box<dyn FnOnce() + Send>,
}

/// Starts a detached thread of this library: all signals are blocked in it, and a panic ends `work` only.
pub(crate) fn start(name: &'static CStr, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let threads = threads();
    threads.become_busy(0);
    let started = create(Box::new(Order { name, threads, work: Box::new(work) }));
    if started.is_err() {
        threads.0.fetch_sub(BUSY, AcqRel);
    }
    started
}

fn create(order: Box<Order>) -> io::Result<()> {
    let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
    // SAFETY: the attributes are live, and the call initializes them.
    checked(unsafe { libc::pthread_attr_init(attributes.as_mut_ptr()) })?;
    let created = create_with(attributes.as_mut_ptr(), order);
    // SAFETY: they were initialized above, and no thread is created with them any more.
    unsafe { libc::pthread_attr_destroy(attributes.as_mut_ptr()) };
    created
}

/// `attributes` are initialized.
fn create_with(attributes: *mut libc::pthread_attr_t, order: Box<Order>) -> io::Result<()> {
    // SAFETY: the only caller passes live, initialized attributes; the call changes nothing else.
    checked(unsafe { libc::pthread_attr_setdetachstate(attributes, libc::PTHREAD_CREATE_DETACHED) })?;
    // SAFETY: as above.
    checked(unsafe { libc::pthread_attr_setstacksize(attributes, STACK_BYTES) })?;
    let mut thread = MaybeUninit::<libc::pthread_t>::uninit();
    let order = Box::into_raw(order);
    // A new thread inherits the mask of its creator. Blocked any later, it could run a handler of the program first.
    let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK);
    // SAFETY: the attributes are initialized and `thread` is live for the call. `run` gets the one pointer to the order,
    // which is `Send` in all its parts.
    let code = unsafe { libc::pthread_create(thread.as_mut_ptr(), attributes, run, order.cast()) };
    if let Ok(before) = before {
        let _ = before.thread_set_mask();
    }
    checked(code).inspect_err(|_| {
        // SAFETY: the thread was not created, so this is still the only pointer, and it came from a box.
        drop(unsafe { Box::from_raw(order) });
    })
}

/// These calls return the error instead of setting `errno`.
fn checked(code: libc::c_int) -> io::Result<()> {
    if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code)) }
}

extern "C" fn run(order: *mut c_void) -> *mut c_void {
    // SAFETY: `create_with` passes the only pointer to a boxed order, once.
    let Order { name, threads, work } = *unsafe { Box::from_raw(order.cast::<Order>()) };
    // SAFETY: only reads the name, which ends with a zero byte.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
    threads.become_calm();
    if let Err(payload) = catch_unwind(AssertUnwindSafe(work)) {
        // Its destructor could panic as well, and nothing would catch that.
        std::mem::forget(payload);
    }
    // No longer calm: destructors of thread-local variables follow, which may be the program's.
    if let Some(threads) = CALM_IN.take() {
        threads.become_busy(CALM);
        threads.0.fetch_sub(BUSY, AcqRel);
    }
    std::ptr::null_mut()
}

/// Runs code of the program, which may take locks that this library does not know of. In a thread of this library no
/// supervisor forks meanwhile; in any other thread it makes no difference.
pub(crate) fn foreign<T>(act: impl FnOnce() -> T) -> T {
    /// Calm again, also after a panic.
    struct Busy(&'static Threads);

    impl Drop for Busy {
        fn drop(&mut self) {
            self.0.become_calm();
        }
    }

    let _busy = CALM_IN.take().map(|threads| {
        threads.become_busy(CALM);
        Busy(threads)
    });
    act()
}

/// Proof that no other thread of this process can hold a lock that a child of a fork needs: there is none but calm
/// threads of this library, and as long as this exists they stay calm. Only threads start threads, so none can appear.
pub(super) struct Alone(&'static Threads);

impl Alone {
    /// How long to wait for a library thread that is busy or ending.
    const OURS_PATIENCE: u64 = 5_000_000_000;
    /// How long to wait for other threads: one that was just joined is still visible for a moment.
    const OTHERS_PATIENCE: u64 = 100_000_000;

    /// The proof, or the number of other threads.
    pub(super) fn wait_for() -> io::Result<Result<Self, usize>> {
        let threads = threads();
        let begin = clock::monotonic();
        loop {
            let alone = Self::claim(threads);
            let seen = threads.0.load(Acquire);
            let calm = usize::try_from((seen & !FORKING) / CALM).unwrap_or(0);
            let (all, named) = count_threads()?;
            let found = all.saturating_sub(1 + calm);
            match alone {
                Some(alone) if found == 0 => return Ok(Ok(alone)),
                alone => drop(alone),
            }
            // A thread that is starting does not bear its name yet.
            let starting = usize::try_from(seen & BUSY_MASK).unwrap_or(0);
            let is_only_ours = found <= named.saturating_sub(calm).max(starting);
            let patience = if is_only_ours { Self::OURS_PATIENCE } else { Self::OTHERS_PATIENCE };
            if clock::monotonic().saturating_sub(begin) >= patience {
                return Ok(Err(found.max(1)));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Keeps calm threads calm; none if a thread is busy, or another one forks.
    fn claim(threads: &'static Threads) -> Option<Self> {
        let seen = threads.0.load(Acquire);
        if seen & (BUSY_MASK | FORKING) != 0 {
            return None;
        }
        threads.0.compare_exchange(seen, seen | FORKING, AcqRel, Acquire).ok()?;
        IS_FORKING.set(true);
        Some(Self(threads))
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        IS_FORKING.set(false);
        self.0.0.fetch_and(!FORKING, AcqRel);
        futex::wake(&self.0.0, i32::MAX);
    }
}

/// The threads of this process, and how many of them bear a name of this library's.
fn count_threads() -> io::Result<(usize, usize)> {
    let (mut all, mut named) = (0, 0);
    for task in fs::read_dir("/proc/thread-self/../")? {
        match fs::read_to_string(task?.path().join("comm")) {
            Ok(name) => {
                all += 1;
                named += usize::from(name.starts_with(NAME_PREFIX));
            }
            // It has ended since the directory was read.
            Err(error) if has_ended(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok((all, named))
}

fn has_ended(error: &io::Error) -> bool {
    let code = error.raw_os_error().map(Errno::from_raw);
    matches!(code, Some(Errno::ENOENT | Errno::ESRCH))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn signals_blocked() -> bool {
        let mask = SigSet::thread_get_mask().unwrap();
        nix::sys::signal::Signal::iterator()
            .filter(|signal| !matches!(*signal as i32, libc::SIGKILL | libc::SIGSTOP))
            .all(|signal| mask.contains(signal))
    }

    #[test]
    fn a_thread_bears_its_name_blocks_all_signals_and_outlives_no_panic_of_its_work() {
        let (tell, told) = mpsc::channel();
        start(c"limitset-test", move || {
            let name = fs::read_to_string("/proc/thread-self/comm").unwrap();
            tell.send((name, signals_blocked(), CALM_IN.get().is_some())).unwrap();
            foreign(|| tell.send((String::new(), signals_blocked(), CALM_IN.get().is_some())).unwrap());
            std::panic::resume_unwind(Box::new("as the test wants it"));
        })
        .unwrap();
        assert_eq!(told.recv().unwrap(), ("limitset-test\n".to_owned(), true, true));
        assert_eq!(told.recv().unwrap(), (String::new(), true, false), "busy in code of the program");
        told.recv().unwrap_err();
        assert!(!signals_blocked(), "the mask of the starting thread is as before");
    }

    #[test]
    fn no_thread_becomes_busy_between_a_claim_and_its_end() {
        let threads: &'static Threads = Box::leak(Box::new(Threads(AtomicU32::new(0))));
        threads.become_busy(0);
        assert!(Alone::claim(threads).is_none(), "one is busy");
        threads.become_calm();
        CALM_IN.take();
        let alone = Alone::claim(threads).unwrap();
        assert!(Alone::claim(threads).is_none(), "another fork is under way");
        let (tell, told) = mpsc::channel();
        let other = std::thread::spawn(move || {
            tell.send(nix::unistd::gettid()).unwrap();
            threads.become_busy(CALM);
        });
        let stat = format!("/proc/self/task/{}/stat", told.recv().unwrap());
        // It has got as far as it can.
        while !fs::read_to_string(&stat).unwrap().rsplit(')').next().unwrap().starts_with(" S") {
            std::thread::yield_now();
        }
        assert_eq!(threads.0.load(Acquire), FORKING | CALM);
        drop(alone);
        other.join().unwrap();
        assert_eq!(threads.0.load(Acquire), BUSY);
    }
}
