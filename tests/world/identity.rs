//! Handles of a participant that this process is no longer: it took its slot lock back from a command that had left
//! something behind, so everything that it held was returned, and it enrolled under a new name. Each test keeps a handle
//! of the time before, lets other participants have what it was about, and uses and drops it then.

use std::future::Future;
use std::io::{BufRead, BufReader};
use std::pin::{Pin, pin};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use limitset::sync::LockedMutex;
use limitset::{
    Acquisition, LimitSet, LimitSetBuilder, LockStatistics, QueueError, QueueOptions, RateLimit, Report,
    ResourceLimit, Segment, SegmentOptions, Started,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::Skipped;
use crate::support::{TempName, Worker, say};

/// Runs one of the tests below in a process of its own.
pub(crate) fn of(what: &str) -> Result<(), Skipped> {
    let mut worker = Worker::start("identity", &[what]);
    worker.expect("done");
    assert!(worker.finish().success());
    Ok(())
}

pub(crate) fn role(arguments: &[String]) {
    match arguments[0].as_str() {
        "acquisition" => acquisition(),
        "reports" => reports(),
        "future" => future(),
        "polled" => polled(),
        "charge" => charge(),
        "thread" => thread(),
        "permit" => permit(),
        "guard" => guard(),
        "item" => item(),
        "result" => result(),
        "dropped" => dropped(),
        "dropped_while_lent" => dropped_while_lent(),
        other => panic!("{other}"),
    }
    say("done");
}

fn options() -> SegmentOptions {
    // Nobody looks for the dead unless it is told to, and nobody runs out of patience.
    Segment::options()
        .lends_life(true)
        .semaphore("db", 2)
        .mutex("pair", 2)
        .doorbell_slice(Duration::from_secs(3_600))
        .patience(Duration::from_secs(300))
}

fn builder(connections: u64) -> LimitSetBuilder {
    LimitSet::builder()
        .limit(ResourceLimit::new("connections", connections))
        .queue(QueueOptions::new(4, 64).result_bytes(64))
        .segment(options())
}

/// A set, and the same set as another participant has it.
fn two(connections: u64) -> (TempName, LimitSet, LimitSet) {
    let name = TempName::new();
    let set = builder(connections).create(&name).unwrap();
    let other = LimitSet::builder().segment(options()).attach(&name).unwrap();
    (name, set, other)
}

/// What a command left behind that has the slot lock's descriptor; ends with this value.
struct LeftBehind(Pid);

impl Drop for LeftBehind {
    fn drop(&mut self) {
        let _ = kill(self.0, Signal::SIGKILL);
    }
}

/// Lends the slot lock to a command that leaves something behind, and takes it back.
fn take_back(held: Acquisition) -> LeftBehind {
    let segment = held.set().segment().clone();
    let before = segment.participant().unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", "sleep 1000 > /dev/null 2>&1 & echo $!"]).stdin(Stdio::null()).stdout(Stdio::piped());
    let (mut child, life) = segment.spawn_lending_life(command, &[]).unwrap();
    let mut text = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut text).unwrap();
    let left_behind = LeftBehind(Pid::from_raw(text.trim().parse().unwrap()));
    child.wait().unwrap();
    assert!(life.is_lent());
    life.release(held).unwrap();
    assert_ne!(segment.participant().unwrap(), before, "it enrolled under a new name");
    left_behind
}

fn in_use(set: &LimitSet) -> u64 {
    set.stats().unwrap().limit("connections").unwrap().in_use
}

/// Whether an error says that what a handle held was returned.
fn says_returned(error: impl std::fmt::Display) {
    let text = error.to_string();
    assert!(text.contains("returned when"), "{text}");
}

fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// Polls until it is there: as soon as the helper thread has heard the doorbell.
fn wait_for<F: Future + Unpin>(mut future: F) -> F::Output {
    loop {
        if let Poll::Ready(answer) = poll(&mut future) {
            return answer;
        }
        std::thread::yield_now();
    }
}

fn acquisition() {
    let (_name, set, other) = two(2);
    let [dropped, held] = [(); 2].map(|()| set.acquire(()).unwrap());
    let _left_behind = take_back(held);
    assert_eq!(in_use(&set), 0, "both were returned");
    let _now = [(); 2].map(|()| set.try_acquire(()).unwrap());
    drop(dropped);
    assert_eq!(in_use(&set), 2, "an acquisition of the time before gave a permit of the time after back");
    assert!(other.try_acquire(()).is_err(), "a third of two permits");
}

fn reports() {
    let name = TempName::new();
    let set = LimitSet::builder()
        .limit(RateLimit::new("tokens", 100, Duration::from_secs(100_000)).report(Report::Optional))
        .limit(ResourceLimit::new("connections", 8))
        .segment(options())
        .create(&name)
        .unwrap();
    let ask = [("tokens", 10), ("connections", 1)];
    let [mut used, released, cancelled, paused, held] = [(); 5].map(|()| set.acquire(ask).unwrap());
    let _left_behind = take_back(held);
    let now = set.try_acquire([("tokens", 10), ("connections", 5)]).unwrap();
    let consumed = || set.stats().unwrap().limit("tokens").unwrap().consumed;
    let before = consumed();
    says_returned(used.update("tokens", 1).unwrap_err());
    says_returned(used.settle("tokens", 20).unwrap_err());
    says_returned(used.adjust("tokens", -5).unwrap_err());
    says_returned(used.update("connections", 0).unwrap_err());
    says_returned(used.acquire_more([("connections", 1)]).unwrap_err());
    says_returned(released.release().unwrap_err());
    says_returned(cancelled.cancel().unwrap_err());
    says_returned(paused.rate_limited(None).unwrap_err());
    drop(used);
    assert_eq!((consumed(), in_use(&set)), (before, 5), "none of it changed a word");
    // Nobody pauses for an acquisition that was returned.
    set.try_acquire([("tokens", 1), ("connections", 3)]).unwrap().release().unwrap();
    now.release().unwrap();
    assert_eq!(in_use(&set), 0);
}

fn future() {
    let (_name, set, other) = two(1);
    let held = set.acquire(()).unwrap();
    let Started::Waiting(old) = set.start_acquire((), None).unwrap() else { panic!("there is one") };
    let _left_behind = take_back(held);
    let now = set.try_acquire(()).unwrap();
    // In the entry that the old one had.
    let Started::Waiting(mut victim) = other.start_acquire((), None).unwrap() else { panic!("there is one") };
    assert!(poll(&mut victim).is_pending());
    drop(old);
    assert_eq!(set.stats().unwrap().waiters, 1, "a future of the time before left another's place");
    now.release().unwrap();
    assert_eq!(in_use(&set), 1);
    wait_for(victim).unwrap().release().unwrap();
}

/// Counts how often it is woken.
#[derive(Default)]
struct Wakes(AtomicU64);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}

fn polled() {
    let (_name, set, other) = two(1);
    let held = set.acquire(()).unwrap();
    let mut old = pin!(set.acquire_async(()));
    let wakes = Arc::new(Wakes::default());
    let waker = Waker::from(Arc::clone(&wakes));
    assert!(old.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    let _left_behind = take_back(held);
    // Nobody else would wake it, and its entry is gone.
    while wakes.0.load(Relaxed) == 0 {
        std::thread::yield_now();
    }
    let now = set.try_acquire(()).unwrap();
    let Started::Waiting(mut victim) = other.start_acquire((), None).unwrap() else { panic!("there is one") };
    assert!(poll(&mut victim).is_pending());
    // Behind the other one, in an entry of its own.
    assert!(old.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    assert_eq!(set.stats().unwrap().waiters, 2);
    now.release().unwrap();
    wait_for(victim).unwrap().release().unwrap();
    wait_for(old).unwrap().release().unwrap();
    assert_eq!((in_use(&set), set.stats().unwrap().waiters), (0, 0));
}

fn charge() {
    let name = TempName::new();
    let set = LimitSet::builder()
        .limit(RateLimit::new("tokens", 10, Duration::from_secs(100_000)).report(Report::Optional))
        .limit(ResourceLimit::new("connections", 1))
        .segment(options())
        .create(&name)
        .unwrap();
    let other = LimitSet::builder().segment(options()).attach(&name).unwrap();
    let held = set.acquire([("tokens", 10)]).unwrap();
    let mut old = Box::pin(set.check_and_wait_async([("tokens", 5)], None));
    assert!(poll(&mut old).is_pending());
    let _left_behind = take_back(held);
    let mut victim = Box::pin(other.check_and_wait_async([("tokens", 5)], None));
    assert!(poll(&mut victim).is_pending());
    drop(old);
    assert_eq!(set.stats().unwrap().waiters, 1, "a charge of the time before left another's place");
    // Everything flows back at once.
    set.reset().unwrap();
    wait_for(victim).unwrap();
    assert_eq!(set.stats().unwrap().waiters, 0);
}

fn thread() {
    let (_name, set, other) = two(1);
    let held = set.acquire(()).unwrap();
    let waits = || {
        let set = set.clone();
        std::thread::spawn(move || set.acquire(()).unwrap().release().unwrap())
    };
    let waits = waits();
    while set.stats().unwrap().waiters == 0 {
        std::thread::yield_now();
    }
    let _left_behind = take_back(held);
    waits.join().unwrap();
    other.try_acquire(()).unwrap().release().unwrap();
    assert_eq!((in_use(&set), set.stats().unwrap().waiters), (0, 0));
}

fn permit() {
    let (name, set, _) = two(1);
    let semaphore = set.segment().semaphore("db").unwrap();
    let [dropped, released] = [(); 2].map(|()| semaphore.acquire(1).unwrap());
    let _left_behind = take_back(set.acquire(()).unwrap());
    semaphore.reap().unwrap();
    let _now = [(); 2].map(|()| semaphore.try_acquire(1).unwrap());
    drop(dropped);
    let other = Segment::attach(&name).unwrap().semaphore("db").unwrap();
    assert_eq!(other.available().unwrap(), 0, "a permit of the time before gave one of the time after back");
    says_returned(released.release().unwrap_err());
    assert!(other.try_acquire(1).is_err(), "a third of two permits");
}

fn guard() {
    let (name, set, _) = two(1);
    let mutex = set.segment().mutex("pair").unwrap();
    let LockedMutex::Clean(mut old) = mutex.lock().unwrap() else { panic!("nobody died") };
    let _left_behind = take_back(set.acquire(()).unwrap());
    let other = Segment::attach(&name).unwrap().mutex("pair").unwrap();
    // Whoever held it is dead to everybody else.
    let LockedMutex::OwnerDied(mut now) = other.lock().unwrap() else { panic!("its holder is gone") };
    says_returned(old.update(|words| words.set(0, 7)).unwrap_err());
    now.update(|words| words.set(1, 8)).unwrap();
    drop(old);
    assert!(mutex.try_lock().is_err(), "a guard of the time before unlocked for another");
    now.unlock().unwrap();
    assert_eq!(mutex.snapshot().unwrap(), [0, 8]);
    let LockStatistics { deposed, .. } = mutex.statistics().unwrap();
    assert_eq!(deposed, 0);
}

fn item() {
    let (_name, set, other) = two(1);
    let (mine, others) = (set.queue().unwrap(), other.queue().unwrap());
    mine.push(1, b"work").unwrap();
    let mut old = mine.take().unwrap().unwrap();
    let _left_behind = take_back(set.acquire(()).unwrap());
    let mut now = others.take().unwrap().unwrap();
    assert_eq!((now.id(), now.attempts()), (1, 2));
    now.done_with(b"new").unwrap();
    let not_held = old.done_with(b"old").unwrap_err();
    assert!(matches!(not_held, QueueError::NotHeld), "{not_held}");
    assert!(matches!(old.retry(Duration::ZERO), Err(QueueError::NotHeld)));
    let held = set.acquire(()).unwrap();
    assert!(matches!(old.rate_limited(held, None), Err(QueueError::NotHeld)));
    set.resume().unwrap();
    drop(old);
    let mut found = others.collect().unwrap().unwrap();
    assert_eq!(found.result(), b"new", "an item of the time before wrote another's result");
    found.forget().unwrap();
}

fn result() {
    let (_name, set, other) = two(1);
    let (mine, others) = (set.queue().unwrap(), other.queue().unwrap());
    mine.push(1, b"work").unwrap();
    mine.take().unwrap().unwrap().done_with(b"done").unwrap();
    let mut old = mine.collect().unwrap().unwrap();
    let _left_behind = take_back(set.acquire(()).unwrap());
    let mut now = others.collect().unwrap().unwrap();
    assert!(matches!(old.forget(), Err(QueueError::NotHeld)));
    assert!(matches!(old.put_back(), Err(QueueError::NotHeld)));
    drop(old);
    assert!(matches!(mine.try_collect(), Err(QueueError::Empty)), "it is with the other one");
    now.forget().unwrap();
}

/// Lends the slot lock to `true`.
fn lend(set: &LimitSet) -> std::io::Result<(std::process::Child, limitset::LentLife)> {
    let mut command = Command::new("true");
    command.stdin(Stdio::null()).stdout(Stdio::null());
    set.segment().spawn_lending_life(command, &[])
}

fn dropped() {
    let (_name, set, _) = two(1);
    for _ in 0..3 {
        let (mut child, life) = lend(&set).unwrap();
        assert!(lend(&set).is_err(), "it is lent already");
        child.wait().unwrap();
        drop(life);
    }
    // Nothing of it was lost: it can still be taken back.
    let held = set.acquire(()).unwrap();
    let (mut child, life) = lend(&set).unwrap();
    child.wait().unwrap();
    life.release(held).unwrap();
    assert_eq!(in_use(&set), 0);
}

fn dropped_while_lent() {
    let (_name, set, other) = two(1);
    let held = set.acquire(()).unwrap();
    let me = set.segment().participant().unwrap();
    let mut command = Command::new("sleep");
    command.arg("1000").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let (mut child, life) = set.segment().spawn_lending_life(command, &[]).unwrap();
    let is_running = LeftBehind(Pid::from_raw(i32::try_from(child.id()).unwrap()));
    drop(life);
    assert_eq!(set.segment().participant().unwrap(), me, "it is who it was");
    assert_eq!(in_use(&set), 1);
    assert!(other.try_acquire(()).is_err());
    let _left_behind = take_back(held);
    assert_eq!(in_use(&set), 0, "taken from both commands");
    child.kill().unwrap();
    child.wait().unwrap();
    std::mem::forget(is_running);
}
