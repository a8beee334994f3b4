//! Models must bite: each defect of `tests/support/mutant.rs` is caught by a model, and each model catches
//! one.
//!
//! A model that fails may take its process with it: a deadlock unwinds threads that hold locks. So each pair
//! runs in a process of its own, this same test binary with one test chosen, and has to end in the expected
//! kind of failure before the watchdog.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests stop at the first surprise, like the tests"
)]

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use loom_tests::models::MODELS;
use loom_tests::mutant::{CONTROL, JOURNAL_MUTATIONS, MUTATIONS, named};

/// How a defect shows.
#[derive(Clone, Copy, Debug)]
enum Sign {
    /// An assertion with this text.
    Broken(&'static str),
    /// Somebody sleeps for ever.
    Deadlock,
    /// Somebody waits for ever, awake.
    Endless,
}

impl Sign {
    fn text(self) -> &'static str {
        match self {
            Self::Broken(text) => text,
            Self::Deadlock => "deadlock; threads =",
            Self::Endless => "Model exceeded maximum number of branches",
        }
    }
}

const TWO_INSIDE: Sign = Sign::Broken("came in");
const DEPOSED: Sign = Sign::Broken("Deposed");
const TORN: Sign = Sign::Broken("half a transaction was found");
const DAMAGED: Sign = Sign::Broken("value: DamagedJournal");
const TORN_SNAPSHOT: Sign = Sign::Broken("half a transaction was seen");
const FALSE_ALARM: Sign = Sign::Broken("a whole block was called DamagedJournal");
const OVER_ADMITTED: Sign = Sign::Broken("more permits are held than there are");
const MISCOUNTED: Sign = Sign::Broken("the total is not the sum of the rows");
const LEAKED: Sign = Sign::Broken("the total is not what the living hold");
const PASSED_OVER: Sign = Sign::Broken("sweeps passed a dead participant over");
const PLACE_LOST: Sign = Sign::Broken("not all entries are free");
const IN_A_PAUSE: Sign = Sign::Broken("somebody was admitted in a pause");
const NOT_THAT_PAUSE: Sign = Sign::Broken("the pause is not that of the reports");
const OUT_OF_ORDER: Sign = Sign::Broken("the count is not that of the order");
const ATTEMPTS_LOST: Sign = Sign::Broken("attempts are not counted with their items");
const TORN_PAYLOAD: Sign = Sign::Broken("a payload is not what was pushed");
const ITEM_LOST: Sign = Sign::Broken("in a list false, with somebody alive false");

/// Which model catches which defect, and how.
const CATCHES: &[(&str, &str, Sign)] = &[
    ("lock_without_acquire", "lock_excludes", TWO_INSIDE),
    ("unlock_without_release", "lock_excludes", TWO_INSIDE),
    ("unlock_without_release", "threads_of_one_participant", TORN),
    ("name_before_generation", "newcomer_is_alive", TORN),
    ("judge_without_acquire", "newcomer_is_alive", TORN),
    ("judge_without_acquire", "snapshot_beside_a_newcomer", FALSE_ALARM),
    ("generation_without_release", "successor_betrays_death", DAMAGED),
    ("generation_without_acquire", "successor_betrays_death", DAMAGED),
    ("change_without_release", "snapshot_is_whole", FALSE_ALARM),
    ("commit_without_release", "snapshot_is_whole", TORN_SNAPSHOT),
    ("word_without_release", "snapshot_is_whole", TORN_SNAPSHOT),
    ("reader_without_acquire", "snapshot_is_whole", FALSE_ALARM),
    ("writer_without_fence", "snapshot_shows_nothing_undone", TORN_SNAPSHOT),
    ("reader_without_fence", "snapshot_is_whole", TORN_SNAPSHOT),
    ("no_journal", "snapshot_during_recovery", TORN_SNAPSHOT),
    ("no_journal", "journal_all_or_none", TORN),
    ("length_after_word", "journal_all_or_none", TORN),
    ("stale_old_value", "recovery_survives_kills", TORN),
    ("commit_before_apply", "journal_all_or_none", TORN),
    ("skip_recovery", "journal_all_or_none", TORN),
    ("undo_restores_nothing", "thieves_take_turns", TORN),
    ("steal_from_the_living", "lock_excludes", TWO_INSIDE),
    ("death_unnoticed", "lock_excludes", Sign::Endless),
    ("death_unnoticed", "thieves_are_killed", Sign::Endless),
    ("generation_not_published", "newcomer_is_alive", TORN),
    ("generation_not_published", "slot_passes_on", Sign::Endless),
    ("name_before_generation", "slot_is_reused", DEPOSED),
    ("one_generation", "permits_return_once", LEAKED),
    ("lock_wake_lost", "lock_loses_no_wake", Sign::Deadlock),
    ("lock_wake_lost", "journal_all_or_none_three", Sign::Deadlock),
    ("unlock_without_fence", "lock_loses_no_wake", Sign::Deadlock),
    ("sleeper_without_fence", "lock_loses_no_wake", Sign::Deadlock),
    ("two_light_fences", "lock_loses_no_wake", Sign::Deadlock),
    ("waiters_forgotten", "lock_excludes_three", Sign::Deadlock),
    ("debt_forgotten", "giving_up_strands_nobody", Sign::Deadlock),
    ("doorbell_not_rung", "adoption_rings", Sign::Deadlock),
    ("doorbell_wake_lost", "sleeper_gets_its_permit", Sign::Deadlock),
    ("doorbell_wakes_one", "sleepers_get_their_permits", Sign::Deadlock),
    ("sleepers_bit_trusted", "recovery_rings", Sign::Deadlock),
    ("taken_not_counted", "permits_balance", OVER_ADMITTED),
    ("returned_twice", "permits_return_once", MISCOUNTED),
    ("cursor_lost", "windows_take_turns", PASSED_OVER),
    ("cursor_lost", "holders_take_turns", PASSED_OVER),
    ("returned_twice", "holders_take_turns", MISCOUNTED),
    ("queue_overlooked", "last_sweep_serves_the_waiter", Sign::Broken("gave up")),
    ("unlock_without_release", "timeout_against_grant", DAMAGED),
    ("lock_without_acquire", "cancel_passes_the_grant_on", DAMAGED),
    ("no_journal", "timeout_against_grant", MISCOUNTED),
    ("no_journal", "cancel_passes_the_grant_on", MISCOUNTED),
    ("commit_before_apply", "the_dead_pass_their_turn_on", MISCOUNTED),
    ("undo_restores_nothing", "the_dead_come_in_pairs", MISCOUNTED),
    ("grant_not_journalled", "timeout_against_grant", PLACE_LOST),
    ("commit_lost", "waiter_gets_its_grant", Sign::Deadlock),
    ("bell_not_rung", "waiter_gets_its_grant", Sign::Deadlock),
    ("bell_not_rung", "lowered_limit_refuses", Sign::Deadlock),
    ("bell_not_rung", "refund_is_granted", Sign::Deadlock),
    ("bell_not_rung", "shared_doorbell_tells_of_all", Sign::Deadlock),
    ("bell_wake_lost", "waiter_gets_its_grant", Sign::Deadlock),
    ("bell_without_release", "shared_doorbell_rings_last", Sign::Deadlock),
    ("thief_rings_nobody", "recovery_rings_waiters", Sign::Deadlock),
    ("thief_rings_nobody", "shared_doorbell_rings_last", Sign::Deadlock),
    ("no_journal", "at_once_balances", MISCOUNTED),
    ("queue_overlooked", "at_once_passes_nobody_over", Sign::Deadlock),
    ("unlock_without_fence", "at_once_passes_nobody_over", Sign::Deadlock),
    ("queue_not_served", "waiter_gets_its_grant", Sign::Deadlock),
    ("queue_not_served", "threads_of_one_participant_wait", Sign::Deadlock),
    ("queue_not_served", "successor_serves_waiters", Sign::Deadlock),
    ("queue_overlooked", "refund_is_granted", Sign::Deadlock),
    ("newcomer_first", "newcomer_does_not_overtake", Sign::Broken("a newcomer overtook")),
    ("newcomer_first", "covered_newcomer_delays_nobody", Sign::Broken("a newcomer overtook")),
    ("queued_units_overlooked", "covered_newcomer_delays_nobody", Sign::Broken("a newcomer overtook")),
    ("thief_rings_nobody", "recovery_is_recovered", Sign::Deadlock),
    ("thief_rings_nobody", "moved_alarm_is_recovered", Sign::Deadlock),
    ("pending_rings_overlooked", "moved_alarm_is_recovered", Sign::Deadlock),
    ("bell_not_rung", "collecting_passes_the_alarm_on", Sign::Deadlock),
    ("newcomer_first", "waiters_are_served_in_order", Sign::Broken("was served before ticket")),
    ("place_not_compared", "lost_place_is_left_alone", Sign::Deadlock),
    ("remover_without_fence", "removal_ends_waiting", Sign::Deadlock),
    ("remover_without_fence", "removal_finds_used_entries", Sign::Deadlock),
    ("waiter_without_fence", "removal_ends_waiting", Sign::Deadlock),
    ("waiter_without_fence", "removal_rings_participants", Sign::Deadlock),
    ("newcomer_first", "report_against_admission", IN_A_PAUSE),
    ("gate_overlooked", "report_against_expiry", IN_A_PAUSE),
    ("stamped_at_the_end", "late_report_is_absorbed", NOT_THAT_PAUSE),
    ("stamped_at_the_end", "success_against_report", OUT_OF_ORDER),
    ("pauses_not_counted", "reports_pause_once", NOT_THAT_PAUSE),
    ("pauses_not_counted", "late_report_is_absorbed", NOT_THAT_PAUSE),
    ("pause_not_journalled", "reports_pause_once", NOT_THAT_PAUSE),
    ("pause_not_journalled", "reporters_die_in_pairs", NOT_THAT_PAUSE),
    ("count_not_journalled", "success_against_report", OUT_OF_ORDER),
    ("success_forgotten", "success_against_report", OUT_OF_ORDER),
    ("gap_not_noted", "slow_start_spaces_waiters", Sign::Broken("two were admitted at one instant")),
    ("slow_start_not_journalled", "slow_start_survives_kills", Sign::Broken("the slow start has lost count")),
    ("bell_not_rung", "pause_is_slept_through", Sign::Deadlock),
    ("bell_not_rung", "leaving_passes_the_alarm_on", Sign::Deadlock),
    ("bell_not_rung", "resuming_admits_waiters", Sign::Deadlock),
    ("queue_not_served", "moved_clock_ends_the_pause", Sign::Deadlock),
    ("taken_item_stays_in_line", "items_are_handed_out_once", Sign::Broken("once too often")),
    ("attempt_not_counted", "items_are_handed_out_once", ATTEMPTS_LOST),
    ("bytes_after_commit", "payload_is_whole", TORN_PAYLOAD),
    ("unlock_without_release", "payload_is_whole", DAMAGED),
    ("bytes_after_commit", "result_is_whole", Sign::Broken("a result is not what was written")),
    ("end_not_journalled", "result_is_whole", Sign::Broken("what was pushed is not what there is")),
    ("owner_of_item_unknown", "dead_workers_item_returns", ITEM_LOST),
    ("attempt_not_counted", "dead_workers_item_returns", ATTEMPTS_LOST),
    ("owner_of_item_unknown", "attempts_end_in_a_dead_letter", ITEM_LOST),
    ("item_not_journalled", "item_is_parked_with_the_pause", ITEM_LOST),
    ("pause_number_not_journalled", "item_is_parked_with_the_pause", Sign::Broken("it is another pause")),
    ("parked_items_do_not_wait", "item_is_parked_with_the_pause", Sign::Broken("during the pause")),
    ("attempt_not_counted", "parked_items_are_handed_out_once", Sign::Broken("counts are lost")),
    ("no_journal", "parked_items_are_handed_out_once", Sign::Broken("is not as long as it says")),
    ("bell_after_look", "taker_hears_of_the_push", Sign::Deadlock),
    ("thief_rings_nobody", "recovery_rings_takers", Sign::Deadlock),
    ("bell_wake_lost", "pusher_hears_of_room", Sign::Deadlock),
    ("bell_after_look", "collector_hears_of_the_result", Sign::Deadlock),
    ("bell_not_rung", "taker_hears_that_the_pause_is_over", Sign::Deadlock),
    ("owner_of_item_unknown", "taker_hears_that_all_is_over", Sign::Deadlock),
    ("bell_not_rung", "collector_hears_that_all_is_over", Sign::Deadlock),
    ("bell_wake_lost", "rings_find_whom_they_help", Sign::Deadlock),
    ("woken_rings_nobody", "leaving_taker_rings_on", Sign::Deadlock),
    ("woken_rings_nobody", "takers_ring_on", Sign::Deadlock),
    ("work_bell_without_acquire", "removal_ends_waiting_for_work", Sign::Deadlock),
];

/// Models that show the same path without a defect: one of each kind, none of the long ones.
const CONTROLS: &[&str] = &[
    "lock_excludes",
    "lock_loses_no_wake",
    "journal_all_or_none",
    "newcomer_is_alive",
    "snapshot_is_whole",
    "adoption_rings",
    "cancel_passes_the_grant_on",
    "the_dead_pass_their_turn_on",
    "lost_place_is_left_alone",
    "removal_ends_waiting",
    "removal_rings_participants",
    "reports_pause_once",
    "success_against_report",
    "payload_is_whole",
    "taker_hears_that_all_is_over",
    "removal_ends_waiting_for_work",
];

const WATCHDOG: Duration = Duration::from_secs(120);
const MODEL: &str = "LIMITSET_MODEL";
const MUTATION: &str = "LIMITSET_MUTATION";

/// What the child process runs. Without the variables there is nothing to do.
#[test]
fn one_model_with_one_mutation() {
    let (Ok(model), Ok(mutation)) = (std::env::var(MODEL), std::env::var(MUTATION)) else { return };
    let (_, check) = MODELS.iter().find(|(name, _)| *name == model).expect("a model with this name");
    check(named(&mutation).expect("a mutation with this name"));
}

/// How a child process ended.
enum End {
    Passed,
    Failed(String),
    TimedOut,
}

fn run(mutation: &str, model: &str) -> (End, Duration) {
    let since = Instant::now();
    let mut child = Command::new(std::env::current_exe().expect("this test has a path"))
        .args(["--exact", "one_model_with_one_mutation", "--nocapture"])
        .env(MODEL, model)
        .env(MUTATION, mutation)
        .env("RUST_BACKTRACE", "0")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("this test can be started");
    let mut stderr = child.stderr.take().expect("it was piped");
    let reader = std::thread::spawn(move || {
        let mut text = Vec::new();
        // What was read before an error is as good as there is.
        let _ = stderr.read_to_end(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    });
    let status = loop {
        if let Some(status) = child.try_wait().expect("it is our child") {
            break Some(status);
        }
        if since.elapsed() > WATCHDOG {
            child.kill().expect("it is our child");
            child.wait().expect("it is our child");
            break None;
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let text = reader.join().expect("reading does not fail");
    let end = match status {
        None => End::TimedOut,
        Some(status) if status.success() => End::Passed,
        Some(_) => End::Failed(text),
    };
    (end, since.elapsed())
}

#[test]
fn every_mutant_is_caught() {
    let mut escaped = Vec::new();
    println!("{:29} | {:29} | how | s", "mutant", "caught by model");
    for &(mutation, model, sign) in CATCHES {
        let breaks = named(mutation).expect("a mutation with this name").breaks;
        let (end, took) = run(mutation, model);
        match end {
            End::Failed(text) if text.contains(sign.text()) => {
                let how = sign.text();
                println!("{mutation:29} | {model:29} | {how} | {:.1}", took.as_secs_f64());
                println!("PROOF mutants | {mutation}: {breaks} | caught by model {model}: {how}");
            }
            End::Failed(text) => escaped.push(format!("{mutation} in {model} failed otherwise: {text}")),
            End::Passed => escaped.push(format!("{mutation} in {model} passed")),
            End::TimedOut => {
                escaped.push(format!("{mutation} in {model} was still running after {WATCHDOG:?}"))
            }
        }
    }
    assert!(escaped.is_empty(), "not caught: {escaped:#?}");
}

#[test]
fn without_a_mutation_the_same_path_passes() {
    for model in CONTROLS {
        match run(CONTROL.name, model).0 {
            End::Passed => {}
            End::Failed(text) => panic!("{model} failed: {text}"),
            End::TimedOut => panic!("{model} was still running after {WATCHDOG:?}"),
        }
    }
}

#[test]
fn an_unknown_mutation_is_not_taken_for_a_caught_one() {
    let End::Failed(text) = run("no_such_mutation", "lock_excludes").0 else { panic!("it ran") };
    assert!(text.contains("a mutation with this name"), "{text}");
    assert!(CATCHES.iter().all(|(_, _, sign)| !text.contains(sign.text())), "{text}");
}

#[test]
fn no_mutant_and_no_model_is_left_out() {
    for mutation in MUTATIONS {
        assert!(CATCHES.iter().any(|(name, ..)| *name == mutation.name), "{} has no model", mutation.name);
    }
    for (model, _) in MODELS {
        assert!(CATCHES.iter().any(|(_, name, _)| name == model), "{model} has no mutant");
    }
    for name in JOURNAL_MUTATIONS {
        assert!(named(name).is_some(), "{name} does not exist");
    }
}
