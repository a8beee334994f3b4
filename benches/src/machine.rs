//! The machine, the versions and the date, on which absolute times depend; and whether other processes
//! disturbed the run.

use std::fs;
use std::process::Command;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// The share of the processors that other processes may use, in percent, before a run should be repeated.
const QUIET: f64 = 10.0;

/// The state of the machine at the beginning of the run.
pub struct Machine {
    quick: bool,
    start: Instant,
    load: String,
    busy: Option<Ticks>,
    redis: String,
    /// Filled when the run ends.
    end: Option<(f64, String)>,
}

/// Time of all processors, in ticks.
#[derive(Clone, Copy)]
struct Ticks {
    busy: u64,
    stolen: u64,
    all: u64,
}

impl Machine {
    pub fn new(quick: bool) -> Machine {
        let (load, redis) = (load(), "not run".to_owned());
        Machine { quick, start: Instant::now(), load, busy: ticks(), redis, end: None }
    }

    pub fn redis(&mut self, version: String) {
        self.redis = version;
    }

    /// Ends the run. Call it after all children are reaped: their CPU time is known only then.
    pub fn run_ends(&mut self) {
        let others = match (self.busy, ticks()) {
            (Some(before), Some(after)) if after.all > before.all => {
                let all = (after.all - before.all) as f64;
                let ours = used_by_us() as f64;
                let others = ((after.busy - before.busy) as f64 - ours).max(0.0) / all * 100.0;
                let stolen = (after.stolen - before.stolen) as f64 / all * 100.0;
                let told = format!(
                    "other processes used {others:.0} % of the CPUs, the hypervisor took {stolen:.0} %"
                );
                let quiet = others + stolen <= QUIET;
                if quiet { told } else { told + ": **not a quiet machine, repeat the run**" }
            }
            _ => "the CPU use of other processes is unknown".to_owned(),
        };
        self.end = Some((self.start.elapsed().as_secs_f64(), others));
    }

    pub fn summary(&self) -> String {
        let (seconds, others) = self.end.clone().unwrap_or_default();
        let mode = if self.quick { "`--quick` (shorter batches, more noise)" } else { "full" };
        let cpus = crate::sys::cpus().len();
        format!(
            "* {}: {mode} run of {seconds:.0} s at commit {}\n* {}, {cpus} CPUs, Linux {}, clock source {}\n\
             * load average before the run {}; {others}\n",
            date(),
            commit(),
            cpu(),
            read("/proc/sys/kernel/osrelease"),
            read("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
            self.load,
        )
    }

    pub fn versions(&self) -> String {
        let names = ["limitset", "governor", "leaky-bucket", "limitador", "ratelimit", "raw_sync", "tokio"];
        let versions: Vec<String> = names.iter().map(|name| format!("{name} {}", version_of(name))).collect();
        format!(
            "\n## versions\n\n{}; redis-server {}; {}; release profile without LTO.\n",
            versions.join(", "),
            self.redis,
            said(Command::new("rustc").arg("--version")),
        )
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).map_or("unknown".to_owned(), |text| text.trim().to_owned())
}

fn said(command: &mut Command) -> String {
    let output = command.output().ok().filter(|output| output.status.success());
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    text.unwrap_or("unknown".to_owned())
}

fn load() -> String {
    read("/proc/loadavg").split_whitespace().next().unwrap_or("unknown").to_owned()
}

fn cpu() -> String {
    let info = read("/proc/cpuinfo");
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    model.map_or("unknown processor".to_owned(), |(_, name)| name.to_owned())
}

fn commit() -> String {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let hash = said(Command::new("git").args(["-C", folder, "rev-parse", "--short", "HEAD"]));
    let changes = said(Command::new("git").args(["-C", folder, "status", "--porcelain", "src"]));
    if changes.is_empty() || changes == "unknown" { hash } else { format!("{hash} with changes") }
}

/// Returns the version in the lock file.
fn version_of(name: &str) -> String {
    let lock = include_str!("../Cargo.lock");
    let entry = lock.split("[[package]]").find(|entry| entry.contains(&format!("name = \"{name}\"\n")));
    let version = entry.and_then(|entry| entry.split("version = \"").nth(1)?.split('"').next());
    version.unwrap_or("?").to_owned()
}

fn date() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let (year, month, day) = civil((seconds / 86_400) as i64);
    format!("{year}-{month:02}-{day:02}")
}

/// Returns year, month and day of a day since 1970: eras of 400 years that begin in March.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (day, month) = (day - (153 * month + 2) / 5 + 1, if month < 10 { month + 3 } else { month - 9 });
    (year + era * 400 + i64::from(month <= 2), month, day)
}

fn ticks() -> Option<Ticks> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    let fields: Vec<u64> = stat.lines().next()?.split_whitespace().skip(1).flat_map(str::parse).collect();
    // user, nice, system, idle, iowait, irq, softirq, steal; the rest is counted in user already.
    let fields = fields.get(..8)?;
    let all = fields.iter().sum();
    Some(Ticks { busy: fields[0] + fields[1] + fields[2] + fields[5] + fields[6], stolen: fields[7], all })
}

/// Returns the ticks of this process and of all reaped children.
fn used_by_us() -> u64 {
    // SAFETY: plain data.
    let mut times: libc::tms = unsafe { std::mem::zeroed() };
    // SAFETY: filled by the kernel, and outlives the call.
    unsafe { libc::times(&raw mut times) };
    (times.tms_utime + times.tms_stime + times.tms_cutime + times.tms_cstime) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_become_dates() {
        assert_eq!(civil(0), (1970, 1, 1));
        assert_eq!(civil(19_782), (2024, 2, 29));
        assert_eq!(civil(20_088), (2024, 12, 31));
    }

    #[test]
    fn rivals_are_in_the_lock_file() {
        assert!(version_of("governor").starts_with("0."));
        assert_eq!(version_of("no-such-crate"), "?");
    }
}
