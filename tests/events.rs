//! Events: what is told to `tracing`, with which fields. Needs the feature `tracing`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[path = "support/forge.rs"]
mod forge;
#[path = "support/mod.rs"]
mod support;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use limitset::{
    Balance, CallLimit, Clock, Cooldown, LimitPool, LimitSet, OnUnavailable, QueueOptions, RateLimit,
    Request, ResourceLimit, Segment,
};
use nix::sys::signal::Signal;
use support::{TempName, Worker, listen, say};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

fn main() {
    support::main(
        &[("hold", hold_role), ("lock", lock_role)],
        vec![
            ("a_grant_is_told_with_its_label_and_ticket", granted),
            ("a_denial_is_told_for_every_limit_in_the_way", denied),
            ("what_can_never_be_is_told_as_denied", never),
            ("those_who_came_first_are_told_as_a_queue", queued),
            ("a_wait_is_told_with_its_time", waited),
            ("a_wait_that_was_too_long_is_told", timed_out),
            ("what_the_dead_held_is_told", reaped),
            ("a_waiter_that_finds_the_dead_tells_it", reaped_by_a_waiter),
            ("a_future_that_finds_the_dead_tells_it", reaped_by_a_future),
            ("a_lock_taken_from_the_dead_is_told", recovered),
            ("a_change_of_numbers_is_told", reconfigured),
            ("a_pause_is_told_and_what_it_absorbs", paused),
            ("a_dead_letter_is_told_with_its_counts", dead_letter),
            ("what_is_let_through_unasked_is_told_with_its_label", not_enforced),
            ("a_removed_set_of_a_pool_is_told_where_it_is_skipped", skipped),
            ("charges_are_told_like_acquisitions", charged),
            ("the_label_of_a_resolved_request_is_told", resolved),
            ("without_the_feature_there_is_no_tracing_in_the_tree", no_dependency),
        ],
    );
}

/// One event: its name, its level, its fields as text.
#[derive(Clone, Debug)]
struct Told {
    name: String,
    level: Level,
    fields: BTreeMap<&'static str, String>,
}

impl Told {
    fn is(&self, level: Level, name: &str, fields: &[(&str, &str)]) {
        assert_eq!((self.name.as_str(), self.level), (name, level), "{self:?}");
        for (key, value) in fields {
            assert_eq!(self.fields.get(key).map(String::as_str), Some(*value), "{key} of {self:?}");
        }
        assert!(self.fields.contains_key("set"), "{self:?}");
    }
}

impl Visit for Told {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.name = format!("{value:?}"),
            key => drop(self.fields.insert(key, format!("{value:?}"))),
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields.insert(field.name(), value.to_owned());
    }
}

/// Writes down all that this library tells.
#[derive(Clone, Default)]
struct Listener(Arc<Mutex<Vec<Told>>>);

impl Listener {
    /// What was told since the last time.
    fn take(&self) -> Vec<Told> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }

    /// The one event of a name since the last time.
    fn one(&self, name: &str) -> Told {
        let told = self.take();
        let mut named = told.iter().filter(|it| it.name == name);
        let one = named.next().unwrap_or_else(|| panic!("no {name} in {told:?}"));
        assert!(named.next().is_none(), "{name} twice in {told:?}");
        one.clone()
    }
}

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "limitset"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn event(&self, event: &Event<'_>) {
        let mut told =
            Told { name: String::new(), level: *event.metadata().level(), fields: BTreeMap::new() };
        event.record(&mut told);
        self.0.lock().unwrap().push(told);
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// Listens to this thread.
fn listening(test: impl FnOnce(&Listener)) {
    let listener = Listener::default();
    tracing::subscriber::with_default(listener.clone(), || test(&listener));
}

fn labelled<'a>(request: impl Into<Request<'a>>) -> Request<'a> {
    request.into().label("backup")
}

const LABEL: (&str, &str) = ("label", "backup");

fn permit() -> LimitSet {
    LimitSet::builder().limit(ResourceLimit::new("db", 1)).in_memory().unwrap()
}

fn granted() {
    listening(|listener| {
        let set = permit();
        let held = set.try_acquire(labelled(())).unwrap();
        listener.one("granted").is(Level::DEBUG, "granted", &[LABEL, ("ticket", &held.ticket().to_string())]);
        drop(held);
        let held = set.acquire(()).unwrap();
        let told = listener.one("granted");
        assert_eq!(told.fields.get("label"), None, "it had none");
        assert_eq!(told.fields["ticket"], held.ticket().to_string());
    });
}

fn denied() {
    listening(|listener| {
        let set = LimitSet::builder()
            .limit(RateLimit::per_hour("tokens", 10))
            .limit(RateLimit::per_hour("bytes", 10))
            .limit(ResourceLimit::new("db", 1))
            .clock(Clock::Manual)
            .in_memory()
            .unwrap();
        let _held = set.try_acquire([("tokens", 7)]).unwrap();
        listener.take();
        set.try_acquire(labelled([("tokens", 5), ("bytes", 5)])).unwrap_err();
        let told = listener.take();
        assert_eq!(told.len(), 2, "{told:?}");
        told[0].is(
            Level::INFO,
            "denied",
            &[LABEL, ("limit", "tokens"), ("requested", "5"), ("available", "3")],
        );
        told[1].is(Level::INFO, "denied", &[LABEL, ("limit", "db"), ("requested", "1"), ("available", "0")]);
    });
}

fn never() {
    listening(|listener| {
        let refusal = permit().acquire(labelled([("db", 2)]));
        refusal.unwrap_err();
        listener.one("denied").is(
            Level::INFO,
            "denied",
            &[LABEL, ("limit", "db"), ("requested", "2"), ("available", "1")],
        );
    });
}

/// Somebody waits for `set` in another thread, which is not listened to, while `test` runs; `end` lets it go.
fn while_somebody_waits(set: &LimitSet, test: impl FnOnce(), end: impl FnOnce()) {
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| set.acquire(()).unwrap().release());
        wait_for_waiters(set, 1);
        test();
        end();
        waiter.join().unwrap().unwrap();
    });
}

fn wait_for_waiters(set: &LimitSet, count: u64) {
    while set.stats().unwrap().waiters != count {
        std::thread::yield_now();
    }
}

fn queued() {
    listening(|listener| {
        let set = permit();
        let held = set.try_acquire(()).unwrap();
        let ask = || {
            set.try_acquire(labelled(())).unwrap_err();
            listener.one("queued").is(Level::INFO, "queued", &[LABEL, ("ahead", "1")]);
        };
        while_somebody_waits(&set, ask, || drop(held));
    });
}

fn waited() {
    let set = permit();
    let held = set.try_acquire(()).unwrap();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            listening(|listener| {
                let held = set.acquire(labelled(())).unwrap();
                let told = listener.one("waited");
                told.is(Level::DEBUG, "waited", &[LABEL, ("ticket", &held.ticket().to_string())]);
                assert!(told.fields["nanos"].parse::<u64>().unwrap() > 0);
            });
        });
        wait_for_waiters(&set, 1);
        drop(held);
        waiter.join().unwrap();
    });
}

fn timed_out() {
    listening(|listener| {
        let set = permit();
        let _held = set.try_acquire(()).unwrap();
        let time = Duration::from_millis(2);
        for blocks in [true, false] {
            let late = match blocks {
                true => set.acquire_timeout(labelled(()), time),
                false => pollster::block_on(set.acquire_async(labelled(())).timeout(time)),
            };
            late.unwrap_err();
            let told = listener.one("timed_out");
            told.is(Level::INFO, "timed_out", &[LABEL]);
            assert!(told.fields["nanos"].parse::<u128>().unwrap() >= time.as_nanos());
        }
    });
}

/// Holds a permit until it is killed.
fn hold_role(arguments: &[String]) {
    let set = LimitSet::attach(&arguments[0]).unwrap();
    let held = set.try_acquire(()).unwrap();
    say("held");
    listen();
    held.release().unwrap();
}

fn held_by_another(name: &TempName) -> (LimitSet, Worker) {
    let set = LimitSet::builder().limit(ResourceLimit::new("db", 1)).open(name).unwrap();
    let mut holder = Worker::start("hold", &[&name.0]);
    holder.expect("held");
    (set, holder)
}

const ONE_DEAD: [(&str, &str); 2] = [("participants", "1"), ("permits", "1")];

fn reaped() {
    listening(|listener| {
        let name = TempName::new();
        let (set, mut holder) = held_by_another(&name);
        holder.kill();
        assert_eq!(set.reap().unwrap(), 1);
        let told = listener.one("reaped");
        told.is(Level::WARN, "reaped", &ONE_DEAD);
        assert_eq!(told.fields["set"], name.path().display().to_string());
        set.reap().unwrap();
        assert!(listener.take().is_empty(), "nobody has died since");
    });
}

fn reaped_by_a_waiter() {
    let name = TempName::new();
    let (set, mut holder) = held_by_another(&name);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            listening(|listener| {
                let _held = set.acquire(()).unwrap();
                let told = listener.take();
                let reaped: Vec<_> = told.iter().filter(|it| it.name == "reaped").collect();
                assert_eq!(reaped.len(), 1, "{told:?}");
                reaped[0].is(Level::WARN, "reaped", &ONE_DEAD);
            });
        });
        wait_for_waiters(&set, 1);
        holder.kill();
        waiter.join().unwrap();
    });
}

/// The helper's thread is not ours to listen to: a process of its own listens to all of its threads.
fn reaped_by_a_future() {
    let name = TempName::new();
    let (set, mut holder) = held_by_another(&name);
    let mut waiter = Worker::start("lock", &["future", &name.0]);
    wait_for_waiters(&set, 1);
    holder.kill();
    waiter.expect("reaped");
}

fn lock_role(arguments: &[String]) {
    let listener = Listener::default();
    if arguments[0] == "future" {
        tracing::subscriber::set_global_default(listener.clone()).unwrap();
        let set = LimitSet::attach(&arguments[1]).unwrap();
        drop(pollster::block_on(set.acquire_async(())).unwrap());
        listener.one("reaped").is(Level::WARN, "reaped", &ONE_DEAD);
        say("reaped");
    } else {
        // Asks as often as it can, so that it is killed with the lock in its hands sooner or later.
        let set = LimitSet::attach(&arguments[1]).unwrap();
        say("ready");
        loop {
            set.try_acquire(()).unwrap().release().unwrap();
        }
    }
}

fn recovered() {
    listening(|listener| {
        for round in 1.. {
            let name = TempName::new();
            let set = LimitSet::builder().limit(ResourceLimit::new("db", 1)).open(&name).unwrap();
            let mut victim = Worker::start("lock", &["loop", &name.0]);
            victim.expect("ready");
            // Somewhere on its way, and not always at the same place.
            for _ in 0..round {
                std::thread::yield_now();
            }
            victim.signal(Signal::SIGKILL);
            victim.kill();
            listener.take();
            set.try_acquire(()).map(drop).ok();
            set.reap().unwrap();
            let told = listener.take();
            let recoveries: Vec<_> = told.iter().filter(|it| it.name == "recovered").collect();
            let steals = set.stats().unwrap().steals;
            assert_eq!(u64::try_from(recoveries.len()).unwrap(), steals, "{told:?}");
            if let [one] = recoveries[..] {
                one.is(Level::WARN, "recovered", &[]);
                return println!("killed with the lock in round {round}");
            }
        }
    });
}

fn reconfigured() {
    listening(|listener| {
        let set = LimitSet::builder().limit(RateLimit::per_hour("tokens", 1)).in_memory().unwrap();
        set.reconfigure([RateLimit::per_hour("tokens", 2)]).unwrap();
        listener.one("reconfigured").is(Level::INFO, "reconfigured", &[("limits", "1")]);
        set.reconfigure([RateLimit::per_hour("bytes", 2)]).unwrap_err();
        assert!(listener.take().is_empty(), "nothing was changed");
    });
}

fn paused() {
    listening(|listener| {
        let cooldown = Cooldown::default().first(Duration::from_secs(5)).jitter(0.0);
        let calls = CallLimit::per_second(9);
        let set =
            LimitSet::builder().limit(calls).cooldown(cooldown).clock(Clock::Manual).in_memory().unwrap();
        let (first, second) = (set.try_acquire(()).unwrap(), set.try_acquire(()).unwrap());
        first.rate_limited(None).unwrap();
        let fields = [("generation", "1"), ("nanos", "5000000000")];
        listener.one("paused").is(Level::WARN, "paused", &fields);
        second.rate_limited(None).unwrap();
        listener.one("absorbed").is(Level::DEBUG, "absorbed", &[("generation", "1")]);
        set.try_acquire(labelled(())).unwrap_err();
        let fields = [("label", "backup"), ("nanos", "5000000000")];
        listener.one("cooling_down").is(Level::INFO, "cooling_down", &fields);
        assert!(set.resume().unwrap() && !set.resume().unwrap());
        listener.one("resumed").is(Level::INFO, "resumed", &[]);
        set.pause(Duration::from_nanos(7)).unwrap();
        listener.one("paused").is(Level::WARN, "paused", &[("generation", "2"), ("nanos", "7")]);
    });
}

fn dead_letter() {
    listening(|listener| {
        let options = QueueOptions::new(3, 4).attempts(2).rate_limits(1);
        let set = LimitSet::builder().limit(CallLimit::per_second(9)).queue(options);
        let set = set.clock(Clock::Manual).in_memory().unwrap();
        let queue = set.queue().unwrap();
        (1..=3).for_each(|id| queue.push(id, b"").unwrap());
        let take = || queue.try_take().unwrap().unwrap();
        let is_dead = |id, attempts, rate_limits| {
            let fields = [("id", id), ("attempts", attempts), ("rate_limits", rate_limits)];
            listener.one("dead_letter").is(Level::WARN, "dead_letter", &fields);
        };
        take().retry(Duration::ZERO).unwrap();
        assert!(listener.take().is_empty(), "it is tried again");
        take().retry(Duration::ZERO).unwrap();
        is_dead("1", "2", "0");
        take().dead_letter(b"why").unwrap();
        is_dead("2", "1", "0");
        take().rate_limited(set.try_acquire(()).unwrap(), None).unwrap();
        is_dead("3", "0", "1");
    });
}

/// A set whose memory makes no sense.
fn broken(name: &TempName) -> LimitSet {
    use std::os::unix::fs::FileExt;
    let set = LimitSet::builder()
        .limit(CallLimit::per_hour(5))
        .on_unavailable(OnUnavailable::Allow)
        .segment(Segment::options().patience(Duration::from_millis(1)))
        .open(name)
        .unwrap();
    let bytes = forge::Forged::read(&name.path());
    let journal = bytes.region(forge::STATE_REGION) + forge::CHANGE;
    let file = std::fs::OpenOptions::new().write(true).open(name.path()).unwrap();
    file.write_all_at(&u64::MAX.to_ne_bytes(), journal as u64).unwrap();
    set
}

fn not_enforced() {
    listening(|listener| {
        let name = TempName::new();
        let set = broken(&name);
        let ways: [fn(&LimitSet) -> bool; 4] = [
            |set| set.try_acquire(labelled(())).unwrap().enforced(),
            |set| set.acquire(labelled(())).unwrap().enforced(),
            |set| pollster::block_on(set.acquire_async(labelled(()))).unwrap().enforced(),
            |set| set.try_charge(labelled(())).unwrap().enforced,
        ];
        for way in ways {
            assert!(!way(&set));
            let told = listener.take();
            assert_eq!(told.len(), 1, "{told:?}");
            told[0].is(Level::WARN, "not_enforced", &[LABEL]);
            assert!(told[0].fields["why"].contains("damaged"), "{told:?}");
        }
    });
}

fn skipped() {
    listening(|listener| {
        for balance in [Balance::RoundRobin, Balance::FirstFree] {
            let pool = LimitPool::new([permit(), permit()]).unwrap().balance(balance);
            pool.sets()[0].remove().unwrap();
            listener.take();
            let held = pool.try_acquire(labelled(())).unwrap();
            assert_eq!(held.pool_index(), Some(1));
            let told = listener.take();
            assert_eq!(told.len(), 2, "{told:?}");
            told[0].is(Level::WARN, "skipped", &[("index", "0")]);
            told[1].is(Level::DEBUG, "granted", &[LABEL]);
        }
    });
}

fn charged() {
    listening(|listener| {
        let set = LimitSet::builder()
            .limit(RateLimit::per_hour("tokens", 5))
            .clock(Clock::Manual)
            .in_memory()
            .unwrap();
        let ticket = set.try_charge(labelled([("tokens", 2)])).unwrap().ticket.to_string();
        listener.one("granted").is(Level::DEBUG, "granted", &[LABEL, ("ticket", &ticket)]);
        let ticket = set.charge(labelled([("tokens", 2)])).unwrap().ticket.to_string();
        listener.one("granted").is(Level::DEBUG, "granted", &[LABEL, ("ticket", &ticket)]);
        set.try_charge(labelled([("tokens", 2)])).unwrap_err();
        let fields = [LABEL, ("limit", "tokens"), ("requested", "2"), ("available", "1")];
        listener.one("denied").is(Level::INFO, "denied", &fields);
        set.charge_timeout(labelled([("tokens", 2)]), Duration::from_millis(1)).unwrap_err();
        listener.one("timed_out").is(Level::INFO, "timed_out", &[LABEL]);
    });
}

fn resolved() {
    listening(|listener| {
        let set = permit();
        let request = set.request().amount("db", 1).label("nightly").build().unwrap();
        set.try_acquire(&request).unwrap().release().unwrap();
        listener.one("granted").is(Level::DEBUG, "granted", &[("label", "nightly")]);
        set.try_acquire(Request::from(&request).label("daily")).unwrap().release().unwrap();
        listener.one("granted").is(Level::DEBUG, "granted", &[("label", "daily")]);
    });
}

fn no_dependency() {
    let cargo = std::env::var_os("CARGO").unwrap_or("cargo".into());
    let tree = |features: &[&str]| {
        let arguments =
            ["tree", "--offline", "--package", "limitset", "--edges", "normal", "--prefix", "none"];
        let folder = env!("CARGO_MANIFEST_DIR");
        let output = std::process::Command::new(&cargo)
            .args(arguments)
            .args(features)
            .current_dir(folder)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let tree = String::from_utf8(output.stdout).unwrap();
        assert!(tree.starts_with("limitset "), "{tree}");
        tree.lines().any(|line| line.starts_with("tracing"))
    };
    assert!(tree(&["--features", "tracing"]), "this would be seen");
    assert!(!tree(&[]));
}
