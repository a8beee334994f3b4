//! Many `limitset run` in a shell script: never more commands run at once than there are permits, and all get
//! their turn, also while wrappers are killed.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod support;

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use limitset::{LimitSet, ResourceLimit};

use support::{Name, watched};

const PROCESSES: usize = 20;
const CONNECTIONS: u64 = 3;

/// Each command logs its start and its end; a line of this length is appended atomically. With a seed, two of
/// three wrappers are killed, some at once, some a little later.
const SCRIPT: &str = r#"
RANDOM=$SEED
for i in {1..20}; do
    "$LIMITSET" run "$NAME" --need connections=1 -- \
        bash -c 'echo + >>"$LOG"; sleep 0.0$((RANDOM % 5 + 1)); echo - >>"$LOG"' &
    jobs[i]=$!
    [ $SEED -gt 0 ] && [ $((RANDOM % 3)) = 0 ] && kill -KILL %$i
done
for i in {1..20}; do
    [ $SEED -gt 0 ] && [ $((RANDOM % 2)) = 0 ] && sleep 0.01 && kill -KILL %$i
done 2>/dev/null
ended=0 killed=0 other=0
for i in {1..20}; do
    wait ${jobs[i]}
    case $? in
        0) ended=$((ended + 1)) ;;
        137) killed=$((killed + 1)) ;;
        *) other=$((other + 1)) ;;
    esac
done 2>/dev/null
echo $ended $killed $other
"#;

struct Stage {
    name: Name,
    set: LimitSet,
    log: PathBuf,
}

impl Stage {
    fn new(about: &str) -> Self {
        let name = Name::new(about);
        let limit = ResourceLimit::new("connections", CONNECTIONS);
        let set = LimitSet::builder().limit(limit).create(&name.0).unwrap();
        let log = std::env::temp_dir().join(&*name);
        fs::write(&log, "").unwrap();
        Self { name, set, log }
    }

    /// Runs the script. Returns how many wrappers ended well, were killed, and ended otherwise.
    fn run(&self, seed: u64) -> [usize; 3] {
        let mut command = Command::new("bash");
        command.args(["-c", SCRIPT]).env("LIMITSET", env!("CARGO_BIN_EXE_limitset"));
        command.env("NAME", &*self.name).env("LOG", &self.log).env("SEED", seed.to_string());
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let numbers: Vec<usize> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        numbers.try_into().unwrap_or_else(|_| panic!("{output:?}"))
    }

    /// Returns how many commands began and ended. Asserts that never too many ran at once.
    fn check(&self) -> (usize, usize) {
        let log = fs::read_to_string(&self.log).unwrap();
        let (mut began, mut ended) = (0, 0);
        for line in log.lines() {
            match line {
                "+" => began += 1,
                "-" => ended += 1,
                other => panic!("{other:?} in the log"),
            }
            assert!(began - ended <= usize::try_from(CONNECTIONS).unwrap(), "too many at once:\n{log}");
        }
        (began, ended)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.log);
    }
}

#[test]
fn of_twenty_in_the_background_three_run_at_once_and_all_finish() {
    watched(|| {
        let stage = Stage::new("twenty");
        assert_eq!(stage.run(0), [PROCESSES, 0, 0]);
        assert_eq!(stage.check(), (PROCESSES, PROCESSES));
        let stats = stage.set.stats().unwrap();
        let connections = stats.limit("connections").unwrap();
        assert_eq!((connections.in_use, connections.granted, stats.waiters), (0, PROCESSES as u64, 0));
        assert_eq!(stats.reaped_permits, 0, "every wrapper released its own permits");
    });
}

#[test]
fn killed_wrappers_let_nobody_run_too_much_and_keep_nobody_waiting() {
    watched(|| {
        for seed in 1..=5u64 {
            let stage = Stage::new("killed");
            let [well, killed, otherwise] = stage.run(seed);
            assert_eq!((well + killed, otherwise), (PROCESSES, 0));
            assert!(killed > 0, "the script kills");
            // The commands hold the permits until they end.
            stage.set.acquire([("connections", CONNECTIONS)]).unwrap().release().unwrap();
            let (began, ended) = stage.check();
            assert_eq!(began, ended, "every command that began finished");
            assert!(began >= well, "every command whose wrapper was not killed finished");
            let stats = stage.set.stats().unwrap();
            assert_eq!((stats.limit("connections").unwrap().in_use, stats.waiters), (0, 0));
        }
    });
}
