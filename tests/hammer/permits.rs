//! Permits: when n are free and more than n are asked for at once, exactly n are granted.

use std::sync::Barrier;

use limitset::{Acquisition, Clock, LimitSet, ResourceLimit};

use crate::support::{Random, TempName, Worker, depth, listen, proof, say};
use crate::{THREADS, attach, check_end, check_held, for_each_case, stats};

/// In a worker: both threads ask at once and keep what they get until told to release it.
pub(crate) fn role(arguments: &[String]) {
    let set = attach(&arguments[0]);
    let mut held = Vec::new();
    say("ready");
    loop {
        match listen().as_str() {
            "release" => held.clear(),
            amount => held.extend(ask_at_once(&set, amount.parse().unwrap())),
        }
        say(&held.len().to_string());
    }
}

fn ask_at_once(set: &LimitSet, amount: u64) -> Vec<Acquisition> {
    let together = Barrier::new(usize::try_from(THREADS).unwrap());
    let ask = || {
        together.wait();
        set.try_acquire([("units", 0), ("call_count", 0), ("permits", amount)]).ok()
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(ask)).collect();
        threads.into_iter().filter_map(|thread| thread.join().unwrap()).collect()
    })
}

/// Tells all at once; sums up what they answer.
fn all(workers: &mut [Worker], line: &str) -> u64 {
    workers.iter_mut().for_each(|worker| worker.tell(line));
    workers.iter_mut().map(answer).sum()
}

fn answer(worker: &mut Worker) -> u64 {
    worker.hear().parse().unwrap()
}

pub(crate) fn exactly_n() {
    let (mut rounds, mut granted, mut short, mut kills) = (0, 0, 0, 0);
    // Permits know no algorithm; what differs is the state of the others, which the requests leave alone.
    for_each_case(|case| {
        let name = TempName::new();
        let set = case.create(&name, Clock::Manual, 1);
        let mut random = Random::new(case.processes);
        let mut workers = case.start("permit", &name);
        workers.iter_mut().for_each(|worker| worker.expect("ready"));
        let threads = case.processes * THREADS;
        for round in 0..depth(12, 300) {
            let (permits, amount) = (1 + random.below(2 * threads), 1 + random.below(3));
            set.reconfigure([ResourceLimit::new("permits", permits)]).unwrap();
            let expected = threads.min(permits / amount);
            let found = all(&mut workers, &amount.to_string());
            assert_eq!(found, expected, "{threads} threads asked for {amount} of {permits} permits each");
            check_in_use(&set, found * amount);
            if round % 4 == 0 {
                // What a killed holder had, and no more, is there for its successor.
                let victim = usize::try_from(random.below(case.processes)).unwrap();
                let held = held_by(&set, &workers[victim]);
                workers[victim].kill();
                let returned = set.reap().unwrap();
                assert_eq!(returned, held);
                check_in_use(&set, found * amount - returned);
                workers[victim] = Worker::start("permit", &[&name.0, "0"]);
                workers[victim].expect("ready");
                workers[victim].tell(&amount.to_string());
                let left = permits - (found * amount - returned);
                assert_eq!(answer(&mut workers[victim]), THREADS.min(left / amount));
                kills += 1;
            }
            assert_eq!(all(&mut workers, "release"), 0);
            check_in_use(&set, 0);
            rounds += 1;
            granted += found;
            short += u64::from(found < threads);
        }
        drop(workers);
        set.reap().unwrap();
        check_end(&stats(&set));
        set.remove().unwrap();
    });
    assert!(short > 0, "there were always enough: the test did not test");
    let what = "2, 4 and 8 processes of two threads ask for permits at once";
    let result = format!(
        "{rounds} rounds, {kills} with a kill: {granted} grants, always as many as there were permits for ({short} \
         times fewer than asked)"
    );
    proof("2,3", what, &result);
}

fn check_in_use(set: &LimitSet, permits: u64) {
    let stats = stats(set);
    check_held(&stats);
    assert_eq!(stats.limit("permits").unwrap().in_use, permits);
}

fn held_by(set: &LimitSet, worker: &Worker) -> u64 {
    let pid = u64::try_from(worker.pid().as_raw()).unwrap();
    let stats = stats(set);
    let is_it = |it: &&limitset::ParticipantStats| it.info.as_ref().is_some_and(|info| info.pid == pid);
    let holds = stats.participants.iter().find(is_it).map(|it| it.holds.iter());
    holds.into_iter().flatten().map(|(_, permits)| permits).sum()
}
