//! Signals: what stops workers, adds one, lets one go; and that the program's own signals stay as they were.

use std::time::Duration;

use limitset::{ExitReason, Restart};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, SigmaskHow, Signal, kill, raise, sigaction};
use nix::unistd::{Pid, getpid, getppid};

use crate::{
    Shared, be_deaf, children, in_a_process, killed_by, prefork, reasons, state_of, tell_supervisor, until,
};

pub(crate) const TESTS: [(&str, fn()); 14] = [
    ("sigterm_lets_workers_finish", || in_a_process("drain")),
    ("a_second_sigterm_kills", || in_a_process("second_term")),
    ("times_without_end_are_no_trouble", || in_a_process("endless")),
    ("a_signal_that_comes_last_of_all_ends_nobody", || in_a_process("last_signal")),
    ("sigint_at_a_terminal_lets_workers_finish", || in_a_process("interrupt")),
    ("a_stopped_worker_is_continued_to_finish", || in_a_process("stopped")),
    ("a_stopped_worker_that_does_not_finish_is_killed", || in_a_process("stopped_deaf")),
    ("sigttin_adds_a_worker_and_sigttou_lets_the_last_one_go", || in_a_process("tt")),
    ("who_is_going_already_is_not_let_go_twice", || in_a_process("retire_twice")),
    ("who_is_let_go_and_does_not_is_killed", || in_a_process("retire_deaf")),
    ("a_worker_told_to_stop_as_soon_as_it_exists_stops", || in_a_process("early")),
    ("the_programs_signals_are_as_before", || in_a_process("mask")),
    ("workers_have_the_signals_the_program_had", || in_a_process("worker_mask")),
    ("ends_are_noticed_where_the_program_ignores_sigchld", || in_a_process("ignored")),
];

pub(crate) const CASES: &[(&str, fn())] = &[
    ("drain", drain),
    ("second_term", second_term),
    ("last_signal", last_signal),
    ("endless", endless),
    ("interrupt", interrupt),
    ("stopped", stopped),
    ("stopped_deaf", stopped_deaf),
    ("tt", add_and_retire),
    ("retire_twice", retire_twice),
    ("retire_deaf", retire_deaf),
    ("early", early),
    ("mask", mask),
    ("worker_mask", worker_mask),
    ("ignored", ignored),
];

fn drain() {
    let shared = Shared::new();
    let report = prefork(3).restart(Restart::Always).run(|worker| {
        shared.count(0);
        if worker.index() == 0 {
            shared.wait_for(0, 3);
            tell_supervisor(Signal::SIGTERM);
        }
        while !worker.wait_for_stop(Duration::from_secs(60)) {}
        // What was under way is finished.
        shared.count(1);
    });
    let report = report.unwrap();
    assert_eq!(reasons(&report), [ExitReason::Finished; 3]);
    assert_eq!((report.exits, report.restarts, shared.get(1)), (3, 0, 3), "none is replaced while stopping");
}

fn second_term() {
    let report = prefork(2).run(|worker| {
        if worker.index() == 0 {
            tell_supervisor(Signal::SIGTERM);
            until(|| worker.stopping());
            tell_supervisor(Signal::SIGTERM);
        }
        be_deaf();
    });
    assert_eq!(reasons(&report.unwrap()), [killed_by(Signal::SIGKILL); 2]);
    assert_eq!(children(), "");
}

fn endless() {
    let shared = Shared::new();
    let options = prefork(2).drain_time(Duration::MAX).backoff_times(Duration::MAX, Duration::MAX);
    let report = options.stable_after(Duration::MAX).run(|worker| {
        if worker.index() == 0 {
            std::process::exit(1);
        }
        // As soon as the other one is buried, never to rise.
        until(|| children_of(getppid()) == 1);
        shared.count(0);
        tell_supervisor(Signal::SIGTERM);
        until(|| worker.stopping());
    });
    let report = report.unwrap();
    assert_eq!(reasons(&report), [ExitReason::Failed { code: 1 }, ExitReason::Finished]);
    assert_eq!((report.restarts, shared.get(0)), (0, 1));
}

fn children_of(parent: Pid) -> usize {
    let children = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap();
    children.split_whitespace().count()
}

/// The signal comes when the last worker has ended, and nobody will look for signals any more.
fn last_signal() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let tell = move |_: &limitset::WorkerExit| kill(getpid(), signal).unwrap();
        let report = prefork(1).on_exit(tell).run(|_| {}).unwrap();
        assert_eq!((report.exits, report.told_to_stop), (1, true));
    }
    assert!(!prefork(1).run(|_| {}).unwrap().told_to_stop);
}

/// A terminal sends SIGINT to the workers, too.
fn interrupt() {
    nix::unistd::setpgid(Pid::from_raw(0), Pid::from_raw(0)).unwrap();
    let shared = Shared::new();
    let report = prefork(2).run(|worker| {
        shared.count(0);
        if worker.index() == 0 {
            shared.wait_for(0, 2);
            kill(Pid::from_raw(0), Signal::SIGINT).unwrap();
        }
        until(|| worker.stopping());
        shared.count(1);
    });
    assert_eq!(reasons(&report.unwrap()), [ExitReason::Finished; 2]);
    assert_eq!(shared.get(1), 2);
}

fn stopped() {
    let report = one_that_stops(None);
    assert_eq!(reasons(&report), [ExitReason::Finished; 2]);
}

fn stopped_deaf() {
    let report = one_that_stops(Some(Duration::from_millis(50)));
    assert_eq!(reasons(&report), [killed_by(Signal::SIGKILL), ExitReason::Finished]);
}

/// Worker 0 is stopped when the supervisor is told to stop. With a drain time it is also deaf.
fn one_that_stops(drain_time: Option<Duration>) -> limitset::PreforkReport {
    let shared = Shared::new();
    let options = drain_time.map_or_else(|| prefork(2), |time| prefork(2).drain_time(time));
    let report = options.run(|worker| {
        if worker.index() == 0 {
            shared.set(0, getpid().as_raw().try_into().unwrap());
            raise(Signal::SIGSTOP).unwrap();
            if drain_time.is_some() {
                be_deaf();
            }
        } else {
            until(|| shared.get(0) != 0);
            let other = Pid::from_raw(shared.get(0).try_into().unwrap());
            until(|| state_of(other) == Some('T'));
            tell_supervisor(Signal::SIGTERM);
        }
        until(|| worker.stopping());
    });
    report.unwrap()
}

fn add_and_retire() {
    let shared = Shared::new();
    let report = prefork(1).run(|worker| {
        let index = worker.index();
        shared.count(index);
        match index {
            0 => {
                tell_supervisor(Signal::SIGTTIN);
                shared.wait_for(1, 1);
                tell_supervisor(Signal::SIGTTIN);
                shared.wait_for(2, 1);
                for left in [2, 1] {
                    tell_supervisor(Signal::SIGTTOU);
                    shared.wait_for(left, 2);
                }
                assert!(!worker.stopping(), "the last one goes first");
                tell_supervisor(Signal::SIGTTOU);
            }
            1 | 2 => {}
            other => panic!("worker {other} where there are 3"),
        }
        until(|| worker.stopping());
        shared.count(index);
    });
    let report = report.unwrap();
    assert_eq!(reasons(&report), [ExitReason::Finished; 3]);
    assert_eq!((report.exits, report.restarts), (3, 0));
}

/// Worker 1 goes only after worker 0 was told to.
fn retire_twice() {
    let shared = Shared::new();
    let report = prefork(2).run(|worker| {
        if worker.index() == 1 {
            tell_supervisor(Signal::SIGTTOU);
            until(|| worker.stopping());
            tell_supervisor(Signal::SIGTTOU);
            shared.wait_for(0, 1);
        } else {
            until(|| worker.stopping());
            shared.count(0);
        }
    });
    assert_eq!(reasons(&report.unwrap()), [ExitReason::Finished; 2]);
}

fn retire_deaf() {
    let report = prefork(2).drain_time(Duration::from_millis(50)).run(|worker| {
        if worker.index() == 1 {
            tell_supervisor(Signal::SIGTTOU);
            be_deaf();
        }
    });
    assert_eq!(reasons(&report.unwrap()), [ExitReason::Finished, killed_by(Signal::SIGKILL)]);
}

extern "C" fn nothing(_: libc::c_int) {}

fn handle(signal: Signal, handler: SigHandler) -> SigAction {
    let action = SigAction::new(handler, SaFlags::empty(), SigSet::empty());
    // SAFETY: the handler does nothing at all.
    unsafe { sigaction(signal, &action) }.unwrap()
}

/// The program has a handler of its own, which a new worker must not run in place of stopping.
fn early() {
    handle(Signal::SIGTERM, SigHandler::Handler(nothing));
    for _ in 0..100 {
        let mut supervisor = prefork(2).start(|worker| until(|| worker.stopping())).unwrap();
        supervisor.stop();
        let mut exits = Vec::new();
        until(|| {
            exits.extend(supervisor.step().unwrap().0);
            supervisor.is_over()
        });
        assert!(exits.iter().all(|exit| exit.reason == ExitReason::Finished), "{exits:?}");
    }
}

fn mask() {
    let mut blocked = SigSet::empty();
    blocked.add(Signal::SIGUSR1);
    blocked.thread_swap_mask(SigmaskHow::SIG_SETMASK).unwrap();
    handle(Signal::SIGTERM, SigHandler::Handler(nothing));
    handle(Signal::SIGCHLD, SigHandler::SigIgn);
    prefork(1).run(|_| {}).unwrap();
    let after = SigSet::thread_get_mask().unwrap();
    let blocked_after: Vec<_> = Signal::iterator().filter(|signal| after.contains(*signal)).collect();
    assert_eq!(blocked_after, [Signal::SIGUSR1]);
    let terminated = handle(Signal::SIGTERM, SigHandler::SigDfl).handler();
    assert!(matches!(terminated, SigHandler::Handler(_)), "{terminated:?}");
    let ended = handle(Signal::SIGCHLD, SigHandler::SigDfl).handler();
    assert!(matches!(ended, SigHandler::SigIgn), "{ended:?}");
}

fn worker_mask() {
    let mut blocked = SigSet::empty();
    blocked.add(Signal::SIGUSR1);
    blocked.thread_swap_mask(SigmaskHow::SIG_SETMASK).unwrap();
    let report = prefork(1).restart(Restart::Never).run(|_| {
        let inside = SigSet::thread_get_mask().unwrap();
        let blocked: Vec<_> = Signal::iterator().filter(|signal| inside.contains(*signal)).collect();
        assert_eq!(blocked, [Signal::SIGUSR1]);
    });
    assert_eq!(reasons(&report.unwrap()), [ExitReason::Finished]);
}

/// Some parents start programs with SIGCHLD ignored.
fn ignored() {
    handle(Signal::SIGCHLD, SigHandler::SigIgn);
    let report = prefork(2).restart(Restart::Never).run(|worker| {
        if worker.index() == 0 {
            std::process::exit(3);
        }
    });
    assert_eq!(reasons(&report.unwrap()), [ExitReason::Failed { code: 3 }, ExitReason::Finished]);
}
