//! Workers that are this program, run again.

use std::time::Duration;

use limitset::{CallLimit, ExitReason, LimitSet, PreforkError, Restart, StartBy};
use nix::sys::signal::Signal;
use nix::unistd::getppid;

use crate::support::{self, TempName, say};
use crate::{children, exit, prefork, reasons, tell_supervisor, until};

pub(crate) const TESTS: [(&str, fn()); 9] = [
    ("workers_run_again_share_a_set_by_its_name", || in_a_process("budget")),
    ("workers_run_again_have_the_programs_signals_and_drain", || in_a_process("drain")),
    ("workers_run_again_may_follow_threads", || in_a_process("threads")),
    ("ends_are_noticed_from_a_thread_that_is_not_the_first", || in_a_process("second_thread")),
    ("ends_are_noticed_while_another_thread_takes_all_signals", || in_a_process("greedy_thread")),
    ("workers_run_again_may_not_run_workers_again", || in_a_process("nested")),
    ("an_order_that_makes_no_sense_is_an_error", || in_a_process("bad_order")),
    ("an_order_for_another_process_is_left_alone_and_no_child_inherits_one", || in_a_process("others_order")),
    ("a_worker_whose_supervisor_died_before_it_began_is_no_supervisor", orphaned_early),
];

fn in_a_process(case: &str) {
    let name = TempName::new();
    let worker = support::Worker::start("exec", &[case, &name.0]);
    assert!(worker.finish().success(), "{case}");
}

/// Comes here once as the supervisor, and once as each of the workers.
pub(crate) fn role(arguments: &[String]) {
    let name = &arguments[1];
    let set = LimitSet::builder().limit(CallLimit::per_hour(5)).open(name).unwrap();
    let options = || prefork(2).start_by(StartBy::Exec).restart(Restart::Never).limits(&set);
    match arguments[0].as_str() {
        "budget" => {
            let report = options().run(|worker| {
                assert_eq!(worker.limits().worker(), worker.index());
                let granted = (0..4).filter(|_| worker.limits().try_acquire(()).is_ok()).count();
                exit(10 + i32::try_from(granted).unwrap());
            });
            let granted = reasons(&report.unwrap()).into_iter().map(|reason| match reason {
                ExitReason::Failed { code } => code - 10,
                other => panic!("{other:?}"),
            });
            assert_eq!(granted.sum::<i32>(), 5);
            assert_eq!(set.stats().unwrap().limit("call_count").unwrap().granted, 5);
        }
        "drain" => {
            let report = options().run(|worker| {
                let blocked = nix::sys::signal::SigSet::thread_get_mask().unwrap();
                assert!(Signal::iterator().all(|signal| !blocked.contains(signal)), "{blocked:?}");
                if worker.index() == 0 {
                    tell_supervisor(Signal::SIGTERM);
                }
                while !worker.wait_for_stop(Duration::from_secs(60)) {}
            });
            // One may be told before it has come as far as to be a worker.
            let ended = [ExitReason::Finished, crate::killed_by(Signal::SIGTERM)];
            let reasons = reasons(&report.unwrap());
            assert!(reasons[0] == ExitReason::Finished && ended.contains(&reasons[1]), "{reasons:?}");
        }
        "threads" => {
            let (more, is_over) = std::sync::mpsc::channel::<()>();
            let other = std::thread::spawn(move || is_over.recv());
            let report = options().run(|worker| drop(worker.limits().try_acquire(()).unwrap()));
            assert_eq!(reasons(&report.unwrap()), [ExitReason::Finished; 2]);
            drop(more);
            other.join().unwrap().unwrap_err();
        }
        "second_thread" => std::thread::spawn(move || restarts_while_it_is_granted(&set)).join().unwrap(),
        "greedy_thread" => {
            let (more, is_over) = std::sync::mpsc::channel::<()>();
            let other = std::thread::spawn(move || is_over.recv());
            restarts_while_it_is_granted(&set);
            drop(more);
            other.join().unwrap().unwrap_err();
        }
        "nested" => {
            let report = options().run(|_| {
                // Its workers would come to the outer `run`, and so on for ever.
                let error = options().run(|_| {}).unwrap_err();
                assert!(matches!(error, PreforkError::Nested), "{error}");
                // Forked ones are another matter.
                assert_eq!(prefork(1).run(|_| {}).unwrap().exits, 1);
            });
            assert_eq!(reasons(&report.unwrap()), [ExitReason::Finished; 2]);
        }
        "bad_order" => {
            let order = format!("{}:zero", getppid());
            // SAFETY: this process has one thread.
            unsafe { std::env::set_var("LIMITSET_WORKER", &order) };
            let error = options().run(|_| {}).unwrap_err();
            assert!(matches!(&error, PreforkError::Order { found } if *found == order), "{error}");
            // Forked workers take no orders.
            assert_eq!(prefork(1).run(|_| {}).unwrap().exits, 1);
        }
        "others_order" => {
            // Its workers come here, too, with an order of their own.
            if std::env::var_os("LIMITSET_WORKER").is_none() {
                // Of a version that writes it otherwise, for another process.
                let others = format!("v9 {} {}", getppid(), std::process::id());
                // SAFETY: this process has one thread.
                unsafe { std::env::set_var("LIMITSET_WORKER", others) };
            }
            let report = options().run(|_| {
                assert_eq!(std::env::var_os("LIMITSET_WORKER"), None, "it was taken out");
                let child = std::process::Command::new("sh").args(["-c", "env"]).output().unwrap();
                assert!(!String::from_utf8_lossy(&child.stdout).contains("LIMITSET_WORKER"));
            });
            assert_eq!(reasons(&report.unwrap()), [ExitReason::Finished; 2]);
        }
        "early" => {
            if std::env::var_os("LIMITSET_WORKER").is_some() {
                let supervisor = getppid();
                say("early");
                until(|| getppid() != supervisor);
            }
            options().run(|_| {}).unwrap();
            say("went on");
        }
        other => panic!("{other}"),
    }
    assert_eq!(children(), "");
}

/// Five workers are granted a call and fail, the sixth is not and ends well.
fn restarts_while_it_is_granted(set: &LimitSet) {
    let options = prefork(1).start_by(StartBy::Exec).limits(set);
    let report = options.run(|worker| match worker.limits().try_acquire(()) {
        Ok(_) => Err("not yet, as this test wants it"),
        Err(_) => Ok(()),
    });
    assert_eq!(report.unwrap().exits, 6);
}

fn orphaned_early() {
    let name = TempName::new();
    let mut supervisor = support::Worker::start("exec", &["early", &name.0]);
    supervisor.expect("early");
    supervisor.expect("early");
    supervisor.kill();
    assert_eq!(supervisor.hear_until_silence(), [""; 0]);
}
