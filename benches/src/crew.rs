//! Forked processes that work at the same time, in batches, and are always reaped.
//!
//! They are forked once, sleep between batches, and run until they are told to stop: the length of a batch
//! does not depend on the scheduler. The time of a batch is that from the first start to the last end.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::{Duration, Instant};

use crate::batches::Measure;
use crate::sys::{self, Shared};

/// The maximum number of processes of a crew.
pub const MOST: usize = 8;

/// The timeout for a batch: long enough to tell a hang from slowness.
const PATIENCE: Duration = Duration::from_secs(20);

#[repr(C, align(128))]
struct Apart<T>(T);

#[repr(C, align(128))]
struct Lane {
    operations: AtomicU64,
    begun: AtomicU64,
    ended: AtomicU64,
}

#[repr(C)]
struct Control {
    /// Counts batches; workers sleep on it.
    batch: Apart<AtomicU32>,
    stop: Apart<AtomicU32>,
    quit: Apart<AtomicU32>,
    /// The number of workers that have finished the batch; the parent sleeps on it.
    done: Apart<AtomicU32>,
    lanes: [Lane; MOST],
}

/// Tells a worker when to stop.
pub struct Stop<'a>(&'a AtomicU32);

impl Stop<'_> {
    pub fn is_set(&self) -> bool {
        self.0.load(Relaxed) != 0
    }
}

/// The work of a worker in a batch: runs until stopped, and returns the number of operations.
pub type Job = Box<dyn FnMut(&Stop<'_>) -> u64>;

/// Repeats an operation until stopped; checks for the stop after every `every` operations.
pub fn repeat(every: u64, mut op: impl FnMut() + 'static) -> Job {
    Box::new(move |stop| {
        let mut count = 0;
        while !stop.is_set() {
            for _ in 0..every {
                op();
            }
            count += every;
        }
        count
    })
}

pub struct Crew {
    control: Shared<Control>,
    pids: Vec<i32>,
}

impl Crew {
    /// Forks a worker for each processor in the list (which may repeat), which prepares its job and waits.
    pub fn start(cpus: &[usize], prepare: impl Fn(usize) -> Job) -> Result<Crew, String> {
        assert!(cpus.len() <= MOST, "a crew has at most {MOST} members");
        let mut crew = Crew { control: Shared::zeroed(), pids: Vec::new() };
        for (index, cpu) in cpus.iter().enumerate() {
            // SAFETY: the child only runs `member`, and never returns.
            match unsafe { libc::fork() } {
                -1 => return Err(format!("cannot fork: {}", std::io::Error::last_os_error())),
                0 => member(&crew.control, index, *cpu, &prepare),
                pid => crew.pids.push(pid),
            }
        }
        crew.wait_for_all()?;
        Ok(crew)
    }

    /// Runs a batch of this length. Returns nanoseconds per operation, over all workers.
    pub fn batch(&self, length: Duration) -> Result<f64, String> {
        let control = &*self.control;
        control.stop.0.store(0, Relaxed);
        control.done.0.store(0, Relaxed);
        control.batch.0.fetch_add(1, Release);
        sys::futex_wake(&control.batch.0, i32::MAX);
        std::thread::sleep(length);
        control.stop.0.store(1, Relaxed);
        self.wait_for_all()?;
        let lanes = control.lanes.iter().take(self.pids.len());
        let operations: u64 = lanes.clone().map(|lane| lane.operations.load(Relaxed)).sum();
        let begun = lanes.clone().map(|lane| lane.begun.load(Relaxed)).min().unwrap_or(0);
        let ended = lanes.map(|lane| lane.ended.load(Relaxed)).max().unwrap_or(0);
        if operations == 0 {
            return Err("no operation was finished".to_owned());
        }
        Ok((ended - begun) as f64 / operations as f64)
    }

    fn wait_for_all(&self) -> Result<(), String> {
        let done = &self.control.done.0;
        let start = Instant::now();
        loop {
            let now = done.load(Acquire);
            if now as usize >= self.pids.len() {
                return Ok(());
            }
            sys::futex_wait(done, now, Duration::from_millis(50));
            if self.pids.iter().any(|pid| is_dead(*pid)) {
                return Err("a worker died: see its output above".to_owned());
            }
            if start.elapsed() > PATIENCE {
                return Err("a worker hangs".to_owned());
            }
        }
    }
}

/// Returns whether a child has ended, without reaping it.
fn is_dead(pid: i32) -> bool {
    // SAFETY: plain data.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: the kernel fills the info, which outlives the call.
    let found = unsafe { libc::waitid(libc::P_PID, pid as libc::id_t, &raw mut info, flags) };
    // SAFETY: filled, or zero.
    found == 0 && unsafe { info.si_pid() } == pid
}

impl Drop for Crew {
    fn drop(&mut self) {
        let control = &*self.control;
        control.quit.0.store(1, Relaxed);
        control.stop.0.store(1, Relaxed);
        control.batch.0.fetch_add(1, Release);
        sys::futex_wake(&control.batch.0, i32::MAX);
        let start = Instant::now();
        for pid in &self.pids {
            while !is_dead(*pid) && start.elapsed() < Duration::from_secs(2) {
                std::thread::sleep(Duration::from_micros(200));
            }
            // SAFETY: our child, not reaped yet, so the number is still its own.
            unsafe { libc::kill(*pid, libc::SIGKILL) };
            // SAFETY: our child.
            unsafe { libc::waitpid(*pid, std::ptr::null_mut(), 0) };
        }
    }
}

fn member(control: &Control, index: usize, cpu: usize, prepare: &impl Fn(usize) -> Job) -> ! {
    // SAFETY: no pointers; dies with its parent.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    sys::lock_mapping(cpu);
    let worked = catch_unwind(AssertUnwindSafe(|| work(control, index, prepare)));
    // The parent closes its own descriptors and mappings.
    // SAFETY: ends the process.
    unsafe { libc::_exit(if worked.is_ok() { 0 } else { 101 }) }
}

fn work(control: &Control, index: usize, prepare: &impl Fn(usize) -> Job) {
    let epoch = control.batch.0.load(Acquire);
    let mut job = prepare(index);
    let mut seen = epoch;
    loop {
        control.done.0.fetch_add(1, Release);
        sys::futex_wake(&control.done.0, 1);
        while control.batch.0.load(Acquire) == seen {
            sys::futex_wait(&control.batch.0, seen, Duration::from_secs(600));
        }
        seen = control.batch.0.load(Acquire);
        if control.quit.0.load(Relaxed) != 0 {
            return;
        }
        let lane = &control.lanes[index];
        lane.begun.store(monotonic(), Relaxed);
        let operations = job(&Stop(&control.stop.0));
        lane.ended.store(monotonic(), Relaxed);
        lane.operations.store(operations, Relaxed);
    }
}

/// Returns the monotonic time in nanoseconds, which all processes share.
fn monotonic() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: filled by the kernel, and outlives the call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Returns the measurement of a crew's row; `around` is called before (true) and after (false) each batch.
pub fn measure(crew: Result<Crew, String>, mut around: impl FnMut(bool) + 'static) -> Measure {
    Box::new(move |length| {
        let crew = crew.as_ref().map_err(Clone::clone)?;
        around(true);
        let result = crew.batch(length);
        around(false);
        result
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crew_works_in_batches_and_is_gone_when_dropped() {
        let cpus = sys::cpus();
        let crew = Crew::start(&[cpus[0], cpus[0]], |_| repeat(1, || _ = std::hint::black_box(1))).unwrap();
        let pids = crew.pids.clone();
        for _ in 0..2 {
            let ns = crew.batch(Duration::from_millis(2)).unwrap();
            assert!(ns > 0.0 && ns < 1e6, "{ns}");
        }
        drop(crew);
        // SAFETY: signal 0 only asks.
        assert!(pids.iter().all(|pid| unsafe { libc::kill(*pid, 0) } == -1));
    }

    #[test]
    fn a_worker_that_fails_is_an_error_and_no_hang() {
        let cpus = sys::cpus();
        // A panic could block on a lock that a thread of another test held at the fork.
        // SAFETY: ends the child.
        let crew = Crew::start(&cpus[..1], |_| unsafe { libc::_exit(3) });
        assert!(crew.err().unwrap().contains("died"));
    }
}
