//! Hands that acquire and give back on command: threads, futures in threads, or processes, from one source.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use limitset::{AcquireError, Acquisition, LimitSet, LimitSetBuilder, Segment, SegmentOptions};

use crate::support::{TempName, Worker, listen, say};

/// Longer than any test: what needs a slice to be over is not seen to happen.
pub(crate) const HOUR: Duration = Duration::from_secs(3_600);

/// What the hands of a scene are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Threads,
    /// Threads of which each runs one future.
    Futures,
    Processes,
}

/// A set and those who use it.
pub(crate) struct Scene {
    pub(crate) limits: LimitSet,
    pub(crate) name: TempName,
    mode: Mode,
}

/// Slices that never help.
pub(crate) fn no_slices() -> SegmentOptions {
    Segment::options().lock_slice(HOUR).doorbell_slice(HOUR)
}

impl Scene {
    /// With slices of an hour, so that no result can depend on one.
    pub(crate) fn new(mode: Mode, builder: LimitSetBuilder) -> Self {
        Self::with(mode, builder, no_slices())
    }

    pub(crate) fn with(mode: Mode, builder: LimitSetBuilder, options: SegmentOptions) -> Self {
        let name = TempName::new();
        let builder = builder.segment(options);
        let limits = match mode {
            Mode::Processes => builder.create(&name).unwrap(),
            _ => builder.in_memory().unwrap(),
        };
        Self { limits, name, mode }
    }

    pub(crate) fn hand(&self) -> Hand {
        if self.mode == Mode::Processes {
            return Hand::Process(Worker::start("hand", &[&self.name.0]));
        }
        let (to, orders) = channel::<String>();
        let (answer, from) = channel();
        let (set, is_async) = (self.limits.clone(), self.mode == Mode::Futures);
        std::thread::spawn(move || {
            obey(&set, is_async, || orders.recv().ok(), |line| drop(answer.send(line)));
        });
        Hand::Thread { to, from }
    }

    /// A hand that waits for something; others wait already.
    pub(crate) fn waiter(&self, request: &str) -> Hand {
        let before = self.waiters();
        let mut hand = self.hand();
        hand.tell(&format!("acquire {request}"));
        self.wait_for_waiters(before + 1);
        hand
    }

    pub(crate) fn waiters(&self) -> u64 {
        self.limits.stats().unwrap().waiters
    }

    /// Until so many wait; the watchdog ends a wait in vain.
    pub(crate) fn wait_for_waiters(&self, count: u64) {
        while self.waiters() != count {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub(crate) fn in_use(&self, key: &str) -> u64 {
        self.limits.stats().unwrap().limit(key).unwrap().in_use
    }

    pub(crate) fn assert_waiting(&self, count: u64) {
        assert_eq!(self.waiters(), count, "who waits");
    }

    /// Nobody waits, nobody holds.
    pub(crate) fn assert_empty(&self) {
        let stats = self.limits.stats().unwrap();
        assert_eq!(stats.waiters, 0);
        for limit in &stats.limits {
            assert_eq!(limit.waiting, 0, "{limit:?}");
            assert!(limit.window.is_some() || limit.in_use == 0, "{limit:?}");
        }
        assert_eq!(stats.deposed, 0);
    }
}

/// One who acquires and gives back.
pub(crate) enum Hand {
    Thread { to: Sender<String>, from: Receiver<String> },
    Process(Worker),
}

impl Hand {
    pub(crate) fn tell(&mut self, order: &str) {
        match self {
            Self::Thread { to, .. } => to.send(order.to_owned()).unwrap(),
            Self::Process(worker) => worker.tell(order),
        }
    }

    pub(crate) fn hear(&mut self) -> String {
        match self {
            Self::Thread { from, .. } => from.recv().unwrap(),
            Self::Process(worker) => worker.hear(),
        }
    }

    pub(crate) fn ask(&mut self, order: &str) -> String {
        self.tell(order);
        self.hear()
    }

    /// Does something that succeeds.
    pub(crate) fn does(&mut self, order: &str) {
        let answer = self.ask(order);
        assert!(answer.starts_with("done"), "{order}: {answer}");
    }

    /// Acquires what is there.
    pub(crate) fn takes(&mut self, request: &str) -> u64 {
        self.tell(&format!("acquire {request}"));
        self.granted()
    }

    /// Waits for its grant; gives the ticket.
    pub(crate) fn granted(&mut self) -> u64 {
        let answer = self.hear();
        let ticket = answer.strip_prefix("granted ").unwrap_or_else(|| panic!("not granted: {answer}"));
        ticket.parse().unwrap()
    }

    /// Waits for its refusal, of this kind; gives the message.
    pub(crate) fn refused(&mut self, kind: &str) -> String {
        let answer = self.hear();
        let (found, message) = answer.split_once(' ').unwrap();
        assert_eq!(found, kind, "{answer}");
        message.to_owned()
    }

    pub(crate) fn worker(&mut self) -> &mut Worker {
        match self {
            Self::Process(worker) => worker,
            Self::Thread { .. } => panic!("not a process"),
        }
    }
}

/// Role of a process: a hand.
pub(crate) fn role(arguments: &[String]) {
    let is_async = arguments.get(1).is_some_and(|it| it.contains("async"));
    let options = if arguments.get(1).is_some_and(|it| it.contains("slices")) {
        Segment::options()
    } else {
        no_slices()
    };
    let set = LimitSet::builder().segment(options).attach(&arguments[0]).unwrap();
    obey(&set, is_async, || Some(listen()), |line| say(&line));
}

/// Does as told. What was acquired last is what is spoken of.
fn obey(
    set: &LimitSet,
    is_async: bool,
    mut next: impl FnMut() -> Option<String>,
    mut answer: impl FnMut(String),
) {
    let mut held: Vec<Acquisition> = Vec::new();
    while let Some(order) = next() {
        let words: Vec<&str> = order.split_whitespace().collect();
        let number = |at: usize| words[at].parse::<u64>().unwrap();
        let last = held.len().wrapping_sub(1);
        let done = |result: Result<u64, limitset::UsageError>| match result {
            Ok(amount) => format!("done {amount}"),
            Err(error) => format!("failed {error}"),
        };
        answer(match words[0] {
            "acquire" => granted(acquire(set, is_async, &words[1..]), &mut held),
            "try" => granted(set.try_acquire(&amounts(&words[1..])[..]), &mut held),
            "more" => match held[last].acquire_more(&amounts(&words[1..])[..]) {
                Ok(()) => "done".to_owned(),
                Err(error) => refusal(&error),
            },
            "update" => done(held[last].update(words[1], number(2))),
            "settle" => done(held[last].settle(words[1], number(2))),
            "adjust" => done(held[last].adjust(words[1], words[2].parse().unwrap())),
            "release" => done(held.pop().unwrap().release().map(|()| 0)),
            "cancel" => done(held.pop().unwrap().cancel().map(|()| 0)),
            "drop" => {
                drop(held.pop());
                "done".to_owned()
            }
            "panic" => {
                let run = std::panic::AssertUnwindSafe(|| {
                    set.run(&amounts(&words[1..])[..], |_| -> Result<(), ()> {
                        std::panic::resume_unwind(Box::new("on purpose"))
                    })
                });
                assert!(std::panic::catch_unwind(run).is_err());
                "done".to_owned()
            }
            other => unreachable!("{other}"),
        });
    }
}

fn amounts<'a>(words: &[&'a str]) -> Vec<(&'a str, u64)> {
    let pair = |word: &&'a str| word.split_once('=').map(|(key, amount)| (key, amount.parse().unwrap()));
    words.iter().filter_map(pair).filter(|(key, _)| *key != "within").collect()
}

fn acquire(set: &LimitSet, is_async: bool, words: &[&str]) -> Result<Acquisition, AcquireError> {
    let within = words.iter().find_map(|word| word.strip_prefix("within="));
    let within = within.map(|millis| Duration::from_millis(millis.parse().unwrap()));
    let amounts = amounts(words);
    match (is_async, within) {
        (true, Some(within)) => pollster::block_on(set.acquire_async(&amounts[..]).timeout(within)),
        (true, None) => pollster::block_on(set.acquire_async(&amounts[..])),
        (false, Some(within)) => set.acquire_timeout(&amounts[..], within),
        (false, None) => set.acquire(&amounts[..]),
    }
}

fn granted(answer: Result<Acquisition, AcquireError>, held: &mut Vec<Acquisition>) -> String {
    match answer {
        Ok(acquisition) => {
            let ticket = acquisition.ticket();
            held.push(acquisition);
            format!("granted {ticket}")
        }
        Err(error) => refusal(&error),
    }
}

/// The kind of an error and its message.
pub(crate) fn refusal(error: &AcquireError) -> String {
    let debug = format!("{error:?}");
    let kind = debug.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
    format!("{kind} {error}")
}
