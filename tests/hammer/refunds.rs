//! Units given back: while time stands still, what is charged in the end is exactly what there was, however often
//! it was given back in between.

use limitset::{AcquireError, Acquisition, Clock, LimitSet};

use crate::reference::Rates;
use crate::support::{Random, TempName, Worker, depth, listen, proof, say};
use crate::{attach, check_end, check_held, for_each_case, in_threads, is_by_rate, stats};

/// The charges, as counted by the processes that were charged.
#[derive(Clone, Copy, Default)]
struct Ledger {
    units: u64,
    calls: u64,
    given_back: u64,
}

impl Ledger {
    fn add(&mut self, other: Self) {
        self.units += other.units;
        self.calls += other.calls;
        self.given_back += other.given_back;
    }
}

/// Which rates take units back, for the workers to read.
fn refunding(set: &LimitSet) -> [bool; 2] {
    let log = set.segment().words("log").unwrap();
    [0, 1].map(|index: usize| log[index].load(std::sync::atomic::Ordering::SeqCst) != 0)
}

/// In a worker: both threads do what the test says, then tell what they were charged.
pub(crate) fn role(arguments: &[String]) {
    let set = attach(&arguments[0]);
    let mut seed: u64 = arguments[1].parse().unwrap();
    say("ready");
    loop {
        let order = listen();
        seed += 100;
        let sum = std::sync::Mutex::new(Ledger::default());
        in_threads(&set, seed, |set, random| {
            let ledger = if order == "churn" { churn(set, random) } else { drain(set) };
            sum.lock().unwrap().add(ledger);
        });
        let Ledger { units, calls, given_back } = *sum.lock().unwrap();
        say(&format!("{units} {calls} {given_back}"));
    }
}

/// Takes random amounts, holds some of them for a while, and gives back all, some or nothing.
fn churn(set: &LimitSet, mut random: Random) -> Ledger {
    let mut ledger = Ledger::default();
    let mut held: Vec<Acquisition> = Vec::new();
    for _ in 0..60 {
        let (units, calls) = (1 + random.below(5), random.below(3));
        match set.try_acquire([("units", units), ("call_count", calls)]) {
            Ok(acquisition) => {
                ledger.add(Ledger { units, calls, given_back: 0 });
                held.push(acquisition);
            }
            Err(AcquireError::Denied(_)) => std::thread::yield_now(),
            Err(other) => panic!("{other}"),
        }
        if !held.is_empty() && random.below(3) > 0 {
            let which = usize::try_from(random.below(held.len() as u64)).unwrap();
            close(held.swap_remove(which), &mut random, &mut ledger);
        }
    }
    held.into_iter().for_each(|acquisition| close(acquisition, &mut random, &mut ledger));
    ledger
}

fn close(mut held: Acquisition, random: &mut Random, ledger: &mut Ledger) {
    let (units, calls) = (held.charged("units").unwrap(), held.charged("call_count").unwrap());
    let used = random.below(units + 1);
    let given = match random.below(5) {
        0 => held.update("units", used).unwrap(),
        1 => held.settle("units", used).unwrap(),
        2 => held.adjust("units", -i64::try_from(used).unwrap()).unwrap(),
        3 => {
            let [units_return, calls_return] = refunding(held.set());
            held.cancel().unwrap();
            ledger.calls -= if calls_return { calls } else { 0 };
            let given = if units_return { units } else { 0 };
            ledger.units -= given;
            ledger.given_back += given;
            return;
        }
        _ => return drop(held),
    };
    assert_eq!(held.charged("units").unwrap(), units - given);
    ledger.units -= given;
    ledger.given_back += given;
    held.release().unwrap();
}

/// Takes one by one until a rate has no more.
fn drain(set: &LimitSet) -> Ledger {
    let mut ledger = Ledger::default();
    loop {
        match set.try_acquire([("units", 1)]) {
            Ok(held) => {
                ledger.add(Ledger { units: 1, calls: 1, given_back: 0 });
                drop(held);
            }
            Err(AcquireError::Denied(denial)) if is_by_rate(&denial) => return ledger,
            Err(AcquireError::Denied(_)) => std::thread::yield_now(),
            Err(other) => panic!("{other}"),
        }
    }
}

fn all(workers: &mut [Worker], order: &str) -> Ledger {
    workers.iter_mut().for_each(|worker| worker.tell(order));
    let mut sum = Ledger::default();
    for worker in workers {
        let line = worker.hear();
        let numbers: Vec<u64> = line.split(' ').map(|number| number.parse().unwrap()).collect();
        sum.add(Ledger { units: numbers[0], calls: numbers[1], given_back: numbers[2] });
    }
    sum
}

pub(crate) fn exact() {
    let (mut rounds, mut total) = (0, Ledger::default());
    for_each_case(|mut case| {
        // So little that the rates are empty most of the time, and what comes back is taken again at once.
        (case.units, case.calls) = (case.units.over(29), case.calls.over(29));
        let name = TempName::new();
        let set = case.create(&name, Clock::Manual, 2);
        let log = set.segment().words("log").unwrap();
        for (word, numbers) in log.iter().zip([case.units, case.calls]) {
            word.store(numbers.algorithm.refunds().into(), std::sync::atomic::Ordering::SeqCst);
        }
        let mut random = Random::new(case.processes);
        let mut rates = Rates::new(case.units, case.calls);
        let mut ledger = Ledger::default();
        let mut workers = case.start("refund", &name);
        workers.iter_mut().for_each(|worker| worker.expect("ready"));
        for round in 0..depth(12, 300) {
            let mut charged = all(&mut workers, "churn");
            charged.add(all(&mut workers, "drain"));
            ledger.add(charged);
            // Fails if it is more than there was.
            rates.units.take(charged.units);
            rates.calls.take(charged.calls);
            let left = (rates.units.available(), rates.calls.available());
            assert!(left.0 == 0 || left.1 == 0, "{left:?} left over in round {round} of {case:?}");
            let stats = stats(&set);
            check_held(&stats);
            let (units, calls) = (stats.limit("units").unwrap(), stats.limit("call_count").unwrap());
            assert_eq!((units.consumed, calls.consumed), (ledger.units, ledger.calls), "{case:?}");
            assert_eq!(units.refunded, ledger.given_back);
            let nanos = 1 + random.below(2 * case.units.window);
            rates.advance(nanos);
            set.advance(std::time::Duration::from_nanos(nanos)).unwrap();
            rounds += 1;
        }
        drop(workers);
        set.reap().unwrap();
        check_end(&stats(&set));
        set.remove().unwrap();
        total.add(ledger);
    });
    assert!(total.given_back > 0);
    let result = format!(
        "{rounds} rounds: {} units charged, {} given back, 0 too many, 0 left over",
        total.units, total.given_back
    );
    proof("1,2", "the same with refunds, cancellations and requests of random amounts", &result);
}
