//! The models. Each states the one invariant it checks.

pub mod at_once;
pub mod cooldown;
pub mod enrolment;
pub mod journal;
pub mod lock;
pub mod queue;
pub mod reader;
pub mod recovery;
pub mod rejudge;
pub mod semaphore;
pub mod windows;
pub mod work;

use crate::mutant::Mutation;

/// Slot and role of a participant that comes when all is quiet, and is never killed.
const LATE: u32 = 4;

/// A model by its name.
type Named = (&'static str, fn(Mutation));

macro_rules! models {
    ($($file:ident::$model:ident),+ $(,)?) => { &[$((stringify!($model), $file::$model)),+] };
}

/// All models.
pub const MODELS: &[Named] = models![
    lock::lock_excludes,
    lock::lock_excludes_three,
    lock::lock_loses_no_wake,
    lock::giving_up_strands_nobody,
    journal::journal_all_or_none,
    journal::journal_all_or_none_three,
    journal::recovery_survives_kills,
    journal::thieves_take_turns,
    journal::thieves_are_killed,
    journal::threads_of_one_participant,
    enrolment::newcomer_is_alive,
    enrolment::successor_betrays_death,
    enrolment::slot_passes_on,
    enrolment::slot_is_reused,
    reader::snapshot_is_whole,
    reader::snapshot_during_recovery,
    reader::snapshot_shows_nothing_undone,
    reader::snapshot_beside_a_newcomer,
    semaphore::permits_balance,
    semaphore::permits_return_once,
    semaphore::sleeper_gets_its_permit,
    semaphore::sleepers_get_their_permits,
    semaphore::recovery_rings,
    semaphore::adoption_rings,
    windows::windows_take_turns,
    windows::holders_take_turns,
    windows::last_sweep_serves_the_waiter,
    at_once::at_once_balances,
    at_once::at_once_passes_nobody_over,
    queue::waiter_gets_its_grant,
    queue::waiters_are_served_in_order,
    queue::timeout_against_grant,
    queue::cancel_passes_the_grant_on,
    queue::the_dead_pass_their_turn_on,
    queue::the_dead_come_in_pairs,
    queue::recovery_rings_waiters,
    queue::newcomer_does_not_overtake,
    queue::lost_place_is_left_alone,
    queue::covered_newcomer_delays_nobody,
    rejudge::removal_ends_waiting,
    rejudge::removal_finds_used_entries,
    rejudge::removal_rings_participants,
    rejudge::lowered_limit_refuses,
    rejudge::refund_is_granted,
    rejudge::successor_serves_waiters,
    rejudge::threads_of_one_participant_wait,
    rejudge::shared_doorbell_tells_of_all,
    rejudge::shared_doorbell_rings_last,
    recovery::recovery_is_recovered,
    recovery::moved_alarm_is_recovered,
    recovery::collecting_passes_the_alarm_on,
    cooldown::reports_pause_once,
    cooldown::late_report_is_absorbed,
    cooldown::report_against_admission,
    cooldown::pause_is_slept_through,
    cooldown::leaving_passes_the_alarm_on,
    cooldown::report_against_expiry,
    cooldown::resuming_admits_waiters,
    cooldown::moved_clock_ends_the_pause,
    cooldown::success_against_report,
    cooldown::slow_start_spaces_waiters,
    cooldown::slow_start_survives_kills,
    cooldown::reporters_die_in_pairs,
    work::items_are_handed_out_once,
    work::payload_is_whole,
    work::result_is_whole,
    work::dead_workers_item_returns,
    work::attempts_end_in_a_dead_letter,
    work::item_is_parked_with_the_pause,
    work::parked_items_are_handed_out_once,
    work::taker_hears_of_the_push,
    work::recovery_rings_takers,
    work::pusher_hears_of_room,
    work::collector_hears_of_the_result,
    work::taker_hears_that_the_pause_is_over,
    work::taker_hears_that_all_is_over,
    work::collector_hears_that_all_is_over,
    work::rings_find_whom_they_help,
    work::leaving_taker_rings_on,
    work::takers_ring_on,
    work::removal_ends_waiting_for_work,
];
