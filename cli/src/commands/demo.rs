//! `limitset demo`: a tour. Four forked workers share three connections. One of them is killed while it holds
//! a connection, and the connection is returned. The set, the processes and the death are real. The set has
//! no name, so nothing is left behind however the tour ends.
//!
//! ```text
//! crew     the workers
//! stage    the output for the audience
//! ```

mod crew;
mod stage;

use std::time::{Duration, Instant};

use limitset::{CallLimit, ExitReason, Limit, LimitSet, PreforkError, ResourceLimit, Segment};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::Serialize;

use self::crew::{Crew, WORKERS};
use self::stage::Stage;
use crate::context::{Context, Outcome};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::grammar;

/// Show a short tour: four workers, one limit, one death
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Run without pauses for reading
    #[arg(long)]
    fast: bool,
}

const CONNECTIONS: u64 = 3;
/// Longer than any step takes on a machine that is not stuck.
const TOO_LONG: Duration = Duration::from_secs(60);

/// The events of the tour.
#[derive(Debug, Default, Serialize)]
struct Tour {
    limits: Vec<String>,
    workers: usize,
    /// The PID of the killed worker.
    killed_pid: i32,
    /// The number of connections that the killed worker held.
    killed_holding: u64,
    /// The time from the signal until the connections were returned.
    back_after_seconds: f64,
    reaped_permits: u64,
    replaced_by_pid: i32,
    granted: u64,
    most_held_at_once: u64,
    left_behind: u64,
}

pub(crate) fn run(args: &Args, context: &Context) -> Outcome {
    let limits: [Limit; 2] =
        [CallLimit::per_second(20).burst(5).into(), ResourceLimit::new("connections", CONNECTIONS).into()];
    let options = Segment::options().words("demo", crew::WORDS);
    let set = LimitSet::builder().limits(limits.clone()).segment(options).open_anonymous()?;
    let mut stage = Stage::new(*context, args.fast);
    let texts: Vec<_> = limits.iter().map(grammar::show_limit).collect();
    let mut tour = Tour { limits: texts.clone(), workers: WORKERS, ..Tour::default() };

    stage.title("limitset demo: four processes, three connections, one death")?;
    stage.say(&format!("One set in shared memory, no server: {}", texts.join(" ")))?;
    let mut crew = Crew::start(&set)?;
    stage.title("1  Four forked workers share them")?;
    stage.say("Each acquires a connection, works, and releases it; the fourth waits its turn.")?;
    let enough = |crew: &Crew<'_>| crew.counts().iter().all(|count| *count >= 3);
    watch(&mut crew, &mut stage, &mut tour, stage::READING, enough)?;

    stage.title("2  One is killed while it holds a connection")?;
    let victim = WORKERS / 2;
    crew.hold_on(victim);
    until(&mut crew, |crew| Ok(crew.holds(victim) > 0))?;
    let (pid, held) = (crew.pid(victim), crew.holds(victim));
    (tour.killed_pid, tour.killed_holding) = (pid, held);
    stage.say(&format!("Worker {victim} (process {pid}) holds {held} and does not release it."))?;
    watch(&mut crew, &mut stage, &mut tour, stage::GLANCE, |_| true)?;
    stage.say(&context.bad(&format!("kill -KILL {pid}")))?;
    let before = crew.reaped()?;
    let killed_at = Instant::now();
    kill(Pid::from_raw(pid), Signal::SIGKILL).map_err(std::io::Error::from)?;
    // There is no cleanup here: the waiters notice the death by themselves.
    until(&mut crew, |crew| {
        tour.reaped_permits = crew.reaped()? - before;
        Ok(tour.reaped_permits >= held)
    })?;
    let back_after = killed_at.elapsed();
    tour.back_after_seconds = back_after.as_secs_f64();
    let text = format!(
        "{} came back after {} ms: a waiter noticed the death and acquired it.",
        if held == 1 { "Its connection".to_owned() } else { format!("Its {held} connections") },
        back_after.as_millis()
    );
    stage.say(&context.good(&text))?;

    stage.title("3  The others go on, and a new worker replaces it")?;
    crew.go_on(victim);
    let goal: Vec<_> = crew.counts().iter().map(|count| count + 2).collect();
    let has_gone_on = |crew: &Crew<'_>| crew.counts().iter().zip(&goal).all(|(count, goal)| count >= goal);
    watch(&mut crew, &mut stage, &mut tour, stage::READING, has_gone_on)?;
    tour.replaced_by_pid = crew.pid(victim);

    crew.stop()?;
    let stats = set.stats()?;
    tour.granted = stats.limit("connections").map_or(0, |it| it.granted);
    tour.left_behind = stats.limit("connections").map_or(0, |it| it.in_use);
    stage.title("In the end")?;
    stage.say(&format!(
        "Connections were acquired {} times, at most {} at once; {} left behind.",
        tour.granted,
        tour.most_held_at_once,
        if tour.left_behind == 0 { "none".to_owned() } else { tour.left_behind.to_string() }
    ))?;
    stage.say("Next:  limitset create api --limit calls=500/min --limit connections=8")?;
    stage.say("       limitset run api -- your-command    limitset top    limitset --help")?;
    if context.json {
        context.print(&tour, |_| Ok(()))?;
    }
    let is_right = tour.most_held_at_once <= CONNECTIONS && tour.left_behind == 0;
    if !is_right {
        return Err(Failure::new(
            Exit::Unsound,
            "unsound",
            "the limits were exceeded or permits were lost: this is a defect, please report it",
        ));
    }
    Ok(Exit::Done)
}

/// Shows the workers until an event has happened, and at least for a given time.
fn watch(
    crew: &mut Crew<'_>,
    stage: &mut Stage,
    tour: &mut Tour,
    at_least: Duration,
    has_happened: impl Fn(&Crew<'_>) -> bool,
) -> Result<(), Failure> {
    let start = Instant::now();
    loop {
        for exit in crew.look()? {
            if exit.reason != (ExitReason::Killed { signal: Signal::SIGKILL as i32 }) {
                return Err(Failure::new(Exit::Failed, "worker_ended", exit));
            }
        }
        let seen = crew.see()?;
        tour.most_held_at_once = tour.most_held_at_once.max(seen.held);
        stage.show(&seen)?;
        if has_happened(crew) && stage.has_lasted(start, at_least) {
            return stage.leave(&seen).map_err(Failure::from);
        }
        not_stuck(start)?;
        std::thread::sleep(stage::TICK);
    }
}

/// Waits for an event without showing the workers.
fn until(
    crew: &mut Crew<'_>,
    mut has_happened: impl FnMut(&Crew<'_>) -> Result<bool, Failure>,
) -> Result<(), Failure> {
    let start = Instant::now();
    while !has_happened(crew)? {
        crew.look()?;
        not_stuck(start)?;
        std::thread::sleep(stage::TICK / 10);
    }
    Ok(())
}

fn not_stuck(since: Instant) -> Result<(), Failure> {
    if since.elapsed() < TOO_LONG {
        return Ok(());
    }
    let message = format!(
        "no progress for {} s: check whether the machine is busy or a worker is stopped",
        TOO_LONG.as_secs()
    );
    Err(Failure::new(Exit::Failed, "stuck", message))
}

fn failed(error: PreforkError) -> Failure {
    Failure::new(Exit::Failed, "failed", error)
}
