//! How far apart are the two processors now? A cache line is sent back and forth between them.
//!
//! Virtual processors move: two of them were measured 31 and 200 ns apart within minutes. The cost of work on
//! shared memory changes accordingly, so each batch of several processes is bracketed by this probe.

use std::hint::spin_loop;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::{Duration, Instant};

use crate::batches::{Figures, nanos};
use crate::sys::{self, Shared};

const TRIPS: u32 = 200;
const CHUNKS: u32 = 16;

#[repr(C, align(128))]
struct Apart(AtomicU32);

#[repr(C)]
struct Lines {
    /// Counts probes; the partner sleeps on it. `u32::MAX` tells the partner to exit.
    go: Apart,
    ready: Apart,
    ping: Apart,
    pong: Apart,
}

/// The probe: a partner process, asleep between probes.
pub struct Probe {
    lines: Shared<Lines>,
    here: usize,
    partner: i32,
    /// All readings so far.
    pub readings: Vec<f64>,
}

impl Probe {
    /// Starts the partner. Returns None if there is only one processor.
    pub fn new() -> Option<Probe> {
        let &[here, there, ..] = sys::cpus().as_slice() else { return None };
        let lines: Shared<Lines> = Shared::zeroed();
        // SAFETY: the child only runs `serve`, and never returns.
        match unsafe { libc::fork() } {
            -1 => None,
            0 => {
                // SAFETY: no pointers; dies with its parent.
                unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
                sys::lock_mapping(there);
                serve(&lines);
                // SAFETY: ends the process.
                unsafe { libc::_exit(0) }
            }
            partner => Some(Probe { lines, here, partner, readings: Vec::new() }),
        }
    }

    /// Returns nanoseconds one way; NaN if the partner did not run in time.
    pub fn read(&mut self) -> f64 {
        let free = sys::affinity(0);
        sys::lock_mapping(self.here);
        let reading = self.exchange().unwrap_or(f64::NAN);
        if let Ok(free) = free {
            sys::set_affinity(0, &free);
        }
        self.readings.push(reading);
        reading
    }

    fn exchange(&self) -> Option<f64> {
        let lines = &*self.lines;
        let number = lines.go.0.fetch_add(1, Release) + 1;
        sys::futex_wake(&lines.go.0, 1);
        wait_for(&lines.ready.0, number)?;
        let mut ping = lines.ping.0.load(Relaxed);
        let mut chunks = Vec::new();
        for _ in 0..CHUNKS {
            let start = Instant::now();
            for _ in 0..TRIPS {
                ping = ping.wrapping_add(1);
                lines.ping.0.store(ping, Release);
                wait_for(&lines.pong.0, ping)?;
            }
            chunks.push(nanos(start.elapsed()) / f64::from(2 * TRIPS));
        }
        // Other processes that use the processors make some chunks longer, never shorter.
        Figures::of(chunks).map(|it| it.low)
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        // SAFETY: our child, not reaped yet.
        unsafe { libc::kill(self.partner, libc::SIGKILL) };
        // SAFETY: our child.
        unsafe { libc::waitpid(self.partner, std::ptr::null_mut(), 0) };
    }
}

fn serve(lines: &Lines) {
    let mut seen = 0;
    loop {
        while lines.go.0.load(Acquire) == seen {
            sys::futex_wait(&lines.go.0, seen, Duration::from_secs(600));
        }
        seen = lines.go.0.load(Acquire);
        let mut ping = lines.ping.0.load(Relaxed);
        lines.ready.0.store(seen, Release);
        for _ in 0..CHUNKS * TRIPS {
            ping = ping.wrapping_add(1);
            if wait_for(&lines.ping.0, ping).is_none() {
                break;
            }
            lines.pong.0.store(ping, Release);
        }
    }
}

/// Spins until the word has the value. Returns None after a tenth of a second.
fn wait_for(word: &AtomicU32, value: u32) -> Option<()> {
    let mut spins = 0_u32;
    let mut since = None;
    while word.load(Acquire) != value {
        spins += 1;
        if spins.is_multiple_of(4096) && since.get_or_insert_with(Instant::now).elapsed().as_millis() > 100 {
            return None;
        }
        spin_loop();
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_processors_are_some_nanoseconds_apart() {
        let Some(mut probe) = Probe::new() else { return };
        let best = (0..20).map(|_| probe.read()).fold(f64::INFINITY, f64::min);
        assert!(best > 1.0 && best < 10_000.0, "{best}");
    }
}
