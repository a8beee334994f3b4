//! Every model, with the protocol as it is. One binary, so that the long ones share the processors.

use loom_tests::models::{
    at_once, cooldown, enrolment, journal, lock, queue, reader, recovery, rejudge, semaphore, windows, work,
};
use loom_tests::mutant::CONTROL;

#[test]
fn lock_excludes() {
    lock::lock_excludes(CONTROL);
}

#[test]
fn lock_excludes_three() {
    lock::lock_excludes_three(CONTROL);
}

#[test]
fn lock_loses_no_wake() {
    lock::lock_loses_no_wake(CONTROL);
}

#[test]
fn giving_up_strands_nobody() {
    lock::giving_up_strands_nobody(CONTROL);
}

#[test]
fn journal_all_or_none() {
    journal::journal_all_or_none(CONTROL);
}

#[test]
fn journal_all_or_none_three() {
    journal::journal_all_or_none_three(CONTROL);
}

#[test]
fn recovery_survives_kills() {
    journal::recovery_survives_kills(CONTROL);
}

#[test]
fn thieves_take_turns() {
    journal::thieves_take_turns(CONTROL);
}

#[test]
fn thieves_are_killed() {
    journal::thieves_are_killed(CONTROL);
}

#[test]
fn threads_of_one_participant() {
    journal::threads_of_one_participant(CONTROL);
}

#[test]
fn newcomer_is_alive() {
    enrolment::newcomer_is_alive(CONTROL);
}

#[test]
fn successor_betrays_death() {
    enrolment::successor_betrays_death(CONTROL);
}

#[test]
fn slot_passes_on() {
    enrolment::slot_passes_on(CONTROL);
}

#[test]
fn slot_is_reused() {
    enrolment::slot_is_reused(CONTROL);
}

#[test]
fn snapshot_is_whole() {
    reader::snapshot_is_whole(CONTROL);
}

#[test]
fn snapshot_during_recovery() {
    reader::snapshot_during_recovery(CONTROL);
}

#[test]
fn snapshot_shows_nothing_undone() {
    reader::snapshot_shows_nothing_undone(CONTROL);
}

#[test]
fn snapshot_beside_a_newcomer() {
    reader::snapshot_beside_a_newcomer(CONTROL);
}

#[test]
fn permits_balance() {
    semaphore::permits_balance(CONTROL);
}

#[test]
fn permits_return_once() {
    semaphore::permits_return_once(CONTROL);
}

#[test]
fn sleeper_gets_its_permit() {
    semaphore::sleeper_gets_its_permit(CONTROL);
}

#[test]
fn sleepers_get_their_permits() {
    semaphore::sleepers_get_their_permits(CONTROL);
}

#[test]
fn recovery_rings() {
    semaphore::recovery_rings(CONTROL);
}

#[test]
fn adoption_rings() {
    semaphore::adoption_rings(CONTROL);
}

#[test]
fn windows_take_turns() {
    windows::windows_take_turns(CONTROL);
}

#[test]
fn holders_take_turns() {
    windows::holders_take_turns(CONTROL);
}

#[test]
fn last_sweep_serves_the_waiter() {
    windows::last_sweep_serves_the_waiter(CONTROL);
}

#[test]
fn at_once_balances() {
    at_once::at_once_balances(CONTROL);
}

#[test]
fn at_once_passes_nobody_over() {
    at_once::at_once_passes_nobody_over(CONTROL);
}

#[test]
fn waiter_gets_its_grant() {
    queue::waiter_gets_its_grant(CONTROL);
}

#[test]
fn waiters_are_served_in_order() {
    queue::waiters_are_served_in_order(CONTROL);
}

#[test]
fn timeout_against_grant() {
    queue::timeout_against_grant(CONTROL);
}

#[test]
fn cancel_passes_the_grant_on() {
    queue::cancel_passes_the_grant_on(CONTROL);
}

#[test]
fn the_dead_pass_their_turn_on() {
    queue::the_dead_pass_their_turn_on(CONTROL);
}

#[test]
fn recovery_rings_waiters() {
    queue::recovery_rings_waiters(CONTROL);
}

#[test]
fn newcomer_does_not_overtake() {
    queue::newcomer_does_not_overtake(CONTROL);
}

#[test]
fn lost_place_is_left_alone() {
    queue::lost_place_is_left_alone(CONTROL);
}

#[test]
fn removal_ends_waiting() {
    rejudge::removal_ends_waiting(CONTROL);
}

#[test]
fn lowered_limit_refuses() {
    rejudge::lowered_limit_refuses(CONTROL);
}

#[test]
fn refund_is_granted() {
    rejudge::refund_is_granted(CONTROL);
}

#[test]
fn threads_of_one_participant_wait() {
    rejudge::threads_of_one_participant_wait(CONTROL);
}

#[test]
fn shared_doorbell_tells_of_all() {
    rejudge::shared_doorbell_tells_of_all(CONTROL);
}

#[test]
fn removal_finds_used_entries() {
    rejudge::removal_finds_used_entries(CONTROL);
}

#[test]
fn removal_rings_participants() {
    rejudge::removal_rings_participants(CONTROL);
}

#[test]
fn shared_doorbell_rings_last() {
    rejudge::shared_doorbell_rings_last(CONTROL);
}

#[test]
fn the_dead_come_in_pairs() {
    queue::the_dead_come_in_pairs(CONTROL);
}

#[test]
fn successor_serves_waiters() {
    rejudge::successor_serves_waiters(CONTROL);
}

#[test]
fn reports_pause_once() {
    cooldown::reports_pause_once(CONTROL);
}

#[test]
fn late_report_is_absorbed() {
    cooldown::late_report_is_absorbed(CONTROL);
}

#[test]
fn report_against_admission() {
    cooldown::report_against_admission(CONTROL);
}

#[test]
fn pause_is_slept_through() {
    cooldown::pause_is_slept_through(CONTROL);
}

#[test]
fn leaving_passes_the_alarm_on() {
    cooldown::leaving_passes_the_alarm_on(CONTROL);
}

#[test]
fn report_against_expiry() {
    cooldown::report_against_expiry(CONTROL);
}

#[test]
fn resuming_admits_waiters() {
    cooldown::resuming_admits_waiters(CONTROL);
}

#[test]
fn moved_clock_ends_the_pause() {
    cooldown::moved_clock_ends_the_pause(CONTROL);
}

#[test]
fn success_against_report() {
    cooldown::success_against_report(CONTROL);
}

#[test]
fn slow_start_spaces_waiters() {
    cooldown::slow_start_spaces_waiters(CONTROL);
}

#[test]
fn slow_start_survives_kills() {
    cooldown::slow_start_survives_kills(CONTROL);
}

#[test]
fn reporters_die_in_pairs() {
    cooldown::reporters_die_in_pairs(CONTROL);
}

#[test]
fn items_are_handed_out_once() {
    work::items_are_handed_out_once(CONTROL);
}

#[test]
fn payload_is_whole() {
    work::payload_is_whole(CONTROL);
}

#[test]
fn result_is_whole() {
    work::result_is_whole(CONTROL);
}

#[test]
fn dead_workers_item_returns() {
    work::dead_workers_item_returns(CONTROL);
}

#[test]
fn attempts_end_in_a_dead_letter() {
    work::attempts_end_in_a_dead_letter(CONTROL);
}

#[test]
fn item_is_parked_with_the_pause() {
    work::item_is_parked_with_the_pause(CONTROL);
}

#[test]
fn parked_items_are_handed_out_once() {
    work::parked_items_are_handed_out_once(CONTROL);
}

#[test]
fn taker_hears_of_the_push() {
    work::taker_hears_of_the_push(CONTROL);
}

#[test]
fn pusher_hears_of_room() {
    work::pusher_hears_of_room(CONTROL);
}

#[test]
fn collector_hears_of_the_result() {
    work::collector_hears_of_the_result(CONTROL);
}

#[test]
fn taker_hears_that_the_pause_is_over() {
    work::taker_hears_that_the_pause_is_over(CONTROL);
}

#[test]
fn taker_hears_that_all_is_over() {
    work::taker_hears_that_all_is_over(CONTROL);
}

#[test]
fn collector_hears_that_all_is_over() {
    work::collector_hears_that_all_is_over(CONTROL);
}

#[test]
fn rings_find_whom_they_help() {
    work::rings_find_whom_they_help(CONTROL);
}

#[test]
fn leaving_taker_rings_on() {
    work::leaving_taker_rings_on(CONTROL);
}

#[test]
fn takers_ring_on() {
    work::takers_ring_on(CONTROL);
}

#[test]
fn removal_ends_waiting_for_work() {
    work::removal_ends_waiting_for_work(CONTROL);
}

#[test]
fn recovery_rings_takers() {
    work::recovery_rings_takers(CONTROL);
}

#[test]
fn recovery_is_recovered() {
    recovery::recovery_is_recovered(CONTROL);
}

#[test]
fn moved_alarm_is_recovered() {
    recovery::moved_alarm_is_recovered(CONTROL);
}

#[test]
fn collecting_passes_the_alarm_on() {
    recovery::collecting_passes_the_alarm_on(CONTROL);
}

#[test]
fn covered_newcomer_delays_nobody() {
    queue::covered_newcomer_delays_nobody(CONTROL);
}
