//! `limitset simulate`, `bench` and `demo`: exact where the clock is virtual, complete where it is not.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod support;

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::Stdio;

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

use support::{Name, limitset, run, watched};

#[test]
fn simulate_says_exactly_what_would_have_been_admitted() {
    watched(|| {
        // A burst of 5 and then 10 a second: of 100 requests in a second, 5 and one every 100 ms.
        let args = [
            "simulate",
            "--json",
            "--limit",
            "calls=10/s:burst=5",
            "--every",
            "10ms",
            "--for",
            "1s",
            "--each",
        ];
        let told = run(&args).ends(0).json();
        let scenario = &told["scenarios"][0];
        assert_eq!((told["requests"].as_u64(), scenario["admitted"].as_u64()), (Some(100), Some(14)));
        assert_eq!(scenario["denied"], 86);
        assert_eq!(scenario["taken"]["call_count"], 14);
        let each = scenario["each"].as_array().unwrap();
        let admitted =
            each.iter().filter_map(|it| it["admitted_at_seconds"].as_f64()).map(|at| (at * 1e3).round());
        let expected = [0., 10., 20., 30., 40., 100., 200., 300., 400., 500., 600., 700., 800., 900.];
        assert_eq!(admitted.collect::<Vec<_>>(), expected);
        let buckets = scenario["buckets"].as_array().unwrap();
        let sum = |key: &str| buckets.iter().map(|it| it[key].as_u64().unwrap()).sum::<u64>();
        assert_eq!((sum("arrived"), sum("admitted"), sum("denied")), (100, 14, 86));
    });
}

#[test]
fn simulate_compares_what_is_with_what_could_be() {
    watched(|| {
        let what_if =
            ["simulate", "--limit", "tokens=200k/min:burst=10k", "--what-if", "tokens=300k/min:burst=10k"];
        let load = ["--need", "tokens=1500", "--every", "300ms", "--for", "10min"];
        let told = run(&[&what_if[..], &load, &["--json"]].concat()).ends(0).json();
        let admitted = |index: usize| told["scenarios"][index]["taken"]["tokens"].as_u64().unwrap();
        // One burst, and the rate until the last request at 599.7 s, less at most one request.
        assert!((2_009_000 - 1_499..=2_009_000).contains(&admitted(0)), "{}", admitted(0));
        assert_eq!(admitted(1), 3_000_000, "all that was asked for");
        let ran = run(&[&what_if[..], &load].concat()).ends(0);
        assert!(ran.out().contains("more would be admitted"), "{ran:?}");
        assert!(ran.out().contains('█') && ran.out().contains('░'), "{ran:?}");
        let unknown = run(&["simulate", "--limit", "a=1/s", "--what-if", "b=1/s"]).ends(2);
        assert!(unknown.err().contains("keys of --limit are a"), "{unknown:?}");
    });
}

#[test]
fn simulate_plays_a_trace_and_says_which_line_is_wrong() {
    watched(|| {
        let name = Name::new("trace");
        let path = std::env::temp_dir().join(format!("{}.csv", &*name));
        let trace = |text: &str, more: &[&str]| {
            fs::write(&path, text).unwrap();
            let limits = ["simulate", "--json", "--limit", "tokens=60/min", "--limit", "db=1"];
            run(&[&limits[..], &["--trace", path.to_str().unwrap()], more].concat())
        };
        // The second request waits for the connection, the third for tokens, and the fourth exceeds the
        // maximum.
        let text = "time,tokens,hold\n0,50,2\n1,8,1\n1.5,10,\n2,61,\n";
        let told = trace(text, &["--wait", "1min", "--each"]).ends(0).json();
        let scenario = &told["scenarios"][0];
        let counts = ["admitted", "denied", "never"].map(|key| scenario[key].as_u64().unwrap());
        assert_eq!(counts, [3, 0, 1]);
        let at: Vec<_> =
            (0..3).map(|it| scenario["each"][it]["admitted_at_seconds"].as_f64().unwrap()).collect();
        assert_eq!(at, [0.0, 2.0, 8.0]);
        let told = trace(text, &[]).ends(0).json();
        assert_eq!(told["scenarios"][0]["admitted"], 1, "without waiting");
        trace("\u{feff}time,tokens\r\n0,1\r\n", &[]).ends(0);
        let wrong = trace("time,tokens\n0,1\n0,x\n", &[]).ends(2);
        assert!(wrong.err().contains("line 3: ") && wrong.err().contains("is not an amount"), "{wrong:?}");
        fs::remove_file(&path).unwrap();
        let missing = trace_of("/nonexistent/trace.csv");
        assert!(missing.err().contains("/nonexistent/trace.csv"), "{missing:?}");
    });
}

fn trace_of(path: &str) -> support::Ran {
    run(&["simulate", "--limit", "tokens=60/min", "--trace", path]).ends(1)
}

#[test]
fn bench_counts_every_operation_of_every_worker() {
    watched(|| {
        let told = run(&["bench", "--json", "--workers", "3", "--seconds", "0.2"]).ends(0).json();
        let run_of = &told["runs"][0];
        let each = run_of["fairness"]["each"].as_array().unwrap();
        let sum: u64 = each.iter().map(|it| it.as_u64().unwrap()).sum();
        assert_eq!((each.len(), Some(sum)), (3, run_of["granted"].as_u64()));
        assert!(sum > 0 && run_of["denied"] == 0 && told["best_workers"].is_null(), "{told}");
        let latency =
            ["p50", "p90", "p99", "p999", "max"].map(|key| run_of["latency_nanos"][key].as_u64().unwrap());
        assert!(latency.is_sorted() && latency[0] > 0, "{told}");
        // Limits that deny are counted, and not exceeded.
        let args = ["bench", "--json", "--seconds", "0.2", "--workers", "2", "--limit", "calls=10/h"];
        let told = run(&args).ends(0).json();
        assert_eq!(told["runs"][0]["granted"], 10);
        assert!(told["runs"][0]["denied"].as_u64().unwrap() > 0);
        let ran = run(&["bench", "--seconds", "0.05"]).ends(0);
        assert!(ran.out().contains("WORKERS") && ran.err().is_empty(), "{ran:?}");
        run(&["bench", "--workers", "0"]).ends(2);
        run(&["bench", "--seconds", "soon"]).ends(2);
    });
}

#[test]
fn bench_finds_a_number_of_workers() {
    watched(|| {
        let told = run(&["bench", "--json", "--tune", "--seconds", "0.05"]).ends(0).json();
        let runs = told["runs"].as_array().unwrap();
        let workers: Vec<_> = runs.iter().map(|it| it["workers"].as_u64().unwrap()).collect();
        assert!(workers.len() >= 3 && workers.is_sorted() && workers[0] == 1, "{told}");
        assert!(workers.contains(&told["best_workers"].as_u64().unwrap()), "{told}");
    });
}

#[test]
fn the_demo_kills_a_worker_and_its_connection_comes_back() {
    watched(|| {
        let told = run(&["demo", "--json"]).ends(0).json();
        assert_eq!((told["killed_holding"].as_u64(), told["reaped_permits"].as_u64()), (Some(1), Some(1)));
        assert!(told["most_held_at_once"].as_u64().unwrap() <= 3 && told["left_behind"] == 0, "{told}");
        assert_ne!(told["killed_pid"], told["replaced_by_pid"]);
        let killed = told["killed_pid"].as_i64().unwrap();
        assert!(!std::path::Path::new(&format!("/proc/{killed}")).exists(), "really killed, and buried");
        let ran = run(&["demo", "--fast"]).ends(0);
        for words in ["kill -KILL", "came back after", "none left behind"] {
            assert!(ran.out().contains(words), "{ran:?}");
        }
        assert!(!ran.out().contains('\x1b'), "no terminal, no codes: {ran:?}");
    });
}

/// Returns the processes of a process group.
fn members(group: Pid) -> Vec<String> {
    let is_member = |entry: &fs::DirEntry| {
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let fields: Vec<_> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        fields.get(2).is_some_and(|it| *it == group.to_string()) && !["Z", "X"].contains(&fields[0])
    };
    let entries = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    entries.filter(is_member).map(|it| it.file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn an_interrupted_demo_or_bench_leaves_nobody_behind() {
    watched(|| {
        for (args, signal, is_to_all) in [
            (&["demo"][..], Signal::SIGINT, true),
            (&["demo"], Signal::SIGKILL, false),
            (&["bench", "--seconds", "100"], Signal::SIGINT, true),
            (&["bench", "--seconds", "100"], Signal::SIGKILL, false),
        ] {
            let mut command = limitset();
            command.args(args).process_group(0).stdout(Stdio::piped());
            let mut child = command.spawn().unwrap();
            let group = Pid::from_raw(i32::try_from(child.id()).unwrap());
            let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
            // The demo prints when it has workers; a bench has them soon after its start.
            if args[0] == "demo" {
                output.find(|line| line.as_ref().unwrap().starts_with("1 ")).unwrap().unwrap();
            }
            while members(group).len() < 5 {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            if is_to_all {
                killpg(group, signal).unwrap()
            } else {
                kill(group, signal).unwrap()
            }
            assert_eq!(child.wait().unwrap().signal(), Some(signal as i32));
            while !members(group).is_empty() {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
        }
    });
}
