//! The method of measurement: interleaved batches, and statistics over them.
//!
//! Every row of a bench gets one batch in each round, so that a disturbance of the machine affects all rows.
//! The order of the rows rotates, and is reversed in every other round. The result is a ratio: the median
//! over the rounds of the ratio within each round. Absolute times are context.
//!
//! If processes share memory, each batch is bracketed by a probe of the distance between the processors at
//! that time. A round counts for a ratio only if both batches had the same distance; near and far are
//! reported separately.

use std::time::{Duration, Instant};

/// Processors closer than this (one way, nanoseconds) are near.
pub const NEAR: f64 = 80.0;

/// The number of timed parts of a batch of one process. Their median counts: a time slice of another process
/// is longer than a part.
const CHUNKS: u64 = 9;

/// The amount of measuring.
#[derive(Clone, Copy)]
pub struct Plan {
    pub rounds: usize,
    /// The duration of a batch of one process.
    pub batch: Duration,
    /// The duration of a batch of many processes: several time slices of the scheduler.
    pub crew_batch: Duration,
}

impl Plan {
    pub const FULL: Plan =
        Plan { rounds: 30, batch: Duration::from_millis(10), crew_batch: Duration::from_millis(60) };
    pub const QUICK: Plan =
        Plan { rounds: 20, batch: Duration::from_millis(3), crew_batch: Duration::from_millis(20) };
}

/// The owner of a row, which decides the colour of its bar.
#[derive(Clone, Copy, PartialEq)]
pub enum Whose {
    Ours,
    Theirs,
}

/// Runs a batch of about this length. Returns nanoseconds per operation.
pub type Measure = Box<dyn FnMut(Duration) -> Result<f64, String>>;

/// One line of a table, before it is measured.
pub struct Row {
    pub key: String,
    pub whose: Whose,
    pub name: String,
    pub note: String,
    pub crew: bool,
    pub measure: Measure,
}

impl Row {
    /// Returns a row for work of one process, timed over as many repetitions as fill a batch.
    pub fn of(
        key: impl Into<String>,
        whose: Whose,
        name: impl Into<String>,
        op: impl FnMut() + 'static,
    ) -> Row {
        Row {
            key: key.into(),
            whose,
            name: name.into(),
            note: String::new(),
            crew: false,
            measure: calibrated(op),
        }
    }

    pub fn ours(key: impl Into<String>, name: impl Into<String>, op: impl FnMut() + 'static) -> Row {
        Row::of(key, Whose::Ours, name, op)
    }

    pub fn rival(key: impl Into<String>, name: impl Into<String>, op: impl FnMut() + 'static) -> Row {
        Row::of(key, Whose::Theirs, name, op)
    }

    /// Returns a row for work that measures its own time.
    pub fn timed(key: impl Into<String>, whose: Whose, name: impl Into<String>, measure: Measure) -> Row {
        Row { key: key.into(), whose, name: name.into(), note: String::new(), crew: true, measure }
    }

    /// Returns a row that cannot run here, with the reason.
    pub fn not_run(key: impl Into<String>, whose: Whose, name: impl Into<String>, why: &str) -> Row {
        let why = why.to_owned();
        Row::timed(key, whose, name, Box::new(move |_| Err(why.clone())))
    }

    pub fn note(mut self, note: impl Into<String>) -> Row {
        self.note = note.into();
        self
    }
}

fn calibrated(mut op: impl FnMut() + 'static) -> Measure {
    let mut count = 0_u64;
    Box::new(move |batch| {
        if count == 0 {
            count = fitting(&mut op, batch);
        }
        // The rows before this one have replaced the content of the caches.
        for _ in 0..count / 16 {
            op();
        }
        let part = (count / CHUNKS).max(1);
        let chunks = (0..CHUNKS).map(|_| {
            let start = Instant::now();
            for _ in 0..part {
                op();
            }
            nanos(start.elapsed()) / part as f64
        });
        // Other processes that use the processor make some chunks longer.
        let chunks = Figures::of(chunks.collect());
        chunks.map(|it| it.median).ok_or_else(|| "nothing was timed".to_owned())
    })
}

/// Returns how often `op` fits into a batch: the best of three trials, because a disturbed one would make
/// batches too short.
fn fitting(op: &mut impl FnMut(), batch: Duration) -> u64 {
    let mut count = 1_u64;
    loop {
        let start = Instant::now();
        for _ in 0..count {
            op();
        }
        if start.elapsed() * 8 > batch {
            break;
        }
        count *= 2;
    }
    let mut best = f64::INFINITY;
    for _ in 0..3 {
        let start = Instant::now();
        for _ in 0..count {
            op();
        }
        best = best.min(nanos(start.elapsed()) / count as f64);
    }
    ((nanos(batch) / best) as u64).max(1)
}

pub fn nanos(time: Duration) -> f64 {
    time.as_nanos() as f64
}

/// The distance between the processors during a batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distance {
    /// One process: the distance does not matter.
    NoMatter,
    Near,
    Far,
    /// The distance changed during the batch, or could not be probed: the batch does not count.
    Unknown,
}

impl Distance {
    fn between(before: f64, after: f64) -> Distance {
        if !before.is_finite() || !after.is_finite() {
            return Distance::Unknown;
        }
        match (before < NEAR, after < NEAR) {
            (true, true) => Distance::Near,
            (false, false) => Distance::Far,
            _ => Distance::Unknown,
        }
    }
}

/// One batch.
#[derive(Clone, Copy)]
pub struct Sample {
    pub ns: f64,
    pub distance: Distance,
}

/// A row with its batches, one for each round.
pub struct Measured {
    pub key: String,
    pub whose: Whose,
    pub name: String,
    pub note: String,
    pub samples: Vec<Sample>,
    /// Why there are no samples.
    pub not_run: Option<String>,
}

/// Median and spread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    pub median: f64,
    pub low: f64,
    pub high: f64,
    pub count: usize,
}

impl Figures {
    pub fn of(mut values: Vec<f64>) -> Option<Figures> {
        values.retain(|value| value.is_finite());
        if values.is_empty() {
            return None;
        }
        values.sort_by(f64::total_cmp);
        let at = |part: f64| {
            let place = part * (values.len() - 1) as f64;
            let (below, above) = (values[place.floor() as usize], values[place.ceil() as usize]);
            below + (above - below) * place.fract()
        };
        Some(Figures { median: at(0.5), low: at(0.1), high: at(0.9), count: values.len() })
    }
}

impl Measured {
    /// Returns nanoseconds per operation, over the batches at this distance.
    pub fn figures(&self, distance: Distance) -> Option<Figures> {
        let fits = self.samples.iter().filter(|sample| sample.distance == distance);
        Figures::of(fits.map(|sample| sample.ns).collect())
    }

    /// Returns this row's time as a multiple of the other's, round by round.
    pub fn ratio(&self, other: &Measured, distance: Distance) -> Option<Figures> {
        let rounds = self.samples.iter().zip(&other.samples);
        let alike = rounds.filter(|(a, b)| a.distance == distance && b.distance == distance);
        Figures::of(alike.map(|(a, b)| a.ns / b.ns).collect())
    }
}

/// Returns the current distance between the processors: nanoseconds one way, or NaN.
pub type Probe<'a> = &'a mut dyn FnMut() -> f64;

/// Measures the rows in interleaved rounds; with a probe, each batch between two of its readings.
pub fn run(rows: Vec<Row>, plan: Plan, mut probe: Option<Probe<'_>>) -> Vec<Measured> {
    let mut measures = Vec::new();
    let mut results = Vec::new();
    for row in rows {
        let Row { key, whose, name, note, crew, measure } = row;
        measures.push((measure, if crew { plan.crew_batch } else { plan.batch }));
        results.push(Measured { key, whose, name, note, samples: Vec::new(), not_run: None });
    }
    // Determine how many operations fit into a batch, and which rows cannot run.
    for ((measure, batch), result) in measures.iter_mut().zip(&mut results) {
        if let Err(why) = measure(*batch) {
            result.not_run = Some(why);
        }
    }
    for round in 0..plan.rounds {
        let mut before = probe.as_mut().map(|probe| probe());
        for index in order(round, results.len()) {
            let (measure, batch) = &mut measures[index];
            let result = &mut results[index];
            if result.not_run.is_some() {
                continue;
            }
            match measure(*batch) {
                Ok(ns) => {
                    let after = probe.as_mut().map(|probe| probe());
                    let distance = match (before, after) {
                        (Some(before), Some(after)) => Distance::between(before, after),
                        _ => Distance::NoMatter,
                    };
                    before = after;
                    result.samples.push(Sample { ns, distance });
                }
                Err(why) => {
                    result.samples.clear();
                    result.not_run = Some(why);
                }
            }
        }
    }
    results
}

/// Returns the order of the rows in a round.
fn order(round: usize, rows: usize) -> Vec<usize> {
    let forth = round.is_multiple_of(2);
    (0..rows).map(|index| (round + if forth { index } else { rows - index }) % rows).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_the_median_and_the_percentiles() {
        let figures = Figures::of((0..=10).map(f64::from).rev().collect()).unwrap();
        assert_eq!(figures, Figures { median: 5.0, low: 1.0, high: 9.0, count: 11 });
        assert_eq!(Figures::of(vec![f64::NAN]), None);
    }

    #[test]
    fn every_row_has_its_turn_in_every_round() {
        for round in 0..7 {
            let mut order = order(round, 5);
            order.sort_unstable();
            assert_eq!(order, [0, 1, 2, 3, 4]);
        }
        assert_ne!(order(0, 5)[0], order(1, 5)[0]);
    }

    #[test]
    fn a_ratio_is_taken_within_rounds_of_the_same_distance() {
        let row = |samples: &[(f64, Distance)]| Measured {
            key: String::new(),
            whose: Whose::Ours,
            name: String::new(),
            note: String::new(),
            samples: samples.iter().map(|&(ns, distance)| Sample { ns, distance }).collect(),
            not_run: None,
        };
        use Distance::{Far, Near, Unknown};
        let a = row(&[(10.0, Near), (90.0, Far), (1.0, Near), (5.0, Unknown)]);
        let b = row(&[(5.0, Near), (30.0, Far), (9.0, Far), (1.0, Unknown)]);
        assert_eq!(a.ratio(&b, Near).map(|it| (it.median, it.count)), Some((2.0, 1)));
        assert_eq!(a.ratio(&b, Far).map(|it| (it.median, it.count)), Some((3.0, 1)));
        assert_eq!(Distance::between(31.0, 200.0), Unknown);
    }

    #[test]
    fn a_row_that_cannot_run_says_why() {
        let plan =
            Plan { rounds: 2, batch: Duration::from_micros(50), crew_batch: Duration::from_micros(50) };
        let rows = vec![
            Row::ours("a", "a", || _ = std::hint::black_box(1)),
            Row::not_run("b", Whose::Theirs, "b", "absent"),
        ];
        let results = run(rows, plan, None);
        assert_eq!(results[0].samples.len(), 2);
        assert_eq!(results[1].not_run.as_deref(), Some("absent"));
    }
}
