//! A greedy client, and a picture of what it was admitted. Shared by the example `algorithms`, which writes the
//! pictures, and by `tests/pictures.rs`, which compares them.

mod svg;

use std::error::Error;
use std::ops::Range;
use std::time::Duration;

use limitset::{Algorithm, CallLimit, Clock, LimitSet};

/// Per second.
pub(crate) const CAPACITY: u64 = 10;
pub(crate) const WINDOW: Duration = Duration::from_secs(1);
/// When the client asks. It begins within a window, and after its pause it comes back shortly before an edge.
pub(crate) const ASKS: Range<Duration> = Duration::from_millis(250)..Duration::from_secs(4);
pub(crate) const PAUSE: Range<Duration> = Duration::from_millis(1_500)..Duration::from_millis(2_800);

/// What is in one picture.
pub(crate) struct Scene {
    pub(crate) algorithm: Algorithm,
    /// Most at once, where it is not the capacity.
    pub(crate) burst: Option<u64>,
}

impl Scene {
    /// One per algorithm. Bursts are chosen to show what each is for: with the same burst three of them are alike.
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

    /// Draws what the client was admitted.
    pub(crate) fn picture(&self) -> Result<String, Box<dyn Error>> {
        Ok(svg::draw(self, &self.admissions()?))
    }

    /// When the client was admitted: it asks for one unit again and again, and if it is refused, exactly when the
    /// refusal says.
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

/// The largest number of admissions within one window, wherever it begins; without those exactly a window later.
pub(crate) fn most_in_a_window(admissions: &[Duration]) -> usize {
    let within =
        |from: &Duration| admissions.iter().filter(|at| (*from..*from + WINDOW).contains(*at)).count();
    admissions.iter().map(within).max().unwrap_or(0)
}
