//! How workers end, and when they start again.

use std::time::Duration;

use limitset::{ExitReason, LimitSet, Prefork, ResourceLimit, Restart, Supervisor, Worker, WorkerExit};
use nix::sys::signal::{Signal, raise};
use nix::unistd::{Pid, getpid};

use crate::support::{self, TempName};
use crate::{
    AT_ONCE, HOUR, Shared, be_deaf, children, exit, in_a_process, killed_by, prefork, reasons, until,
};

pub(crate) const TESTS: [(&str, fn()); 11] = [
    ("every_end_has_its_reason", || in_a_process("reasons")),
    ("an_end_can_be_read", || in_a_process("words")),
    ("failures_are_replaced_until_one_finishes", || in_a_process("on_failure")),
    ("whatever_ends_is_replaced_if_told_so", || in_a_process("always")),
    ("nothing_is_replaced_if_told_so", || in_a_process("never")),
    ("waits_double_up_to_the_longest_and_then_it_is_given_up", || in_a_process("backoff")),
    ("a_worker_that_ran_long_enough_did_not_end_quickly", || in_a_process("stable")),
    ("a_place_whose_worker_finished_is_not_given_up", || in_a_process("finished_at_last")),
    ("workers_that_drain_too_long_are_killed", || in_a_process("hang")),
    ("a_machine_without_room_for_a_process_is_asked_again", no_room),
    ("after_200_restarts_numbers_are_unique_and_nothing_is_left", many_restarts),
];

pub(crate) const CASES: &[(&str, fn())] = &[
    ("reasons", every_reason),
    ("words", in_words),
    ("on_failure", on_failure),
    ("always", always),
    ("never", never),
    ("backoff", backoff),
    ("stable", stable),
    ("finished_at_last", finished_at_last),
    ("hang", hang),
    ("restarts", restarts),
    ("no_room", short_of_processes),
];

fn every_reason() {
    let exits = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
    let heard = exits.clone();
    let run = Prefork::new(8)
        .restart(Restart::Never)
        .on_exit(move |exit| heard.borrow_mut().push(*exit))
        .run(|worker| end_somehow(worker.index()));
    let report = run.unwrap();
    let expected = [
        ExitReason::Finished,
        ExitReason::Failed { code: 1 },
        ExitReason::Failed { code: 7 },
        ExitReason::Panicked,
        killed_by(Signal::SIGABRT),
        killed_by(Signal::SIGSEGV),
        killed_by(Signal::SIGKILL),
        killed_by(Signal::SIGTERM),
    ];
    assert_eq!(reasons(&report), expected);
    assert_eq!((report.exits, report.restarts, report.given_up.len()), (8, 0, 0));
    exits.borrow_mut().sort_by_key(|exit| exit.index);
    assert_eq!(*exits.borrow(), report.last_exits);
    assert!(report.last_exits.iter().all(|exit| exit.restarts_in.is_none()));
    assert_eq!(children(), "");
}

fn end_somehow(index: usize) -> Result<(), &'static str> {
    match index {
        0 => return Ok(()),
        1 => return Err("an error, as this test wants it"),
        2 => std::process::exit(7),
        3 => panic!("as this test wants it"),
        4 => std::process::abort(),
        // One that has not come from the machine, and one that means to stop in order, are caught unless told so.
        5 => end_by(Signal::SIGSEGV),
        6 => raise(Signal::SIGKILL).unwrap(),
        _ => end_by(Signal::SIGTERM),
    }
    be_deaf();
    Ok(())
}

fn end_by(signal: Signal) {
    // SAFETY: the default action runs no code of this process.
    unsafe { nix::sys::signal::signal(signal, nix::sys::signal::SigHandler::SigDfl) }.unwrap();
    raise(signal).unwrap();
}

fn in_words() {
    let report = Prefork::new(8).restart(Restart::Never).run(|worker| end_somehow(worker.index())).unwrap();
    let words: Vec<_> = report.last_exits.iter().map(ToString::to_string).collect();
    let endings = [
        "finished",
        "failed with exit code 1",
        "failed with exit code 7",
        "panicked",
        "was ended by SIGABRT",
        "was ended by SIGSEGV",
        "was ended by SIGKILL",
        "was ended by SIGTERM",
    ];
    for (index, (said, ending)) in words.iter().zip(endings).enumerate() {
        let pid = report.last_exits[index].pid;
        assert!(said.starts_with(&format!("worker {index} (process {pid}) {ending} after ")), "{said}");
    }
}

fn on_failure() {
    let shared = Shared::new();
    let report = prefork(1).run(|_| match shared.count(0) {
        0..3 => Err("not yet, as this test wants it"),
        _ => Ok(()),
    });
    let report = report.unwrap();
    assert_eq!((report.exits, report.restarts), (4, 3));
    assert_eq!(reasons(&report), [ExitReason::Finished]);
}

fn always() {
    let shared = Shared::new();
    let run = prefork(1).restart(Restart::Always).give_up_after(4).run(|_| {
        shared.count(0);
    });
    let report = run.unwrap();
    assert_eq!((report.exits, report.restarts, shared.get(0)), (4, 3, 4));
    assert_eq!(report.given_up, [0]);
}

fn never() {
    let shared = Shared::new();
    let report = prefork(2).restart(Restart::Never).give_up_after(1).run(|_| {
        shared.count(0);
        exit(1);
    });
    let report = report.unwrap();
    assert_eq!((report.exits, report.restarts, shared.get(0)), (2, 0, 2));
    assert_eq!(report.given_up, [0usize; 0], "none was to be started again");
}

/// Steps until the first end.
fn next_exit<W: Fn(&Worker) -> T, T: limitset::WorkerOutcome>(supervisor: &mut Supervisor<W>) -> WorkerExit {
    let mut exit = None;
    until(|| {
        let (exits, _) = supervisor.step().unwrap();
        assert!(exits.len() <= 1, "there is one worker");
        exit = exits.into_iter().next();
        exit.is_some()
    });
    exit.unwrap()
}

fn backoff() {
    let millis = Duration::from_millis;
    let options = Prefork::new(1).backoff_times(millis(1), millis(3)).stable_after(HOUR).give_up_after(5);
    let mut supervisor = options.start(|_| exit(1)).unwrap();
    let waits: Vec<_> = (0..5).map(|_| next_exit(&mut supervisor).restarts_in).collect();
    assert_eq!(waits, [Some(millis(1)), Some(millis(2)), Some(millis(3)), Some(millis(3)), None]);
    assert_eq!((supervisor.restarts(), supervisor.given_up()), (4, vec![0]));
    assert!(supervisor.is_over());
    // By hand its place can be filled once more.
    assert_eq!(supervisor.add().unwrap(), 0);
    assert_eq!(next_exit(&mut supervisor).restarts_in, Some(millis(1)));
}

fn stable() {
    let wait = Duration::from_millis(1);
    let options = Prefork::new(1).backoff_times(wait, HOUR).stable_after(AT_ONCE).give_up_after(1);
    let mut supervisor = options.start(|_| exit(1)).unwrap();
    for _ in 0..5 {
        assert_eq!(next_exit(&mut supervisor).restarts_in, Some(wait));
    }
    assert_eq!(supervisor.given_up(), [0usize; 0]);
}

fn finished_at_last() {
    let shared = Shared::new();
    let report = prefork(1).give_up_after(3).run(|_| match shared.count(0) {
        0 | 1 => Err("not yet, as this test wants it"),
        _ => Ok(()),
    });
    let report = report.unwrap();
    assert_eq!((report.exits, report.given_up), (3, vec![]));
}

fn hang() {
    let shared = Shared::new();
    let mut supervisor = prefork(2)
        .drain_time(Duration::from_millis(50))
        .start(|worker| {
            shared.count(worker.index());
            if worker.index() == 0 {
                be_deaf();
            }
            until(|| worker.stopping());
        })
        .unwrap();
    shared.wait_for(0, 1);
    shared.wait_for(1, 1);
    supervisor.stop();
    let mut exits = Vec::new();
    until(|| {
        exits.extend(supervisor.step().unwrap().0);
        supervisor.is_over()
    });
    exits.sort_by_key(|exit| exit.index);
    let reasons: Vec<_> = exits.iter().map(|exit| exit.reason).collect();
    assert_eq!(reasons, [killed_by(Signal::SIGKILL), ExitReason::Finished]);
    assert_eq!((supervisor.restarts(), children()), (0, String::new()));
}

fn no_room() {
    if nix::unistd::geteuid().is_root() {
        in_a_process("no_room");
    } else {
        println!("SKIPPED a machine without room for a process: that takes a user of its own");
    }
}

fn allow_processes(most: u64) {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let (_, hard) = getrlimit(Resource::RLIMIT_NPROC).unwrap();
    setrlimit(Resource::RLIMIT_NPROC, most.min(hard), hard).unwrap();
}

/// As a user of whom there is nobody else.
fn short_of_processes() {
    nix::unistd::setuid(nix::unistd::Uid::from_raw(2_000_000 + getpid().as_raw().unsigned_abs())).unwrap();
    let shared = Shared::new();
    let mut supervisor =
        prefork(1).start(|_| if shared.count(0) == 0 { exit(1) } else { be_deaf() }).unwrap();
    shared.wait_for(0, 1);
    allow_processes(1);
    assert_eq!(next_exit(&mut supervisor).reason, ExitReason::Failed { code: 1 });
    for _ in 0..10 {
        supervisor.step().unwrap();
        assert_eq!((supervisor.running(), supervisor.is_over()), (vec![], false), "there is no room");
    }
    allow_processes(u64::MAX);
    until(|| {
        supervisor.step().unwrap();
        !supervisor.running().is_empty()
    });
    assert_eq!(supervisor.restarts(), 1);
}

fn how_many_restarts() -> u64 {
    support::depth(200, 2_000)
}

fn many_restarts() {
    in_a_process("restarts");
    let what = format!("{} workers in a row killed with a permit, and replaced", how_many_restarts());
    support::proof("3", &what, "numbers unique, permits back, no zombie, no segment left");
}

/// Workers die with a permit in their hands, 200 times in a row.
fn restarts() {
    const WORKERS: u64 = 3;
    let restarts = how_many_restarts();
    let shared = Shared::new();
    let name = TempName::new();
    let limits = LimitSet::builder().limit(ResourceLimit::new("db", 2)).open(&name).unwrap();
    let report = prefork(3).limits(&limits).run(|worker| {
        let index = worker.index();
        assert!(index < 3, "no number beyond those there are");
        // Whoever had this number before is gone and buried.
        let before = i32::try_from(shared.get(index)).unwrap();
        let is_gone = before == 0 || nix::sys::signal::kill(Pid::from_raw(before), None).is_err();
        assert!(is_gone, "two workers with one number");
        shared.set(index, getpid().as_raw().try_into().unwrap());
        let held = worker.limits().acquire(()).unwrap();
        if shared.count(8) < restarts {
            raise(Signal::SIGKILL).unwrap();
        }
        held.release().unwrap();
    });
    let report = report.unwrap();
    assert_eq!((report.exits, report.restarts), (restarts + WORKERS, restarts));
    assert_eq!(reasons(&report), [ExitReason::Finished; 3]);
    assert_eq!(children(), "", "no zombie");
    limits.reap().unwrap();
    let stats = limits.stats().unwrap();
    let db = stats.limit("db").unwrap();
    assert_eq!((db.in_use, db.consumed), (0, restarts + WORKERS), "every permit is back");
    limits.remove().unwrap();
    let left: Vec<_> = std::fs::read_dir("/dev/shm").unwrap().map(|it| it.unwrap().file_name()).collect();
    assert!(!left.iter().any(|file| file.to_string_lossy().contains(&name.0)), "{left:?}");
}
