//! `limitset run`: what a wrapped command acquires, holds and passes on, also when the wrapper or the command
//! is killed or stopped.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod support;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdin, ChildStdout, ExitStatus, Stdio};

use limitset::{Limit, LimitSet, LimitSetBuilder, RateLimit, ResourceLimit, Segment};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use support::{Name, limitset, run, watched};

/// Creates a set with one resource limit.
fn connections(about: &str, number: u64) -> (Name, LimitSet) {
    set(about, LimitSet::builder().limit(ResourceLimit::new("connections", number)))
}

fn set(about: &str, builder: LimitSetBuilder) -> (Name, LimitSet) {
    let name = Name::new(about);
    let set = builder.create(&name.0).unwrap();
    (name, set)
}

fn in_use(set: &LimitSet) -> u64 {
    set.stats().unwrap().limit("connections").unwrap().in_use
}

/// A running wrapper around a shell script.
struct Wrapped {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Wrapped {
    /// Starts the wrapper in its own process group, as a shell does. The script first prints its PID.
    fn start(name: &str, options: &[&str], script: &str) -> Self {
        let mut command = limitset();
        command.args(["run", name]).args(options).args(["--", "sh", "-c", &format!("echo $$; {script}")]);
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (input, output) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, input, output }
    }

    fn hear(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Returns the PID of the script, once it runs.
    fn command(&mut self) -> Pid {
        Pid::from_raw(self.hear().parse().unwrap())
    }

    fn wrapper(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).unwrap())
    }

    fn tell(&mut self, line: &str) {
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
    }

    fn end(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }
}

impl Drop for Wrapped {
    fn drop(&mut self) {
        // Cleans up after a failed test. The group belongs to the wrapper, and its ID is not reused before
        // the wait.
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = nix::sys::signal::killpg(self.wrapper(), Signal::SIGKILL);
            let _ = self.child.wait();
        }
    }
}

/// Returns the state letter of a process; None if it is gone.
fn state_of(process: Pid) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    stat.rsplit(')').next()?.trim_start().chars().next()
}

/// Waits for a condition that is certain to come true, under the watchdog.
fn until(what: impl Fn() -> bool) {
    while !what() {
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
}

/// Waits until the kernel has removed a process that is not a child of this one.
fn until_gone(process: Pid) {
    until(|| state_of(process).is_none_or(|state| state == 'Z' || state == 'X'));
}

#[test]
fn the_command_has_what_it_needs_and_its_exit_code_is_passed_on() {
    watched(|| {
        let limits: [Limit; 2] =
            [RateLimit::per_hour("tokens", 1_000).into(), ResourceLimit::new("connections", 2).into()];
        let (name, set) = set("code", LimitSet::builder().limits(limits));
        let ran =
            run(&["run", &name, "--need", "tokens=100", "--", "sh", "-c", "cat /proc/$PPID/comm; exit 7"]);
        let ran = ran.ends(7);
        assert_eq!(ran.out(), "limitset\n", "its own name again");
        let stats = set.stats().unwrap();
        let tokens = stats.limit("tokens").unwrap();
        assert_eq!((tokens.consumed, tokens.granted, tokens.unreported), (100, 1, 0));
        assert_eq!((in_use(&set), stats.reaped_permits), (0, 0));
    });
}

#[test]
fn the_command_holds_its_permits_under_its_own_name_while_it_runs() {
    watched(|| {
        let (name, set) = connections("name", 2);
        let mut wrapped = Wrapped::start(&name, &["--need", "connections=2"], "read line");
        wrapped.command();
        let stats = set.stats().unwrap();
        let holder = stats.participants.iter().find(|it| !it.holds.is_empty()).unwrap();
        assert_eq!(holder.holds, [("connections".to_owned(), 2)]);
        let info = holder.info.as_ref().unwrap();
        assert_eq!((info.command.as_str(), info.pid), ("run:sh", u64::from(wrapped.child.id())));
        wrapped.tell("go on");
        assert_eq!(wrapped.end().code(), Some(0));
        assert_eq!(in_use(&set), 0);
    });
}

#[test]
fn input_output_and_arguments_reach_the_command_as_they_are() {
    watched(|| {
        let (name, _set) = connections("through", 1);
        let mut command = limitset();
        command.args(["run", &name, "--", "sh", "-c", "printf '%s|' \"$@\"; cat; echo oh >&2", "sh"]);
        command.args(["--json", "a b", "--need", ""]);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(b"in\0put").unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.stdout, b"--json|a b|--need||in\0put");
        assert_eq!((output.stderr.as_slice(), output.status.code()), (b"oh\n".as_slice(), Some(0)));
    });
}

#[test]
fn who_is_denied_or_too_late_gets_75_and_the_command_does_not_run() {
    watched(|| {
        let (name, set) = connections("denied", 1);
        let held = set.acquire(()).unwrap();
        for timeout in ["0", "20ms"] {
            let ran = run(&["run", &name, "--timeout", timeout, "--", "echo", "ran"]).ends(75);
            assert_eq!(ran.out(), "");
            assert!(ran.err().contains("\"connections\" wanted, 0 available"), "{ran:?}");
        }
        let ran = run(&["--json", "run", &name, "--timeout", "20ms", "--", "echo", "ran"]).ends(75);
        assert_eq!(ran.error_json()["error"]["code"], "timed_out");
        held.release().unwrap();
        run(&["run", &name, "--timeout", "0", "--", "true"]).ends(0);
    });
}

#[test]
fn what_makes_no_sense_to_the_set_is_said_before_the_command_runs() {
    watched(|| {
        let (name, set) = connections("sense", 2);
        let ran = |args: &[&str]| run(&[&["run"], args, &["--", "echo", "ran"]].concat());
        assert!(ran(&[&name, "--need", "connections=3"]).ends(76).err().contains("can never be had"));
        assert!(ran(&[&name, "--need", "tokens=3"]).ends(2).err().contains("it has connections"));
        assert!(ran(&[&name, "--need", "connections=x"]).ends(2).err().contains('^'));
        assert!(ran(&[&name, "--timeout", "5 parsecs"]).ends(2).err().contains('^'));
        ran(&["test-cli-there-is-none"]).ends(3);
        run(&["run", &name]).ends(2);
        assert_eq!(set.stats().unwrap().limit("connections").unwrap().granted, 0);
    });
}

#[test]
fn a_command_that_cannot_be_run_is_127_or_126_and_costs_nothing() {
    watched(|| {
        let (name, set) = set("missing", LimitSet::builder().limit(RateLimit::per_hour("tokens", 10)));
        let ran = |command: &str| run(&["run", &name, "--need", "tokens=4", "--", command]);
        assert!(ran("limitset-no-such-command").ends(127).err().contains("in PATH"));
        ran("/nonexistent/command").ends(127);
        assert!(ran("").ends(127).err().contains("empty"));
        assert!(ran("/tmp").ends(126).err().contains("is a directory"));
        let folder = std::env::temp_dir().join(&*name);
        fs::create_dir(&folder).unwrap();
        let script = folder.join("script");
        fs::write(&script, "#!/nonexistent/interpreter\n").unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(ran(script.to_str().unwrap()).ends(126).err().contains("not executable"));
        assert_eq!(set.stats().unwrap().limit("tokens").unwrap().granted, 0);
        // Only the kernel can tell that this cannot be run; the charge is refunded.
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        let ran = ran(script.to_str().unwrap()).ends(127);
        assert!(ran.err().contains("cannot start"), "{ran:?}");
        fs::remove_dir_all(&folder).unwrap();
        let stats = set.stats().unwrap();
        let tokens = stats.limit("tokens").unwrap();
        assert_eq!((tokens.granted, tokens.consumed, tokens.available), (1, 0, 10));
    });
}

#[test]
fn a_killed_wrapper_leaves_the_permits_to_the_command_until_that_ends() {
    watched(|| {
        let (name, set) = connections("wrapper", 2);
        let mut wrapped =
            Wrapped::start(&name, &["--need", "connections=2"], "read line; echo done; exec sleep 1000");
        let command = wrapped.command();
        kill(wrapped.wrapper(), Signal::SIGKILL).unwrap();
        assert_eq!(wrapped.end().signal(), Some(9));
        assert_eq!(set.reap().unwrap(), 0, "the permits are not those of a dead participant");
        let said = run(&["rm", &name]).ends(5).err();
        assert!(said.contains(&format!("{} (run:sh, user", wrapped.wrapper())), "{said}");
        assert!(said.contains("ended, but its command still runs"), "{said}");
        run(&["run", &name, "--timeout", "0", "--", "true"]).ends(75);
        wrapped.tell("go on");
        assert_eq!(wrapped.hear(), "done");
        assert_eq!(in_use(&set), 2);
        kill(command, Signal::SIGKILL).unwrap();
        // No timeout: the permits must return.
        run(&["run", &name, "--need", "connections=2", "--", "true"]).ends(0);
        assert_eq!(set.stats().unwrap().reaped_permits, 2);
    });
}

#[test]
fn a_killed_command_is_128_and_its_signal_and_its_permits_return() {
    watched(|| {
        let (name, set) = connections("command", 1);
        for (signal, code) in [(Signal::SIGKILL, 137), (Signal::SIGTERM, 143), (Signal::SIGSEGV, 139)] {
            let mut wrapped = Wrapped::start(&name, &[], "read line");
            kill(wrapped.command(), signal).unwrap();
            assert_eq!(wrapped.end().code(), Some(code));
            assert_eq!(in_use(&set), 0);
        }
        // Real-time signals have only a number.
        run(&["run", &name, "--", "sh", "-c", "kill -40 $$"]).ends(168);
        assert_eq!(in_use(&set), 0);
    });
}

#[test]
fn signals_to_the_wrapper_reach_the_command_once() {
    watched(|| {
        let (name, set) = connections("signals", 1);
        let signals = [
            (Signal::SIGTERM, "TERM"),
            (Signal::SIGINT, "INT"),
            (Signal::SIGHUP, "HUP"),
            (Signal::SIGQUIT, "QUIT"),
            (Signal::SIGUSR1, "USR1"),
            (Signal::SIGUSR2, "USR2"),
            (Signal::SIGALRM, "ALRM"),
            (Signal::SIGWINCH, "WINCH"),
        ];
        for (signal, word) in signals {
            // The script continues after the signal, and exits with the number of signals it got.
            let script = format!(
                "trap 'n=$((n+1)); echo got' {word}; echo ready; \
                 until [ \"$line\" = end ]; do read line && echo $line; done; exit $((10 + n))"
            );
            let mut wrapped = Wrapped::start(&name, &[], &script);
            wrapped.command();
            assert_eq!(wrapped.hear(), "ready");
            kill(wrapped.wrapper(), signal).unwrap();
            // A shell may notice the signal only after it has read a line.
            loop {
                wrapped.tell("more");
                if wrapped.hear() == "got" {
                    break;
                }
            }
            wrapped.tell("end");
            assert_eq!(wrapped.end().code(), Some(11), "{word}");
            assert_eq!(in_use(&set), 0);
        }
        // By default these signals end the command, and the wrapper passes that on.
        for (signal, code) in [(Signal::SIGTERM, 143), (Signal::SIGINT, 130), (Signal::SIGHUP, 129)] {
            let mut wrapped = Wrapped::start(&name, &[], "exec sleep 1000");
            wrapped.command();
            kill(wrapped.wrapper(), signal).unwrap();
            assert_eq!(wrapped.end().code(), Some(code));
            assert_eq!(in_use(&set), 0);
        }
    });
}

#[test]
fn a_wrapper_that_still_waits_is_ended_by_a_signal_and_leaves_nothing() {
    watched(|| {
        let (name, set) = connections("waits", 1);
        let held = set.acquire(()).unwrap();
        for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGKILL] {
            let mut wrapped = Wrapped::start(&name, &[], "echo ran");
            until(|| set.stats().unwrap().waiters == 1);
            kill(wrapped.wrapper(), signal).unwrap();
            assert_eq!(wrapped.end().signal(), Some(signal as i32));
            assert_eq!(wrapped.hear(), "", "it did not run");
            set.reap().unwrap();
            assert_eq!(set.stats().unwrap().waiters, 0);
        }
        held.release().unwrap();
        run(&["run", &name, "--", "true"]).ends(0);
    });
}

#[test]
fn a_stop_like_the_terminals_stops_both_and_continuing_goes_on() {
    watched(|| {
        let (name, set) = connections("stop", 1);
        let mut wrapped = Wrapped::start(&name, &[], "read line; exit 5");
        let (wrapper, command) = (wrapped.wrapper(), wrapped.command());
        kill(wrapper, Signal::SIGTSTP).unwrap();
        until(|| state_of(wrapper) == Some('T') && state_of(command) == Some('T'));
        assert_eq!((in_use(&set), set.reap().unwrap()), (1, 0), "stopped is not dead");
        kill(wrapper, Signal::SIGCONT).unwrap();
        until(|| state_of(wrapper) != Some('T') && state_of(command) != Some('T'));
        wrapped.tell("go on");
        assert_eq!(wrapped.end().code(), Some(5));
        assert_eq!(in_use(&set), 0);
    });
}

#[test]
fn a_stop_of_one_of_them_is_not_the_others() {
    watched(|| {
        let (name, set) = connections("one", 1);
        let mut wrapped = Wrapped::start(&name, &[], "read line; exit 5");
        let (wrapper, command) = (wrapped.wrapper(), wrapped.command());
        kill(command, Signal::SIGSTOP).unwrap();
        until(|| state_of(command) == Some('T'));
        assert_ne!(state_of(wrapper), Some('T'));
        kill(command, Signal::SIGCONT).unwrap();
        // The wrapper is stopped, and the command ends meanwhile.
        kill(wrapper, Signal::SIGSTOP).unwrap();
        until(|| state_of(wrapper) == Some('T'));
        wrapped.tell("go on");
        until_gone(command);
        assert_eq!((in_use(&set), set.reap().unwrap()), (1, 0), "the wrapper lives");
        kill(wrapper, Signal::SIGCONT).unwrap();
        assert_eq!(wrapped.end().code(), Some(5));
        assert_eq!(in_use(&set), 0);
    });
}

#[test]
fn permits_return_with_the_command_though_it_left_something_behind() {
    watched(|| {
        let (name, set) = connections("daemon", 2);
        let script = "sleep 1000 </dev/null >/dev/null 2>&1 & echo $!";
        let mut wrapped = Wrapped::start(&name, &["--need", "connections=2"], script);
        wrapped.command();
        let left_behind = wrapped.command();
        assert_eq!(wrapped.end().code(), Some(0));
        assert_eq!(in_use(&set), 0);
        set.try_acquire([("connections", 2)]).unwrap().release().unwrap();
        assert!(state_of(left_behind).is_some());
        kill(left_behind, Signal::SIGKILL).unwrap();
    });
}

#[test]
fn a_set_removed_meanwhile_does_not_disturb_the_command() {
    watched(|| {
        let (name, set) = connections("removed", 1);
        let mut wrapped = Wrapped::start(&name, &[], "read line; exit 4");
        wrapped.command();
        set.remove().unwrap();
        wrapped.tell("go on");
        assert_eq!(wrapped.end().code(), Some(4));
    });
}

#[test]
fn a_set_that_cannot_be_asked_denies_unless_told_to_allow() {
    watched(|| {
        let builder = LimitSet::builder().limit(ResourceLimit::new("connections", 1));
        let (name, _only) = set("full", builder.segment(Segment::options().slots(1)));
        let none = Name::new("none");
        for (name, code) in [(&*name, 69), (&*none, 3)] {
            run(&["run", name, "--", "echo", "ran"]).ends(code);
            run(&["run", name, "--on-unavailable", "deny", "--", "echo", "ran"]).ends(code);
            let ran = run(&["run", name, "--on-unavailable", "allow", "--", "sh", "-c", "echo ran; exit 6"]);
            let ran = ran.ends(6);
            assert_eq!(ran.out(), "ran\n");
            assert!(ran.err().starts_with("limitset: not limited: "), "{ran:?}");
        }
        run(&["run", "bad name", "--on-unavailable", "allow", "--", "echo", "ran"]).ends(2);
    });
}

#[test]
fn json_tells_on_stderr_what_became_of_the_command() {
    watched(|| {
        let (name, _set) = connections("json", 2);
        let ran = run(&["--json", "run", &name, "--", "sh", "-c", "echo out; kill -TERM $$"]).ends(143);
        assert_eq!(ran.out(), "out\n");
        let told = &ran.error_json()["run"];
        assert_eq!((&told["set"], &told["enforced"]), (&Value::from(&*name), &Value::Bool(true)));
        assert_eq!((told["exit"].as_u64(), told["signal"].as_u64()), (Some(143), Some(15)));
        assert_eq!(told["charged"]["connections"], 1);
        assert!(told["waited_seconds"].is_f64() && told["ran_seconds"].is_f64());
    });
}
