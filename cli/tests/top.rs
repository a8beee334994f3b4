//! `limitset top` and `run` in a real terminal: tmux provides it and captures its screen.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod support;

use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use limitset::{CallLimit, LimitSet, RateLimit, ResourceLimit, Segment};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use support::{Name, limitset, run, watched};

/// A separate terminal, closed on drop with everything in it.
struct Terminal {
    socket: String,
}

impl Terminal {
    /// Opens a terminal. Returns None, with a message, if there is no tmux.
    fn open(test: &str, width: u32, height: u32) -> Option<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        if Command::new("tmux").arg("-V").output().is_err() {
            println!("SKIPPED {test}: there is no tmux on this machine");
            return None;
        }
        let socket = format!("limitset-test-{}-{}", std::process::id(), COUNT.fetch_add(1, Relaxed));
        let it = Self { socket };
        let (width, height) = (width.to_string(), height.to_string());
        // A shell without history and with a fixed prompt.
        let shell = ["sh", "-c", "PS1='ready> ' exec sh -i"];
        it.tmux(
            &[&["-f", "/dev/null", "new-session", "-d", "-x", &width, "-y", &height][..], &shell].concat(),
        );
        it.until(|screen| screen.contains("ready>"));
        Some(it)
    }

    fn tmux(&self, args: &[&str]) -> String {
        let mut command = Command::new("tmux");
        command.args(["-L", &self.socket]).args(args).env_remove("TMUX").env_remove("NO_COLOR");
        let output = command.env("LC_ALL", "C.UTF-8").output().unwrap();
        assert!(output.status.success(), "tmux {args:?}: {output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn run(&self, line: &str) {
        self.tmux(&["send-keys", "-l", line]);
        self.tmux(&["send-keys", "Enter"]);
    }

    fn top(&self, args: &str) {
        self.run(&format!(
            "clear; {} top --interval 50ms {args}; echo ended with $?",
            env!("CARGO_BIN_EXE_limitset")
        ));
    }

    fn keys(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat());
    }

    fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    fn flag(&self, name: &str) -> String {
        self.tmux(&["display-message", "-p", &format!("#{{{name}}}")]).trim().to_owned()
    }

    /// Waits until the screen matches, under the watchdog.
    fn until(&self, is_there: impl Fn(&str) -> bool) -> String {
        let mut rounds = 0;
        loop {
            let screen = self.screen();
            if is_there(&screen) {
                return screen;
            }
            rounds += 1;
            assert!(rounds < 3_000, "this stays:\n{screen}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits for the end of `top`, and checks that the terminal was restored.
    fn clean_end(&self, code: i32) {
        self.until(|screen| screen.contains(&format!("ended with {code}")));
        assert_eq!([self.flag("alternate_on"), self.flag("cursor_flag")], ["0", "1"]);
        // Echo and line mode are on again.
        self.run("stty -a");
        let modes = self.until(|screen| screen.contains("-extproc"));
        let has = |mode: &str| modes.split_whitespace().any(|word| word == mode);
        assert!(["icanon", "echo", "isig"].into_iter().all(has), "{modes}");
    }

    /// Returns the PID of the `top` that runs in the terminal.
    fn process(&self) -> Pid {
        let shell = self.flag("pane_pid");
        let children = std::fs::read_to_string(format!("/proc/{shell}/task/{shell}/children")).unwrap();
        Pid::from_raw(children.split_whitespace().next().unwrap().parse().unwrap())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = Command::new("tmux").args(["-L", &self.socket, "kill-server"]).stderr(Stdio::null()).status();
    }
}

/// Commands that hold permits until this is dropped.
struct Holders(Vec<Child>);

impl Holders {
    fn start(name: &str, count: usize) -> Self {
        let start = |_| limitset().args(["run", name, "--", "cat"]).stdin(Stdio::piped()).spawn().unwrap();
        Self((0..count).map(start).collect())
    }
}

impl Drop for Holders {
    fn drop(&mut self) {
        for child in &mut self.0 {
            drop(child.stdin.take());
        }
        for child in &mut self.0 {
            let _ = child.wait();
        }
    }
}

fn sets() -> (Name, LimitSet, Name, LimitSet) {
    let (a, b) = (Name::new("top-a"), Name::new("top-b"));
    let builder = LimitSet::builder().limit(CallLimit::per_hour(100));
    let set_a =
        builder.limit(ResourceLimit::new("connections", 2)).config("region", "eu").create(&a.0).unwrap();
    let set_b = LimitSet::builder().limit(RateLimit::per_hour("tokens", 1_000)).create(&b.0).unwrap();
    (a, set_a, b, set_b)
}

fn is_stopped(process: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    stat.rsplit(')').next().unwrap().trim_start().starts_with('T')
}

/// Returns the line that begins with this text.
fn line<'a>(screen: &'a str, start: &str) -> &'a str {
    screen.lines().find(|line| line.trim_start().starts_with(start)).unwrap_or_default()
}

#[test]
fn top_shows_on_every_size_who_holds_what_and_who_waits() {
    watched(|| {
        for (width, height) in [(80, 24), (200, 50)] {
            let Some(terminal) = Terminal::open("top_shows_on_every_size", width, height) else { return };
            let (a, set, b, _) = sets();
            let _holders = Holders::start(&a, 3);
            while set.stats().unwrap().waiters < 1 {
                std::thread::sleep(Duration::from_millis(5));
            }
            terminal.top(&format!("{} {}", &*a, &*b));
            let screen = terminal.until(|screen| screen.matches("connections=1").count() == 2);
            assert!(line(&screen, "limitset top").contains("2 sets"), "{screen}");
            assert!(
                line(&screen, "connections").contains("100%") && line(&screen, "connections").contains("2/2"),
                "{screen}"
            );
            assert!(line(&screen, "calls").contains("2%"), "{screen}");
            assert_eq!(screen.matches("run:cat").count(), 3, "{screen}");
            assert!(screen.contains("region=eu") && screen.contains("not cooling down"), "{screen}");
            assert!(line(&screen, &a).contains("100%"), "{screen}");
            // Nothing is beyond the right or the lower edge.
            let lines: Vec<_> = screen.lines().collect();
            assert!(lines.last().unwrap().trim_start().starts_with("q end"), "{screen}");
            assert!(lines.last().unwrap().contains("+/- pace"), "{screen}");
            assert_eq!(lines.len(), height as usize, "{screen}");
            terminal.keys(&["q"]);
            terminal.clean_end(0);
        }
    });
}

#[test]
fn top_follows_what_changes_while_it_runs() {
    watched(|| {
        let Some(terminal) = Terminal::open("top_follows", 100, 30) else { return };
        let (a, set, b, _) = sets();
        terminal.top(&format!("{} {}", &*a, &*b));
        terminal.until(|screen| line(screen, "connections").contains("0/2"));
        let holders = Holders::start(&a, 1);
        terminal.until(|screen| line(screen, "connections").contains("1/2") && screen.contains("run:cat"));
        drop(holders);
        terminal.until(|screen| line(screen, "connections").contains("0/2") && !screen.contains("run:cat"));
        set.pause(Duration::from_secs(1_000)).unwrap();
        terminal.until(|screen| screen.contains("cooling down for"));
        // Select another set: its limits are shown.
        terminal.keys(&["Down"]);
        terminal.until(|screen| line(screen, "tokens").contains("0/1000"));
        terminal.keys(&["s"]);
        terminal.until(|screen| line(screen, "SET").contains("by use"));
        terminal.keys(&["r"]);
        terminal.until(|screen| line(screen, "SET").contains("by use, reversed"));
        terminal.keys(&["Tab", "s"]);
        terminal.until(|screen| screen.contains("(by pid)"));
        terminal.keys(&["Space"]);
        terminal.until(|screen| line(screen, "limitset top").contains("paused"));
        terminal.keys(&["C-c"]);
        terminal.clean_end(0);
    });
}

#[test]
fn top_fits_another_size_at_once() {
    watched(|| {
        let Some(terminal) = Terminal::open("top_fits_another_size", 80, 24) else { return };
        let (a, _set, ..) = sets();
        terminal.top(&a);
        for (width, height) in [(200usize, 50usize), (30, 8), (10, 3), (80, 24)] {
            terminal.tmux(&["resize-window", "-x", &width.to_string(), "-y", &height.to_string()]);
            terminal.until(|screen| {
                let lines: Vec<_> = screen.lines().collect();
                let is_wide =
                    lines.iter().any(|line| line.starts_with("──") && line.chars().count() == width);
                lines.first().is_some_and(|line| line.starts_with(" limitset")) && (is_wide || height < 20)
            });
        }
        terminal.keys(&["q"]);
        terminal.clean_end(0);
    });
}

#[test]
fn top_says_that_a_set_is_gone_and_goes_on() {
    watched(|| {
        let Some(terminal) = Terminal::open("top_says_that_a_set_is_gone", 120, 24) else { return };
        let (a, set, b, _) = sets();
        terminal.top(&format!("{} {}", &*a, &*b));
        terminal.until(|screen| line(screen, "connections").contains("0/2"));
        set.remove().unwrap();
        terminal.until(|screen| screen.contains("last known state; now: there is no set"));
        // After the set is created again, it is watched again.
        let again = LimitSet::builder().limit(ResourceLimit::new("others", 5)).create(&a.0).unwrap();
        terminal.until(|screen| line(screen, "others").contains("0/5"));
        // Put another file in its place.
        drop(again);
        let other = a.path().with_extension("other");
        std::fs::write(&other, "no segment at all").unwrap();
        std::fs::rename(&other, a.path()).unwrap();
        terminal.until(|screen| screen.contains("last known state; now: "));
        terminal.keys(&["q"]);
        terminal.clean_end(0);
    });
}

#[test]
fn top_leaves_the_terminal_clean_whatever_ends_it() {
    watched(|| {
        let Some(terminal) = Terminal::open("top_leaves_the_terminal_clean", 80, 24) else { return };
        let (a, ..) = sets();
        for (signal, code) in [(Signal::SIGTERM, 143), (Signal::SIGINT, 130), (Signal::SIGHUP, 129)] {
            terminal.top(&a);
            terminal.until(|screen| screen.contains("q end"));
            assert_eq!([terminal.flag("alternate_on"), terminal.flag("cursor_flag")], ["1", "0"]);
            kill(terminal.process(), signal).unwrap();
            terminal.clean_end(code);
        }
        // Stopped and continued, as by a shell.
        terminal.top(&a);
        terminal.until(|screen| screen.contains("q end"));
        let process = terminal.process();
        kill(process, Signal::SIGTSTP).unwrap();
        terminal.until(|screen| screen.to_lowercase().contains("stopped"));
        assert_eq!(terminal.flag("alternate_on"), "0");
        terminal.run("fg");
        terminal.until(|screen| line(screen, "connections").contains("0/2"));
        terminal.keys(&["q"]);
        terminal.until(|screen| screen.contains("ready>") && !screen.contains("q end"));
        assert_eq!([terminal.flag("alternate_on"), terminal.flag("cursor_flag")], ["0", "1"]);
    });
}

#[test]
fn top_has_no_colours_where_they_are_not_wanted() {
    watched(|| {
        let Some(terminal) = Terminal::open("top_has_no_colours", 80, 24) else { return };
        let (a, ..) = sets();
        let _holders = Holders::start(&a, 2);
        let coloured = || terminal.tmux(&["capture-pane", "-p", "-e"]);
        // 39 and 49 are the terminal's default colours.
        let has_colour = |text: &str| {
            let codes = text.split("\x1b[").skip(1).filter_map(|rest| rest.split('m').next());
            codes
                .flat_map(|codes| codes.split(';'))
                .any(|code| code.parse().is_ok_and(|code: u32| matches!(code, 30..=38 | 40..=48 | 90..=107)))
        };
        terminal.top(&a);
        terminal.until(|screen| screen.matches("connections=1").count() == 2);
        assert!(has_colour(&coloured()));
        terminal.keys(&["q"]);
        terminal.clean_end(0);
        terminal.run("NO_COLOR=1; export NO_COLOR");
        terminal.top(&a);
        terminal.until(|screen| screen.matches("connections=1").count() == 2);
        assert!(!has_colour(&coloured()), "{}", coloured());
        terminal.keys(&["q"]);
        terminal.clean_end(0);
    });
}

#[test]
fn top_without_a_terminal_is_one_picture_in_words_or_json() {
    watched(|| {
        let (a, set, b, _) = sets();
        let held = set.try_acquire(()).unwrap();
        let ran = run(&["top", &a, &b]).ends(0);
        assert!(ran.out().contains(&*a) && ran.out().contains(&*b) && !ran.out().contains('\x1b'), "{ran:?}");
        let told = run(&["top", "--json", &a]).ends(0).json();
        assert_eq!((told[0]["name"].as_str(), told[0]["limits"][1]["in_use"].as_u64()), (Some(&*a), Some(1)));
        assert_eq!(told.as_array().unwrap().len(), 1);
        held.release().unwrap();
        run(&["top", "test-cli-there-is-none"]).ends(3);
        run(&["top", "--interval", "x"]).ends(2);
        assert!(Segment::path_of(&a.0).is_ok());
    });
}

#[test]
fn run_is_stopped_continued_and_interrupted_from_the_terminal_as_its_command_is() {
    watched(|| {
        let Some(terminal) = Terminal::open("run_in_a_terminal", 80, 24) else { return };
        let (a, set, ..) = sets();
        let in_use = || set.stats().unwrap().limit("connections").unwrap().in_use;
        let run = format!("{} run {}", env!("CARGO_BIN_EXE_limitset"), &*a);
        // The script counts its signals: a signal from the terminal arrives once.
        let script = "trap 'n=$((n+1))' INT; echo begun; until read line; do :; done; echo $line after $n";
        terminal
            .run(&format!("clear; {run} -- sh -c '{}'; echo ended with $?", script.replace('\'', "'\\''")));
        terminal.until(|screen| screen.lines().any(|line| line == "begun"));
        terminal.keys(&["C-z"]);
        terminal.until(|screen| screen.to_lowercase().contains("stopped"));
        assert_eq!((in_use(), set.reap().unwrap()), (1, 0), "stopped is not dead");
        let wrapper = terminal.process();
        terminal.run("fg");
        // A terminal discards unread input on Ctrl-C.
        terminal.until(|_| !is_stopped(wrapper));
        terminal.keys(&["C-c"]);
        terminal.until(|screen| screen.contains("^C"));
        terminal.run("well");
        terminal.until(|screen| screen.contains("well after 1"));
        while in_use() > 0 {
            std::thread::sleep(Duration::from_millis(5));
        }
        terminal.run(&format!("clear; {run} -- sleep 1000; echo ended with $?"));
        while in_use() == 0 {
            std::thread::sleep(Duration::from_millis(5));
        }
        terminal.keys(&["C-c"]);
        terminal.until(|screen| screen.contains("ended with 130"));
        assert_eq!(in_use(), 0);
    });
}
