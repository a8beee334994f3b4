//! Runs a model: all interleavings, and again with a kill at each operation of each participant.
//!
//! The number of operations of a life is not known beforehand: a sweep raises the operation to die at until
//! there is no interleaving in which that participant gets so far.

use std::fmt::{self, Display};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Instant;

use crate::mutant::Mutation;

/// Roles a model can have, counted from 0.
pub const ROLES: usize = 6;

/// Longer than any run of a model that ends; one that exceeds it does not end.
const MOST_BRANCHES: usize = 20_000;

/// What all interleavings of a model run. Without state: it is run many times.
pub trait Body: Fn(Scenario) + Copy + Send + Sync + 'static {}
impl<F: Fn(Scenario) + Copy + Send + Sync + 'static> Body for F {}

/// One way to run a model.
#[derive(Clone)]
pub struct Scenario {
    /// The defect to run it with.
    pub mutation: Mutation,
    kills: Kills,
    seen: Arc<Seen>,
}

/// The operation, from 0, that each role does not live to do.
type Kills = [Option<u32>; ROLES];

#[derive(Default)]
struct Seen {
    interleavings: AtomicU64,
    kills: [AtomicBool; ROLES],
}

impl Scenario {
    /// The operation, from 0, that a role does not live to do.
    pub fn killed_at(&self, role: u32) -> Option<u32> {
        self.kills[role as usize]
    }

    /// Notes that it was killed there.
    pub fn note_kill(&self, role: u32) {
        self.seen.kills[role as usize].store(true, Relaxed);
    }
}

/// A model: what it is called, how big it is, what it bears on.
#[derive(Clone, Copy)]
pub struct Model {
    name: &'static str,
    participants: u32,
    promises: &'static str,
    /// Most preemptions per interleaving; none: all interleavings.
    bound: Option<usize>,
    mutation: Mutation,
}

impl Model {
    /// A model whose interleavings are all explored.
    pub fn exhaustive(
        name: &'static str,
        participants: u32,
        promises: &'static str,
        mutation: Mutation,
    ) -> Self {
        Self { name, participants, promises, bound: None, mutation }
    }

    /// The same model, without the interleavings that preempt somebody more than `bound` times. At full depth
    /// it is once more.
    pub fn bounded(self, bound: usize) -> Self {
        let full_depth = std::env::var_os("LIMITSET_FULL_DEPTH").is_some();
        Self { bound: Some(bound + usize::from(full_depth)), ..self }
    }

    /// The same with no more at full depth, where once more takes too long.
    pub fn bounded_at_any_depth(self, bound: usize) -> Self {
        Self { bound: Some(bound), ..self }
    }

    /// Runs it without a kill.
    pub fn run(&self, body: impl Body) {
        let mut tally = Tally::new();
        self.check(&mut tally, [None; ROLES], body);
        self.report(&tally);
    }

    /// Runs it with a kill at every operation of each victim in turn.
    pub fn sweep(&self, victims: &[u32], body: impl Body) {
        let mut tally = Tally::new();
        for &victim in victims {
            self.sweep_one(&mut tally, [None; ROLES], victim, body);
        }
        self.report(&tally);
    }

    /// Runs it with a kill at every operation of `first`, and for each of those with a kill at every
    /// operation of each of `seconds` in turn.
    pub fn sweep_pairs(&self, first: u32, seconds: &[u32], body: impl Body) {
        let mut tally = Tally::new();
        for at in 0.. {
            let mut kills = [None; ROLES];
            kills[first as usize] = Some(at);
            let mut is_killed = false;
            for &second in seconds {
                is_killed |= self.sweep_one(&mut tally, kills, second, body)[first as usize];
            }
            if !is_killed {
                break;
            }
        }
        self.report(&tally);
    }

    /// Adds a kill at every operation of `victim` to `kills`; tells which roles were killed at least once.
    fn sweep_one(&self, tally: &mut Tally, mut kills: Kills, victim: u32, body: impl Body) -> [bool; ROLES] {
        let mut killed = [false; ROLES];
        for at in 0.. {
            kills[victim as usize] = Some(at);
            let now = self.check(tally, kills, body);
            killed = std::array::from_fn(|role| killed[role] || now[role]);
            if !now[victim as usize] {
                break;
            }
            tally.crash_points += 1;
        }
        killed
    }

    /// Runs the interleavings of one scenario; tells which roles were killed in at least one of them.
    fn check(&self, tally: &mut Tally, kills: Kills, body: impl Body) -> [bool; ROLES] {
        let seen = Arc::new(Seen::default());
        let scenario = Scenario { mutation: self.mutation, kills, seen: Arc::clone(&seen) };
        let mut builder = loom::model::Builder::new();
        builder.max_branches = MOST_BRANCHES;
        builder.preemption_bound = self.bound;
        builder.check(move || {
            scenario.seen.interleavings.fetch_add(1, Relaxed);
            body(scenario.clone());
        });
        tally.interleavings += seen.interleavings.load(Relaxed);
        std::array::from_fn(|role| seen.kills[role].load(Relaxed))
    }

    fn report(&self, tally: &Tally) {
        let Self { name, participants, promises, .. } = self;
        let extent = match self.bound {
            None => "all".to_owned(),
            Some(bound) => format!("at most {bound} preemptions"),
        };
        let interleavings = Grouped(tally.interleavings);
        let crash_points = Grouped(tally.crash_points);
        let seconds = tally.since.elapsed().as_secs_f64();
        let found = format!(
            "{participants} participants, {interleavings} interleavings ({extent}), \
             {crash_points} crash points"
        );
        println!("model {name}: {found}, {seconds:.1} s");
        println!("PROOF {promises} | model {name} | {found}");
    }
}

struct Tally {
    interleavings: u64,
    crash_points: u64,
    since: Instant,
}

impl Tally {
    fn new() -> Self {
        Self { interleavings: 0, crash_points: 0, since: Instant::now() }
    }
}

/// A number with its thousands apart.
struct Grouped(u64);

impl Display for Grouped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.0.to_string();
        for (place, digit) in digits.chars().enumerate() {
            if place > 0 && (digits.len() - place).is_multiple_of(3) {
                write!(f, ",")?;
            }
            write!(f, "{digit}")?;
        }
        Ok(())
    }
}
