//! Words come from shared memory: no value makes an algorithm panic or overflow, or admit more than the
//! maximum. (Tests run with overflow checks.)

use super::{Algorithm, Changes, Operations, Random, Rule, Table, Verdict, Word, Words};

#[test]
fn no_words_make_an_algorithm_panic() {
    for algorithm in Algorithm::ALL {
        withstands_garbage(&Table, *algorithm);
    }
}

pub(super) fn withstands_garbage(operations: &dyn Operations, algorithm: Algorithm) {
    let mut random = Random(algorithm.number().into());
    for _ in 0..20_000 {
        let resolution = u32::try_from(random.next() % 4).unwrap();
        let new_rule = |random: &mut Random| {
            Rule::new(algorithm, any(random), any(random))
                .with_burst(any(random))
                .with_resolution(resolution)
                .with_wall_offset(any(random))
        };
        let (rule, new) = (new_rule(&mut random), new_rule(&mut random));
        let cells = operations.cells(&rule);
        assert_eq!(cells, operations.cells(&new), "cells are by resolution only");
        let mut words = Words {
            three: std::array::from_fn(|_| any(&mut random)),
            cells: (0..cells).map(|_| any(&mut random)).collect(),
        };
        for _ in 0..6 {
            let (now, amount) = (any(&mut random), any(&mut random));
            let most = operations.most(&rule);
            assert!(operations.available(&rule, &words, now) <= i64::try_from(most).unwrap());
            let changes = match random.next() % 6 {
                0 => operations.reset(&rule, &words, now),
                1 => operations.refund(&rule, &words, now, amount).1,
                2 => operations.adjust(&rule, &words, now, amount.cast_signed()),
                3 => operations.reconfigure(&rule, &new, &words, now),
                _ => match operations.acquire(&rule, &words, now, random.pick(&[amount, 1, most])) {
                    Verdict::Admit(changes) => changes,
                    _ => Changes::NONE,
                },
            };
            let is_there = |(word, _)| !matches!(word, Word::Cell(index) if index >= cells);
            assert!(changes.iter().all(is_there), "{changes:?} of {cells} cells");
            words.write(&changes);
        }
    }
}

#[test]
fn a_remainder_is_never_worth_a_unit() {
    for algorithm in [Algorithm::TokenBucket, Algorithm::LeakyBucket, Algorithm::Gcra] {
        let rule = Rule::new(algorithm, 10, 1_000);
        let used_up = if algorithm == Algorithm::TokenBucket { 0 } else { 10 };
        let level = if algorithm == Algorithm::Gcra { 5_000 + 1_000 } else { used_up };
        let words = Words { three: [level, 5_000, u64::MAX], cells: Vec::new() };
        let available = rule.available(&&words, 5_000);
        // GCRA is ahead by a part of a nanosecond, which rounds to one unit less.
        assert_eq!(available, if algorithm == Algorithm::Gcra { -1 } else { 0 }, "{algorithm}");
    }
}

/// Any number, often one of the ends of the range.
fn any(random: &mut Random) -> u64 {
    let ends =
        [0, 1, 2, 1 << 31, 1 << 32, 1 << 62, (1 << 63) - 1, 1 << 63, (1 << 63) + 1, u64::MAX - 1, u64::MAX];
    match random.next() % 3 {
        0 => random.pick(&ends),
        1 => random.next(),
        _ => random.up_to(u64::MAX),
    }
}
