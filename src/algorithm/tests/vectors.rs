//! Facts about another implementation's token bucket, in `tests/vectors/token_bucket.json`: cases where it is
//! right and the answers are equal, and its mistakes. A unit here is a thousandth of a token there.

use serde_json::Value;

use super::{Algorithm, Answer, Limiter, Rule, SECOND, Words};

const MILLISECOND: u64 = SECOND / 1_000;

/// The entries of a group, each with a name and its input.
fn each(group: &str, mut judge: impl FnMut(&str, &Value, &Value)) {
    let text = include_str!("../../../tests/vectors/token_bucket.json");
    let all: Value = serde_json::from_str(text).unwrap();
    let entries = all[group].as_array().unwrap();
    assert!(!entries.is_empty(), "{group}");
    for entry in entries {
        judge(entry["id"].as_str().unwrap(), &entry["in"], entry);
    }
}

fn nanos(input: &Value, key: &str) -> u64 {
    input[key].as_u64().unwrap() * MILLISECOND
}

/// The bucket of an input.
fn bucket(input: &Value) -> Limiter<'static> {
    let amount = input["refill_amount_milli"].as_u64().unwrap();
    let burst = input["capacity_milli"].as_u64().unwrap_or(1 << 60);
    let rule = Rule::new(Algorithm::TokenBucket, amount, nanos(input, "refill_period_ms")).with_burst(burst);
    let tokens =
        ["tokens_milli", "start_tokens_milli"].iter().find_map(|key| input[key].as_i64()).unwrap_or(0);
    let at = input["last_refill_ms"].as_u64().unwrap_or(0) * MILLISECOND;
    let words = Words { three: [tokens.cast_unsigned(), at, 0], cells: Vec::new() };
    Limiter { words, ..Limiter::new(rule, at) }
}

/// The other implementation rounds up to milliseconds and adds one. Ours is exact, so it is equal or up to a
/// millisecond less.
fn assert_wait(ours: u64, seconds: &Value, id: &str) {
    let theirs = std::time::Duration::from_secs_f64(seconds.as_f64().unwrap()).as_nanos();
    let ours = u128::from(ours);
    assert!(ours <= theirs && theirs - ours <= u128::from(MILLISECOND), "{id}: {ours} ns, theirs {theirs}");
}

#[test]
fn a_refill_brings_what_it_brings_elsewhere() {
    for group in ["refill", "refill_clamp_0_17"] {
        each(group, |id, input, entry| {
            let tokens = bucket(input).available(nanos(input, "now_ms"));
            // The older version did not clamp where no time had passed; the newer one does, as here.
            let theirs = if id == "already_over_capacity_no_elapsed" {
                100_000_000
            } else {
                entry["out"]["tokens_milli"].as_i64().unwrap()
            };
            assert_eq!(tokens, theirs, "{id}");
        });
    }
}

#[test]
fn a_request_is_answered_as_elsewhere_but_for_nothing_and_never() {
    each("try_consume", |id, input, entry| {
        let mut limiter = bucket(input);
        let (now, amount) = (nanos(input, "now_ms"), input["requested"].as_u64().unwrap() * 1_000);
        let out = &entry["out"];
        assert_eq!(limiter.available(now).div_euclid(1_000), out["available"].as_i64().unwrap(), "{id}");
        let never = amount > limiter.rule.burst();
        match limiter.acquire(now, amount) {
            // A request for 0 units succeeds, also in debt.
            Answer::Yes => assert!(out["success"] == true || amount == 0, "{id}"),
            Answer::Later(at) => {
                assert_eq!(out["success"], false, "{id}");
                assert_wait(at - now, &out["retry_after_s"], id);
            }
            // The other implementation gives a wait for a request that can never succeed.
            Answer::Never => assert!(out["success"] == false && never, "{id}"),
        }
        assert_eq!(limiter.available(now), out["tokens_milli"].as_i64().unwrap(), "{id}");
    });
}

#[test]
fn waits_are_those_elsewhere_without_the_rounding() {
    each("retry_after", |id, input, entry| {
        let deficit = input["deficit_milli"].as_i64().unwrap();
        // A bucket that lacks `deficit` of one unit.
        let mut limiter = bucket(input);
        limiter.words.three[0] = (1 - deficit).cast_unsigned();
        match limiter.acquire(0, 1) {
            Answer::Yes => assert!(deficit <= 0, "{id}"),
            Answer::Later(at) => assert_wait(at, &entry["out"]["retry_after_s"], id),
            Answer::Never => panic!("{id}"),
        }
    });
    each("time_until_available", |id, input, entry| {
        let (now, amount) = (nanos(input, "now_ms"), input["needed"].as_u64().unwrap() * 1_000);
        let Answer::Later(at) = bucket(input).acquire(now, amount) else { panic!("{id}") };
        assert_wait(at - now, &entry["out"]["seconds"], id);
    });
}

#[test]
fn debt_and_parts_of_tokens_are_those_elsewhere() {
    each("force_consume", |id, input, entry| {
        let mut limiter = bucket(input);
        limiter.adjust(nanos(input, "now_ms"), input["amount"].as_i64().unwrap() * 1_000);
        // In the other implementation a refund can exceed the capacity.
        let theirs = entry["out"]["tokens_milli"].as_i64().unwrap();
        let clamped = theirs.min(input["capacity_milli"].as_i64().unwrap());
        assert_eq!(limiter.available(nanos(input, "now_ms")), clamped, "{id}");
    });
    each("available", |id, input, entry| {
        let tokens = bucket(input).available(nanos(input, "now_ms")).div_euclid(1_000);
        assert_eq!(tokens, entry["out"]["available"].as_i64().unwrap(), "{id}");
    });
}

#[test]
fn many_small_refills_add_up_to_the_exact_amount() {
    each("sequences", |id, input, entry| {
        let exact = entry["exact_milli"].as_i64().unwrap();
        let (step, total) = (nanos(input, "step_ms"), nanos(input, "total_ms"));
        let mut limiter = bucket(input);
        let (mut now, mut written) = (0, 0);
        while now + step <= total {
            now += step;
            // Every step writes something, so that each refill continues from the one before.
            limiter.adjust(now, 1);
            limiter.adjust(now, -1);
            written += u32::from(limiter.words.three[1] == now);
        }
        assert_eq!(u64::from(written), total / step, "{id}: every step was written");
        assert_eq!(limiter.available(now), exact, "{id}");
        // The published formula on the same steps: shows that this test would notice its error.
        let published = entry["published_floor_formula_milli"].as_i64().unwrap();
        assert_eq!(published_formula(input), published, "{id}");
        assert!(published >= exact, "{id}");
    });
}

/// Advances the time of the last refill by the time that the tokens took, rounded down.
fn published_formula(input: &Value) -> i64 {
    let number = |key: &str| input[key].as_i64().unwrap();
    let (amount, period, step) =
        (number("refill_amount_milli"), number("refill_period_ms"), number("step_ms"));
    let (mut tokens, mut last, mut now) = (0, 0, 0);
    while now + step <= number("total_ms") {
        now += step;
        let add = (now - last) * amount / period;
        tokens += add;
        last += add * period / amount;
    }
    tokens
}
