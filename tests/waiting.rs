//! Waiting for limits: order, wakes, stopped and killed waiters, among threads, futures and processes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[path = "waiting/answers.rs"]
mod answers;
#[path = "waiting/deaths.rs"]
mod deaths;
#[path = "support/forks.rs"]
mod forks;
#[path = "waiting/hands.rs"]
mod hands;
#[path = "waiting/load.rs"]
mod load;
#[path = "waiting/order.rs"]
mod order;
#[path = "waiting/pauses.rs"]
mod pauses;
#[path = "waiting/rates.rs"]
mod rates;
#[path = "waiting/stopped.rs"]
mod stopped;
#[path = "waiting/storm.rs"]
mod storm;
#[path = "support/mod.rs"]
mod support;
#[path = "waiting/wakes.rs"]
mod wakes;
#[path = "waiting/woken.rs"]
mod woken;

use hands::Mode::{Futures, Processes, Threads};

/// The same test in each mode.
macro_rules! in_all_modes {
    ($($name:literal: $test:path,)*) => {
        vec![$(
            (concat!($name, "_among_threads"), || $test(Threads)),
            (concat!($name, "_among_futures"), || $test(Futures)),
            (concat!($name, "_among_processes"), || $test(Processes)),
        )*]
    };
}

fn main() {
    let roles: &[support::Role] = &[
        ("hand", hands::role),
        ("loop", order::loop_role),
        ("storm", storm::role),
        ("locker", stopped::locker_role),
        ("sleeper", stopped::sleeper_role),
        ("interrupted", deaths::interrupted_role),
        ("crowd", woken::crowd_role),
        ("peer", load::peer_role),
        ("burner", load::burner_role),
    ];
    let mut tests: Vec<(&'static str, fn())> = in_all_modes! {
        "a_release_wakes_the_next": wakes::by_release,
        "a_drop_wakes_the_next": wakes::by_drop,
        "a_cancelled_acquisition_wakes_the_next": wakes::by_cancel,
        "an_update_that_refunds_wakes_the_next": wakes::by_update,
        "a_settlement_that_refunds_wakes_the_next": wakes::by_settle,
        "an_adjustment_that_refunds_wakes_the_next": wakes::by_adjust,
        "permits_given_back_early_wake_the_next": wakes::by_early_return,
        "a_panic_in_run_wakes_the_next": wakes::by_panic,
        "more_capacity_wakes_as_many_as_fit": wakes::by_more_capacity,
        "a_faster_rate_wakes_whoever_waits_for_it": wakes::by_a_faster_rate,
        "a_waiter_that_has_become_impossible_is_told_never": wakes::when_impossible,
        "a_reset_wakes_as_many_as_fit": wakes::by_reset,
        "moving_a_manual_clock_wakes_whoever_is_due": wakes::by_a_manual_clock,
        "a_removal_wakes_everybody": wakes::by_removal,
        "patience_ends_on_its_own": wakes::by_the_end_of_patience,
        "a_rate_wait_ends_at_its_computed_instant": wakes::at_the_computed_instant,
        "a_rate_wait_on_a_coarse_clock_ends": wakes::at_the_computed_instant_of_a_coarse_clock,
        "one_ahead_that_gives_up_lets_the_next_through": wakes::when_one_ahead_gives_up,
        "one_ahead_that_is_served_lets_the_next_through": wakes::when_one_ahead_is_served,
        "one_ahead_that_leaves_lets_a_chain_through": wakes::when_one_ahead_leaves_a_chain,
        "one_behind_that_gave_up_delays_nobody": wakes::though_one_behind_gave_up,
        "what_is_wanted_0_of_delays_nobody": wakes::though_others_wait_for_what_it_wants_none_of,
        "without_order_a_small_request_does_not_sleep_through_its_turn":
            wakes::without_order_a_small_one_is_served_in_its_own_time,
        "debt_made_meanwhile_only_prolongs_a_wait": wakes::though_debt_was_made_meanwhile,
        "patience_may_be_endless_or_none": wakes::with_extreme_patience,
        "as_many_limits_as_there_can_be_are_waited_for": wakes::for_as_many_limits_as_there_can_be,
        "whoever_asks_behind_others_is_told_how_many": answers::queued,
        "whoever_wants_something_else_passes": answers::other_limits_pass,
        "without_order_newcomers_pass": answers::any_order_passes,
        "a_full_queue_is_its_own_answer": answers::full,
        "more_is_refused_while_others_wait_for_it": answers::more,
        "never_is_said_even_while_others_wait": answers::never_behind_others,
        "waiting_for_what_one_holds_times_out_and_says_who_holds_it": answers::nested,
        "the_end_of_a_pause_wakes_everybody": pauses::its_end_wakes_everybody,
        "what_comes_back_in_a_pause_is_granted_at_its_end":
            pauses::what_came_back_meanwhile_is_granted_at_its_end,
        "a_pause_that_becomes_longer_is_slept_through": pauses::a_longer_one_is_slept_through_too,
        "resuming_by_hand_wakes_everybody_in_order": pauses::resuming_wakes_everybody,
        "a_slow_start_lets_everybody_in_and_in_order": pauses::the_slow_start_lets_everybody_in,
        "patience_ends_in_a_pause_too": pauses::patience_ends_in_it,
        "a_manual_clock_grants_exactly_what_fits_in_order": rates::exact,
        "waiters_on_a_slow_rate_are_served_in_order_and_never_too_fast": rates::paced,
    };
    tests.extend(order::TESTS);
    tests.extend(stopped::TESTS);
    tests.extend(pauses::TESTS);
    tests.extend(deaths::TESTS);
    tests.extend(storm::TESTS);
    tests.extend(answers::TESTS);
    tests.extend(woken::TESTS);
    tests.extend(load::TESTS);
    support::main(roles, tests);
}
