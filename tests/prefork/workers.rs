//! What a worker is given, who may fork, and supervisors within workers.

use std::cell::RefCell;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake};
use std::time::Duration;

use limitset::{
    CallLimit, ExitReason, LimitPool, LimitSet, PoolError, PreforkError, ResourceLimit, Restart, StartBy,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{ForkResult, Pid, getpid};

use crate::{Shared, be_deaf, children, in_a_process, killed_by, prefork, reasons, tell_supervisor, until};

pub(crate) const TESTS: [(&str, fn()); 17] = [
    ("workers_share_one_budget", || in_a_process("budget")),
    ("without_limits_workers_have_limits_that_allow_everything", || in_a_process("no_limits")),
    ("each_worker_begins_with_its_own_set", || in_a_process("own_set")),
    ("a_set_for_threads_is_refused", || in_a_process("thread_set")),
    ("a_worker_added_by_hand_has_a_number_of_its_own", || in_a_process("add")),
    ("other_threads_are_a_reason_not_to_fork", || in_a_process("threads")),
    ("threads_started_since_are_a_reason_not_to_replace", || in_a_process("threads_later")),
    ("our_own_helper_thread_is_none", || in_a_process("helper")),
    ("a_worker_is_not_forked_while_the_helper_thread_runs_code_of_the_program", || {
        in_a_process("busy_helper")
    }),
    ("a_worker_is_not_forked_while_the_helper_thread_ends", || in_a_process("ending_helper")),
    ("a_worker_on_one_thread_of_tokio_hears_that_it_shall_stop", || in_a_process("tokio")),
    ("who_no_longer_waits_to_be_stopped_is_forgotten", || in_a_process("forgotten")),
    ("a_worker_may_supervise_workers", || in_a_process("nested")),
    ("an_inner_supervisor_that_stopped_knows_that_it_shall", || in_a_process("inner_stop")),
    ("dropping_a_supervisor_ends_its_workers", || in_a_process("dropped")),
    ("dropping_a_supervisor_in_a_forked_child_ends_nobody", || in_a_process("dropped_in_child")),
    ("no_workers_are_no_work", || in_a_process("nobody")),
];

pub(crate) const CASES: &[(&str, fn())] = &[
    ("budget", budget),
    ("no_limits", no_limits),
    ("own_set", own_set),
    ("thread_set", thread_set),
    ("add", add),
    ("threads", threads),
    ("threads_later", threads_later),
    ("helper", helper),
    ("busy_helper", busy_helper),
    ("ending_helper", ending_helper),
    ("tokio", tokio_worker),
    ("forgotten", forgotten),
    ("nested", nested),
    ("inner_stop", inner_stop),
    ("dropped", dropped),
    ("dropped_in_child", dropped_in_child),
    ("nobody", nobody),
];

fn budget() {
    let shared = Shared::new();
    let report = prefork(4).limits([CallLimit::per_hour(10)]).run(|worker| {
        for _ in 0..5 {
            if worker.limits().try_acquire(()).is_ok() {
                shared.count(0);
            }
        }
    });
    assert_eq!((report.unwrap().exits, shared.get(0)), (4, 10));
}

fn no_limits() {
    let report = prefork(2).restart(Restart::Never).run(|worker| {
        for _ in 0..1_000 {
            worker.limits().acquire(()).unwrap().release().unwrap();
        }
        assert_eq!(worker.limits().len(), 1);
    });
    assert_eq!(reasons(&report.unwrap()), [ExitReason::Finished; 2]);
}

fn own_set() {
    let set = || LimitSet::builder().limit(CallLimit::per_hour(1)).open_anonymous().unwrap();
    let report = prefork(3).limits([set(), set(), set()]).restart(Restart::Never).run(|worker| {
        assert_eq!(worker.limits().worker(), worker.index());
        let held = worker.limits().try_acquire(()).unwrap();
        assert_eq!(held.pool_index(), Some(worker.index()));
    });
    assert_eq!(reasons(&report.unwrap()), [ExitReason::Finished; 3]);
}

fn thread_set() {
    let set = LimitSet::builder().limit(CallLimit::per_hour(1)).in_memory().unwrap();
    let error = prefork(1).limits(set).run(|_| {}).unwrap_err();
    assert!(matches!(error, PreforkError::Limits(PoolError::ThreadMode { index: 0 })), "{error}");
    assert!(error.to_string().contains("private memory"), "{error}");
    assert_eq!(children(), "");
}

fn add() {
    let mut supervisor = prefork(2).restart(Restart::Never).start(|_| be_deaf()).unwrap();
    assert_eq!(supervisor.add().unwrap(), 2);
    let running = supervisor.running();
    assert_eq!(running.iter().map(|(index, _)| *index).collect::<Vec<_>>(), [0, 1, 2]);
    kill(Pid::from_raw(running[1].1), Signal::SIGKILL).unwrap();
    let mut exits = Vec::new();
    until(|| {
        exits.extend(supervisor.step().unwrap().0);
        !exits.is_empty()
    });
    assert_eq!((exits[0].index, exits[0].reason), (1, killed_by(Signal::SIGKILL)));
    assert_eq!(supervisor.running().len(), 2);
    assert_eq!(supervisor.add().unwrap(), 1, "the number of the dead is used again");
    assert_eq!(supervisor.add().unwrap(), 3);
}

fn threads() {
    let (done, is_done) = std::sync::mpsc::channel::<()>();
    let other = std::thread::spawn(move || is_done.recv());
    let error = prefork(1).run(|_| {}).unwrap_err();
    assert!(matches!(error, PreforkError::Threads { found: 1 }), "{error}");
    assert_eq!(children(), "");
    // A new process has no use for names that only this one knows.
    let error = prefork(1).start_by(StartBy::Exec).run(|_| {}).unwrap_err();
    assert!(matches!(error, PreforkError::Limits(PoolError::NoName { index: 0 })), "{error}");
    drop(done);
    other.join().unwrap().unwrap_err();
    assert_eq!(prefork(1).run(|_| {}).unwrap().exits, 1);
}

/// A thread that was started since.
fn threads_later() {
    let mut supervisor = prefork(1).start(|_| be_deaf()).unwrap();
    let (done, is_done) = std::sync::mpsc::channel::<()>();
    let other = std::thread::spawn(move || is_done.recv());
    kill(Pid::from_raw(supervisor.running()[0].1), Signal::SIGKILL).unwrap();
    let mut stepped = Ok(());
    until(|| {
        stepped = supervisor.step().map(drop);
        stepped.is_err()
    });
    assert!(matches!(stepped, Err(PreforkError::Threads { found: 1 })), "{stepped:?}");
    supervisor.add().unwrap_err();
    assert_eq!(supervisor.restarts(), 0);
    drop(done);
    other.join().unwrap().unwrap_err();
    // The thread that was joined may be visible for a moment longer; that is waited for.
    supervisor.add().unwrap();
}

/// Holds a lock of the program while the helper thread wakes it, until the first thread has gone to sleep.
#[derive(Default)]
struct SlowWaker {
    lock: Mutex<()>,
    is_waking: AtomicBool,
    is_forking: AtomicBool,
}

impl Wake for SlowWaker {
    fn wake(self: Arc<Self>) {
        let _guard = self.lock.lock().unwrap();
        self.is_waking.store(true, SeqCst);
        until(|| self.is_forking.load(SeqCst) && crate::state_of(getpid()) == Some('S'));
    }
}

/// The first thread has nothing to sleep for between `is_forking` and the worker but this library's wait for the waker.
fn busy_helper() {
    let set = LimitSet::builder().limit(ResourceLimit::new("db", 1)).open_anonymous().unwrap();
    let held = set.try_acquire(()).unwrap();
    let slow = Arc::new(SlowWaker::default());
    let mut waits = Box::pin(set.acquire_async(()));
    let waker = slow.clone().into();
    assert!(waits.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    held.release().unwrap();
    until(|| slow.is_waking.load(SeqCst));
    slow.is_forking.store(true, SeqCst);
    let report = prefork(1).restart(Restart::Never).run(|_| {
        // A fork while the helper holds the lock would leave it locked here for ever.
        if slow.lock.try_lock().is_ok() { Ok(()) } else { Err("inherited a lock that is held") }
    });
    assert_eq!(reasons(&report.unwrap()), [ExitReason::Finished]);
}

fn helper() {
    let set = LimitSet::builder().limit(ResourceLimit::new("db", 1)).open_anonymous().unwrap();
    let held = set.try_acquire(()).unwrap();
    let late = pollster::block_on(set.acquire_async(()).timeout(Duration::from_millis(5)));
    late.unwrap_err();
    // It stays for a while.
    let tasks = || std::fs::read_dir("/proc/self/task").unwrap().count();
    assert_eq!(tasks(), 2);
    held.release().unwrap();
    let report = prefork(1).limits(&set).restart(Restart::Never).run(|worker| {
        let held = worker.limits().try_acquire(()).unwrap();
        // The copy of a helper without its thread is of no use: this process starts one of its own.
        let late = worker.limits().get(0).unwrap().acquire_async(()).timeout(Duration::from_millis(5));
        pollster::block_on(late).unwrap_err();
        drop(held);
    });
    assert_eq!(reasons(&report.unwrap()), [ExitReason::Finished]);
}

/// Holds a lock of the program while the helper thread ends.
struct AtTheEnd(Arc<SlowWaker>);

impl Drop for AtTheEnd {
    fn drop(&mut self) {
        self.0.clone().wake();
    }
}

/// Leaves something in the thread that wakes it, to be dropped when that thread ends.
struct LeavesSomething(Arc<SlowWaker>);

impl Wake for LeavesSomething {
    fn wake(self: Arc<Self>) {
        thread_local! {
            static LEFT: RefCell<Option<AtTheEnd>> = const { RefCell::new(None) };
        }
        LEFT.set(Some(AtTheEnd(self.0.clone())));
    }
}

fn ending_helper() {
    let set = LimitSet::builder().limit(ResourceLimit::new("db", 1)).open_anonymous().unwrap();
    let held = set.try_acquire(()).unwrap();
    let slow = Arc::new(SlowWaker::default());
    let mut waits = Box::pin(set.acquire_async(()));
    let waker = Arc::new(LeavesSomething(slow.clone())).into();
    assert!(waits.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    held.release().unwrap();
    // The helper ends when it has been idle for a second.
    until(|| slow.is_waking.load(SeqCst));
    slow.is_forking.store(true, SeqCst);
    let report = prefork(1)
        .restart(Restart::Never)
        .run(|_| if slow.lock.try_lock().is_ok() { Ok(()) } else { Err("inherited a lock that is held") });
    assert_eq!(reasons(&report.unwrap()), [ExitReason::Finished]);
}

fn tokio_worker() {
    let report = prefork(2).run(|worker| {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let others = tokio::spawn(std::future::pending::<()>());
            if worker.index() == 0 {
                tell_supervisor(Signal::SIGTERM);
            }
            worker.stopped().await;
            assert!(worker.stopping());
            // Whoever asks later is told at once.
            worker.stopped().await;
            others.abort();
        });
    });
    assert_eq!(reasons(&report.unwrap()), [ExitReason::Finished; 2]);
}

struct Nobody;

impl Wake for Nobody {
    fn wake(self: Arc<Self>) {}
}

/// A server has a task for every connection, each of which may want to know.
fn forgotten() {
    let report = prefork(1).restart(Restart::Never).run(|worker| {
        let task = Arc::new(Nobody);
        for _ in 0..3 {
            let mut stopped = Box::pin(worker.stopped());
            assert!(stopped.as_mut().poll(&mut Context::from_waker(&task.clone().into())).is_pending());
            assert!(Arc::strong_count(&task) > 1, "it is to be woken");
            drop(stopped);
        }
        assert_eq!(Arc::strong_count(&task), 1, "a task that is over is kept");
    });
    assert_eq!(reasons(&report.unwrap()), [ExitReason::Finished]);
}

fn nested() {
    let shared = Shared::new();
    shared.set(3, getpid().as_raw().try_into().unwrap());
    let report = prefork(2).limits([CallLimit::per_hour(5)]).restart(Restart::Never).run(|outer| {
        let inner = prefork(2).limits(outer.limits()).restart(Restart::Never).run(|inner| {
            for _ in 0..3 {
                shared.count(usize::from(inner.limits().try_acquire(()).is_ok()));
            }
            if shared.count(2) == 3 {
                // All four are at work: now the supervisor of supervisors is told.
                kill(Pid::from_raw(shared.get(3).try_into().unwrap()), Signal::SIGTERM).unwrap();
            }
            until(|| inner.stopping());
        });
        assert_eq!(reasons(&inner.unwrap()), [ExitReason::Finished; 2]);
    });
    assert_eq!(reasons(&report.unwrap()), [ExitReason::Finished; 2]);
    assert_eq!((shared.get(0), shared.get(1)), (7, 5), "one budget for all");
}

fn inner_stop() {
    let report = prefork(1).restart(Restart::Never).run(|outer| {
        let inner = prefork(1).run(|inner| {
            // First this one's supervisor, by way of the outer one.
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", nix::unistd::getppid())).unwrap();
            let outermost = stat.rsplit(')').next().unwrap().split_whitespace().nth(1).unwrap();
            kill(Pid::from_raw(outermost.parse().unwrap()), Signal::SIGTERM).unwrap();
            until(|| inner.stopping());
        });
        assert_eq!(reasons(&inner.unwrap()), [ExitReason::Finished]);
        assert!(outer.stopping(), "it was told, through its own workers' supervisor");
    });
    assert_eq!(reasons(&report.unwrap()), [ExitReason::Finished]);
}

fn dropped() {
    let mut supervisor = prefork(3).start(|_| be_deaf()).unwrap();
    assert!(supervisor.step().unwrap().0.is_empty());
    drop(supervisor);
    assert_eq!(children(), "");
}

fn dropped_in_child() {
    let supervisor = prefork(1).start(|_| be_deaf()).unwrap();
    let pid = supervisor.running()[0].1;
    // SAFETY: this process has one thread, so the child is a whole process.
    match unsafe { nix::unistd::fork() }.unwrap() {
        ForkResult::Child => {
            drop(supervisor);
            // SAFETY: ends the child, whose other destructors are its parent's.
            unsafe { libc::_exit(0) }
        }
        ForkResult::Parent { child } => {
            nix::sys::wait::waitpid(child, None).unwrap();
            let mut supervisor = supervisor;
            // If it had been killed, it would be dead by now: signals to a process arrive before the sender ends.
            until(|| crate::state_of(Pid::from_raw(pid)) != Some('R'));
            assert_ne!(crate::state_of(Pid::from_raw(pid)), Some('Z'));
            assert!(supervisor.step().unwrap().0.is_empty());
        }
    }
}

fn nobody() {
    let report = prefork(0).run(|_| {}).unwrap();
    assert_eq!(report, limitset::PreforkReport::default());
    LimitPool::new([]).unwrap_err();
}
