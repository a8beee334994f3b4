//! The few system calls that the benches need: shared memory, futexes, processors.

use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};
use std::{io, mem, ops, ptr};

/// Zeroed memory that forked processes share.
pub struct Shared<T> {
    at: *mut T,
}

impl<T> Shared<T> {
    /// Maps zeroed memory. `T` must be valid when all of its bytes are 0: atomics, cells of C types.
    pub fn zeroed() -> Shared<T> {
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let at = unsafe { libc::mmap(ptr::null_mut(), mem::size_of::<T>(), protection, flags, -1, 0) };
        assert_ne!(at, libc::MAP_FAILED, "no shared memory: {}", io::Error::last_os_error());
        // Touch the pages before they are timed.
        // SAFETY: the mapping is as long as this.
        unsafe { ptr::write_bytes(at.cast::<T>(), 0, 1) };
        Shared { at: at.cast() }
    }

    pub fn as_ptr(&self) -> *mut T {
        self.at
    }
}

impl<T> ops::Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: mapped until dropped, and valid as `zeroed` demands.
        unsafe { &*self.at }
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        // SAFETY: mapped by `zeroed`, and no reference is left.
        unsafe { libc::munmap(self.at.cast(), mem::size_of::<T>()) };
    }
}

/// Sleeps while the word has this value, but not longer than the timeout; may wake spuriously.
pub fn futex_wait(word: &AtomicU32, value: u32, timeout: Duration) {
    let until = libc::timespec {
        tv_sec: timeout.as_secs() as libc::time_t,
        tv_nsec: libc::c_long::from(timeout.subsec_nanos()),
    };
    // SAFETY: the word and the timespec outlive the call.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, value, &raw const until) };
}

/// Wakes at most `most` sleepers.
pub fn futex_wake(word: &AtomicU32, most: i32) {
    // SAFETY: the word outlives the call.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, most) };
}

/// Returns the processors that a process (0: this thread) may run on.
pub fn affinity(pid: i32) -> io::Result<libc::cpu_set_t> {
    // SAFETY: a set of processors is an array of bits.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    // SAFETY: the set is as large as said.
    let done = unsafe { libc::sched_getaffinity(pid, mem::size_of_val(&set), &raw mut set) };
    if done == 0 { Ok(set) } else { Err(io::Error::last_os_error()) }
}

/// Restricts a process (0: this thread) to these processors.
pub fn set_affinity(pid: i32, set: &libc::cpu_set_t) {
    // If pinning fails, the process runs anywhere: slower, but correct.
    // SAFETY: the set is as large as said.
    unsafe { libc::sched_setaffinity(pid, mem::size_of_val(set), set) };
}

/// Returns a set of one processor.
pub fn only(cpu: usize) -> libc::cpu_set_t {
    // SAFETY: a set of processors is an array of bits.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    // SAFETY: the number came out of such a set.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    set
}

/// Pins this thread to one processor.
pub fn pin(cpu: usize) {
    set_affinity(0, &only(cpu));
}

/// Returns the processors that this process may use, at least one.
pub fn cpus() -> Vec<usize> {
    let Ok(set) = affinity(0) else { return vec![0] };
    let most = libc::CPU_SETSIZE as usize;
    // SAFETY: the numbers are within the set.
    (0..most).filter(|cpu| unsafe { libc::CPU_ISSET(*cpu, &set) }).collect()
}

/// Work outside of the limiter, for a given time, without touching memory.
#[derive(Clone, Copy)]
pub struct Think {
    spins: u64,
}

impl Think {
    pub fn none() -> Think {
        Think { spins: 0 }
    }

    /// Calibrates the number of loop iterations for this time.
    pub fn of(time: Duration) -> Think {
        let mut best = f64::INFINITY;
        for _ in 0..20 {
            let start = Instant::now();
            Think { spins: 10_000 }.think();
            best = best.min(start.elapsed().as_nanos() as f64 / 10_000.0);
        }
        Think { spins: (time.as_nanos() as f64 / best) as u64 }
    }

    pub fn think(self) {
        for turn in 0..self.spins {
            std::hint::black_box(turn);
        }
    }
}

/// A folder for sockets and lock files, removed at the end.
pub struct TempFolder(pub std::path::PathBuf);

impl TempFolder {
    pub fn new(what: &str) -> io::Result<TempFolder> {
        let path = std::env::temp_dir().join(unique(what));
        std::fs::create_dir(&path)?;
        Ok(TempFolder(path))
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        // A folder that stays behind does no harm.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Returns a unique name.
pub fn unique(what: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let nanos = std::time::UNIX_EPOCH.elapsed().map_or(0, |time| time.subsec_nanos());
    format!("bench-{what}-{}-{count}-{nanos:x}", std::process::id())
}
