//! Clocks, and the identities of a boot and of namespaces.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Reads CLOCK_MONOTONIC in nanoseconds.
pub(crate) fn monotonic() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// Reads CLOCK_MONOTONIC_COARSE in nanoseconds: the monotonic clock as of the last tick.
pub(crate) fn coarse() -> u64 {
    read(libc::CLOCK_MONOTONIC_COARSE)
}

/// Returns the smallest difference between two different readings of [`coarse`].
pub(crate) fn coarse_step() -> u64 {
    let mut step = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `step` is a live timespec that the call fills in; the clock exists on every Linux.
    unsafe { libc::clock_getres(libc::CLOCK_MONOTONIC_COARSE, &raw mut step) };
    step.tv_nsec.cast_unsigned().max(1)
}

fn read(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a live timespec that the call fills in; both clocks exist on every Linux.
    unsafe { libc::clock_gettime(clock, &raw mut now) };
    now.tv_sec.cast_unsigned().wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec.cast_unsigned())
}

/// Returns the instant `wait` from now; never, if that is more than five centuries away.
pub(crate) fn deadline(wait: Duration) -> u64 {
    monotonic().saturating_add(nanos(wait))
}

/// Returns a duration in nanoseconds, saturating.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Reads the wall clock, for display only; no decision depends on it.
pub(crate) fn unix_nanos() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, nanos)
}

/// The boot id as first read: /proc may be out of reach later, after a `chroot`.
static SEEN_BOOT_ID: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

/// Returns the identity of this boot of the kernel; zeros if /proc was never readable.
pub(crate) fn boot_id() -> [u64; 2] {
    let seen = SEEN_BOOT_ID.each_ref().map(|half| half.load(Relaxed));
    if seen != [0, 0] {
        return seen;
    }
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    let half = |range| digits.get(range).and_then(|hex| u64::from_str_radix(hex, 16).ok()).unwrap_or(0);
    let found = [half(0..16), half(16..32)];
    SEEN_BOOT_ID.iter().zip(found).for_each(|(seen, half)| seen.store(half, Relaxed));
    found
}

/// The time namespace as last read: /proc may be out of reach later, after a `chroot`.
static SEEN_TIME_NAMESPACE: AtomicU64 = AtomicU64::new(0);

/// Returns the identity of this process's time namespace, which may shift the clock; 0 if it was never
/// readable.
pub(crate) fn time_namespace() -> u64 {
    // No allocation: this runs in forked children too.
    if let Ok(found) = nix::sys::stat::stat("/proc/thread-self/ns/time") {
        SEEN_TIME_NAMESPACE.store(found.st_ino, Relaxed);
    }
    SEEN_TIME_NAMESPACE.load(Relaxed)
}

/// Returns the identity of this process's PID namespace; 0 if it is not readable.
pub(crate) fn pid_namespace() -> u64 {
    fs::metadata("/proc/thread-self/ns/pid").map_or(0, |it| it.ino())
}

/// Returns the name of this process, as `ps` shows it: the first 16 bytes, as two words.
pub(crate) fn command() -> [u64; 2] {
    let mut name = [0u8; 16];
    let text = fs::read("/proc/self/comm").unwrap_or_default();
    for (to, from) in name.iter_mut().zip(text.trim_ascii_end()) {
        *to = *from;
    }
    bytemuck::cast(name)
}

/// Returns sixteen random bytes.
pub(crate) fn random() -> [u8; 16] {
    let mut bytes = [0u8; 16];
    // SAFETY: the buffer is live and as long as stated; at most that many bytes are written to it.
    let filled = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    if filled != 16 {
        // The pool is not ready yet at boot: time and process id still tell two segments apart.
        bytes = bytemuck::cast([unix_nanos(), u64::from(std::process::id())]);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_tells_who_it_is() {
        assert_ne!(boot_id(), [0, 0]);
        assert_eq!(boot_id(), boot_id());
        assert_ne!(random(), random());
        assert!(monotonic() <= monotonic());
        assert!(deadline(Duration::MAX) == crate::protocol::NEVER);
    }
}
