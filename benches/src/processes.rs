//! How much throughput do 2, 4 and 8 processes reach, on one set and on a set each, at full speed and with
//! think time between their requests? Beside it, the throughput of rivals with 8.
//!
//! Nanoseconds per operation are the elapsed time divided by the operations of all processes. The processes
//! are pinned to one processor and the other in turn. Each batch is bracketed by a probe of the distance
//! between the processors.

use std::rc::Rc;
use std::time::Duration;

use limitset::Clock;

use crate::batches::{Figures, Plan, Row, Whose};
use crate::crew::{self, Crew, Job, repeat};
use crate::ours::{self, TempSet};
use crate::probe::Probe;
use crate::redis::Server;
use crate::results::{Bench, Group};
use crate::rivals::{flock::Flock, posix::Posix, raw::Raw, robust::Robust, sysv::Sysv};
use crate::sys::{self, Think};

const QUESTION: &str = "How much throughput do several processes reach, on one set and on a set each, with and without think time?";

/// The think time between two requests.
const THINK: Duration = Duration::from_micros(2);

pub fn run(plan: Plan, redis: &Result<Rc<Server>, String>) -> Bench {
    let thinking = Think::of(THINK);
    let groups = vec![
        same_set("one", "One set with 3 limits, no think time", Think::none()),
        same_set("one-think", "One set with 3 limits, 2 µs of think time", thinking),
        own_sets("own", "A set each, no think time", Think::none()),
        own_sets("own-think", "A set each, 2 µs of think time", thinking),
        rivals(redis),
    ];
    let mut probe = Probe::new();
    let mut read = probe.as_mut().map(|probe| || probe.read());
    let probing = read.as_mut().map(|read| read as &mut dyn FnMut() -> f64);
    // Without a second processor there is no distance, and no round is far.
    let mut alone = || 0.0;
    let mut bench = Bench::measure("processes", QUESTION, groups, plan, Some(probing.unwrap_or(&mut alone)));
    let readings = probe.map(|probe| probe.readings.clone()).unwrap_or_default();
    bench.remarks.push(match Figures::of(readings.clone()) {
        Some(it) => format!(
            "{} probes between two processors: {:.0} ns one way ({:.0} to {:.0}); below {} ns is near. \
             {} probes failed.",
            readings.len(),
            it.median,
            it.low,
            it.high,
            crate::batches::NEAR,
            readings.len() - it.count
        ),
        None => "There is only one processor, or the second one never answered: no round is near or far."
            .to_owned(),
    });
    bench
}

/// Returns a processor for each process, in turn.
fn places(count: usize) -> Vec<usize> {
    sys::cpus().into_iter().take(2).cycle().take(count).collect()
}

fn same_set(kind: &str, title: &str, think: Think) -> Group<Row> {
    let rows = [1, 2, 4, 8].map(|count| {
        let temp = TempSet::new(ours::usual(), Clock::Monotonic);
        ours_row(kind, count, think, move |_| Rc::clone(&temp))
    });
    Group::new(title, format!("{kind}/1"), rows.into())
}

fn own_sets(kind: &str, title: &str, think: Think) -> Group<Row> {
    let rows = [1, 2, 4, 8].map(|count| {
        let temps: Vec<_> = (0..count).map(|_| TempSet::new(ours::usual(), Clock::Monotonic)).collect();
        ours_row(kind, count, think, move |index| Rc::clone(&temps[index]))
    });
    Group::new(title, format!("{kind}/1"), rows.into())
}

fn ours_row(kind: &str, count: usize, think: Think, set_of: impl Fn(usize) -> Rc<TempSet> + 'static) -> Row {
    let crew = Crew::start(&places(count), |index| {
        let set = set_of(index).attach();
        let request = ours::usual_request(&set);
        repeat(8, move || {
            ours::take_and_give(&set, &request);
            think.think();
        })
    });
    let name = if count == 1 { "1 process".to_owned() } else { format!("{count} processes") };
    let measure = crew::measure(crew, move |_| _ = &set_of);
    Row::timed(format!("{kind}/{count}"), Whose::Ours, format!("limitset, {name}"), measure)
}

fn rivals(redis: &Result<Rc<Server>, String>) -> Group<Row> {
    let mut rows = vec![];
    let temp = TempSet::new(ours::usual(), Clock::Monotonic);
    rows.push(ours_row("rivals", 8, Think::none(), move |_| Rc::clone(&temp)));
    rows.push(match Sysv::new(3, 64) {
        Ok(sysv) => eight("rivals/sysv", "SysV semaphores, SEM_UNDO, 3 in one call", sysv, |it, _| {
            let it = Rc::clone(it);
            repeat(8, move || it.take_and_give())
        }),
        Err(why) => Row::not_run("rivals/sysv", Whose::Theirs, "SysV semaphores, SEM_UNDO", &why),
    });
    rows.push(
        eight("rivals/posix", "POSIX semaphores, shared, x3", Posix::new(64), |it, _| {
            let it = Rc::clone(it);
            repeat(8, move || it.take_and_give(3))
        })
        .note("permits only, three in a row, not together; lost when their holder dies"),
    );
    rows.push(
        eight("rivals/robust", "robust pthread mutex + 3 counters", Robust::new(), |it, _| {
            let it = Rc::clone(it);
            repeat(8, move || it.take_and_give(3))
        })
        .note("permits only; lost when their holder dies"),
    );
    rows.push(
        eight("rivals/raw", "raw_sync mutex + 3 counters", Raw::new(), |it, _| {
            let it = Rc::clone(it);
            repeat(8, move || it.take_and_give(3))
        })
        .note("permits only; stuck when their holder dies"),
    );
    rows.push(match Flock::new() {
        Ok(flock) => eight("rivals/flock", "flock + 3 counters", flock, |it, _| {
            let opened = it.open();
            repeat(1, move || opened.take_and_give(3))
        })
        .note("permits only; lost when their holder dies"),
        Err(why) => Row::not_run("rivals/flock", Whose::Theirs, "flock + 3 counters", &why),
    });
    rows.extend(redis_rows(redis));
    Group::new(
        "8 processes, equal work by rivals (three permits; Redis: three token buckets)",
        "rivals/8",
        rows,
    )
}

fn eight<T: 'static>(key: &str, name: &str, rival: T, job: fn(&Rc<T>, usize) -> Job) -> Row {
    let rival = Rc::new(rival);
    let crew = Crew::start(&places(8), |index| job(&rival, index));
    // The closure keeps the rival alive as long as the crew uses it.
    Row::timed(key, Whose::Theirs, name, crew::measure(crew, move |_| _ = &rival))
        .note("permits only, no rates")
}

/// Returns two rows: clients spread over both processors, and all clients on one processor with the server.
fn redis_rows(redis: &Result<Rc<Server>, String>) -> Vec<Row> {
    let cpu = sys::cpus()[0];
    let name = "Redis, Unix socket, 3 token buckets";
    let rows = [
        ("rivals/redis", name.to_owned(), false),
        ("rivals/redis-pinned", format!("{name}, same CPU"), true),
    ];
    let rows = rows.into_iter().map(|(key, name, pinned)| match redis {
        Err(why) => Row::not_run(key, Whose::Theirs, name, why),
        Ok(server) => {
            let places = if pinned { vec![cpu; 8] } else { places(8) };
            let crew = Crew::start(&places, |_| {
                let mut client = server.client(3);
                repeat(1, move || client.granted())
            });
            let server = Rc::clone(server);
            let free = sys::affinity(0);
            let measure = crew::measure(crew, move |begins| {
                if let (true, Ok(free)) = (pinned, &free) {
                    server.pin(begins.then_some(cpu), free);
                }
            });
            let note = if pinned { "8 clients pinned with their server" } else { "8 clients on both CPUs" };
            Row::timed(key, Whose::Theirs, name, measure).note(note)
        }
    });
    rows.collect()
}
