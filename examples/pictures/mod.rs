//! A greedy client, and a picture of its admissions. Shared by the example `algorithms`, which writes the
//! pictures, and by `tests/pictures.rs`, which compares them.

mod svg;

use std::error::Error;
use std::ops::Range;
use std::time::Duration;

use limitset::{Algorithm, CallLimit, Clock, LimitSet};

/// The capacity per second.
pub(crate) const CAPACITY: u64 = 10;
pub(crate) const WINDOW: Duration = Duration::from_secs(1);
/// The time in which the client sends requests. It begins within a window, and returns from its pause shortly
/// before a window's edge.
pub(crate) const ASKS: Range<Duration> = Duration::from_millis(250)..Duration::from_secs(4);
pub(crate) const PAUSE: Range<Duration> = Duration::from_millis(1_500)..Duration::from_millis(2_800);

/// The subject of one picture.
pub(crate) struct Scene {
    pub(crate) algorithm: Algorithm,
    /// The burst, if it differs from the capacity.
    pub(crate) burst: Option<u64>,
}

impl Scene {
    /// Returns one scene per algorithm. The bursts are chosen to show the purpose of each: with equal bursts
    /// three of them are alike.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        Algorithm::ALL.iter().map(|algorithm| {
            let burst = match algorithm {
                Algorithm::LeakyBucket => Some(1),
                Algorithm::Gcra => Some(5),
                _ => None,
            };
            Self { algorithm: *algorithm, burst }
        })
    }

    pub(crate) fn file_name(&self) -> String {
        format!("ADMISSIONS-{}.svg", self.algorithm)
    }

    /// Draws the client's admissions.
    pub(crate) fn picture(&self) -> Result<String, Box<dyn Error>> {
        Ok(svg::draw(self, &self.admissions()?))
    }

    /// Returns the times of the client's admissions. It requests one unit again and again; after a denial it
    /// retries exactly at the time that the denial gives.
    pub(crate) fn admissions(&self) -> Result<Vec<Duration>, Box<dyn Error>> {
        let mut limit = CallLimit::new(CAPACITY, WINDOW).algorithm(self.algorithm);
        if let Some(burst) = self.burst {
            limit = limit.burst(burst);
        }
        let limits = LimitSet::builder().limit(limit).clock(Clock::Manual).in_memory()?;
        let mut now = ASKS.start;
        limits.advance(now)?;
        let mut admissions = Vec::new();
        while now < ASKS.end {
            match limits.try_acquire(()) {
                Ok(held) => {
                    held.release()?;
                    admissions.push(now);
                }
                Err(refusal) => {
                    let wait = refusal.retry_after().ok_or(refusal)?;
                    let then = if PAUSE.contains(&(now + wait)) { PAUSE.end } else { now + wait };
                    limits.advance(then - now)?;
                    now = then;
                }
            }
        }
        Ok(admissions)
    }
}

/// Returns the largest number of admissions within one window, wherever it begins. An admission exactly one
/// window later does not count.
pub(crate) fn most_in_a_window(admissions: &[Duration]) -> usize {
    let within =
        |from: &Duration| admissions.iter().filter(|at| (*from..*from + WINDOW).contains(*at)).count();
    admissions.iter().map(within).max().unwrap_or(0)
}
