//! The world around a participant: every kind of fork, namespaces, other users.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[path = "world/children.rs"]
mod children;
#[path = "world/deaths.rs"]
mod deaths;
#[path = "support/forks.rs"]
mod forks;
#[path = "world/identity.rs"]
mod identity;
#[path = "world/leftovers.rs"]
mod leftovers;
#[path = "world/lending.rs"]
mod lending;
#[path = "world/names.rs"]
mod names;
#[path = "world/spaces.rs"]
mod spaces;
#[path = "support/mod.rs"]
mod support;
#[path = "world/users.rs"]
mod users;

use std::time::Duration;

use limitset::{Segment, SegmentOptions};
use support::{TempName, Worker};

/// What a test that cannot run here says instead.
type Skipped = String;

/// A test that may say why it cannot run here. Most bear on the fourth promise: a fork is safe.
macro_rules! test {
    ($name:literal, $test:expr) => {
        test!("4", $name, $test)
    };
    ($promises:literal, $name:literal, $test:expr) => {
        ($name, || or_skip($promises, $name, $test))
    };
}

fn main() {
    let roles: &[support::Role] = &[
        ("child", children::role),
        ("visit", children::visit_role),
        ("hold", deaths::hold_role),
        ("headless", deaths::headless_role),
        ("brood", deaths::brood_role),
        ("identity", identity::role),
        ("leftover", leftovers::role),
        ("lend", lending::role),
        ("named", names::role),
        ("space", spaces::role),
        ("unseen", spaces::unseen_role),
        ("user", users::role),
    ];
    let mut tests: Vec<(&'static str, fn())> = vec![
        test!("a_child_forked_under_another_threads_lock_waits_for_it_and_breaks_nothing", || child(
            "locked"
        )),
        test!("a_child_of_a_bare_clone_is_a_participant_of_its_own", || child("bare_clone")),
        test!("a_forked_child_may_exec_a_program_that_attaches_by_name", || child("exec")),
        test!("every_link_of_a_chain_of_forks_is_somebody_else", || child("chain")),
        test!("a_descriptor_that_leads_to_another_segment_is_not_believed", || child("another_file")),
        test!("a_daemon_can_enrol_after_it_closed_everything", || child("daemon")),
        test!("a_daemon_can_enrol_in_an_anonymous_segment", || child("anonymous_daemon")),
        test!("a_child_without_rights_root_and_mounts_can_enrol", || child("all_dropped")),
        test!("a_grandchild_beyond_reach_is_told_so", || child("beyond_reach")),
        test!("two_hundred_children_that_work_at_once_leave_nothing_behind", || child("many")),
        test!("a_fork_while_threads_attach_and_leave_keeps_nobody_alive", || child("storm")),
    ];
    tests.extend([
        test!("a_living_child_of_a_bare_clone_does_not_hide_the_death_of_its_parent", || {
            deaths::of_a_parent("clone")
        }),
        test!("a_spawned_program_does_not_hide_the_death_of_its_parent", || deaths::of_a_parent("spawn")),
        test!("a_program_run_by_vfork_does_not_hide_the_death_of_its_parent", || deaths::of_a_parent(
            "vfork"
        )),
        test!("the_permits_of_a_large_process_return", deaths::of_a_large_process),
        test!("a_process_whose_main_thread_has_ended_lives", deaths::of_a_main_thread),
        test!("children_go_on_when_their_parent_is_killed", deaths::among_the_busy),
        test!("2", "equal_pids_in_different_namespaces_are_not_mixed_up", spaces::equal_pids),
        test!("2", "another_time_namespace_is_refused_while_somebody_is_attached", spaces::another_time),
        test!("a_child_in_another_time_namespace_is_refused", || spaces::refused_child("time_child")),
        test!("2", "a_segment_of_mode_600_is_closed_to_other_users", users::closed),
        test!("2", "a_segment_of_mode_660_is_open_to_its_group_alone", users::open_to_a_group),
        test!("2", "a_segment_of_mode_640_can_be_watched_by_its_group", users::watched_by_a_group),
        test!("2", "a_segment_planted_by_another_user_is_refused", users::planted),
    ] as [(&'static str, fn()); 13]);
    tests.extend([
        test!("a_clone_between_two_tries_to_enrol_shares_no_descriptor", || leftovers::of("clone")),
        test!("a_child_without_a_slot_keeps_nobody_from_trying", || leftovers::of("full")),
        test!("a_child_that_met_a_busy_block_is_nobody_until_its_next_try", || leftovers::of("busy")),
        test!("a_number_that_became_somebody_elses_is_not_closed", || leftovers::of("numbers")),
        test!("a_child_that_leaves_unmaps_nothing_of_its_own", || leftovers::of("page")),
        test!("a_file_without_a_name_is_not_mistaken_for_the_segment", || leftovers::of("log")),
        test!("a_name_taken_away_is_noticed_by_a_child_that_enrols", || leftovers::of("unlinked")),
        test!("a_child_does_not_enrol_in_another_segment_of_the_name", || leftovers::of("replaced")),
        test!("a_removal_is_not_finished_on_another_segments_name", || leftovers::of("closed")),
        test!("threads_that_enrol_together_are_one_participant", || leftovers::of("threads")),
        test!("a_program_run_by_a_child_inherits_no_descriptor", || leftovers::of("exec")),
        test!("signals_do_not_keep_a_waiter_from_finding_its_lock_free", || leftovers::of("interrupted")),
        test!("nobody_is_refused_for_permits_that_the_dead_hold", || leftovers::of("refused")),
        test!("2", "a_child_that_lost_sight_of_proc_keeps_its_time", spaces::out_of_sight),
        test!("a_child_in_another_time_is_refused_though_it_lost_sight_of_proc", || {
            spaces::refused_child("time_child_hidden")
        }),
        test!("2", "who_never_saw_its_time_namespace_is_taken_to_be_in_the_right_one", spaces::never_seen),
        test!("2", "a_removal_that_may_not_unlink_closes_nothing_and_one_that_may_does", users::removal),
        test!("a_child_that_returns_from_an_update_neither_commits_nor_undoes_it", || {
            leftovers::of("returns")
        }),
    ] as [(&'static str, fn()); 18]);
    tests.extend([
        test!("3", "permits_of_a_killed_lender_stay_until_its_command_ends", lending::by_a_killed_lender),
        test!(
            "3",
            "permits_return_though_the_command_left_something_behind",
            lending::to_a_command_that_leaves_something_behind
        ),
        test!("3", "a_life_can_be_lent_again_when_it_is_back", lending::again),
        test!("a_forked_child_of_a_lender_does_not_hide_its_death", lending::by_somebody_who_forked),
        test!("3", "who_did_not_prepare_to_lend_its_life_is_told", lending::by_who_cannot),
    ] as [(&'static str, fn()); 5]);
    tests.extend([
        test!("2", "a_set_whose_file_was_moved_is_removed_for_every_process", || names::of("moved")),
        test!("2", "a_set_whose_file_was_replaced_is_removed_for_every_process", || names::of("replaced")),
        test!("2", "a_set_with_a_second_link_that_lost_its_name_is_removed_for_every_process", || {
            names::of("linked")
        }),
        test!("2", "a_creators_leftover_link_does_not_hide_a_removal", || names::of("leftover")),
        test!("2", "a_second_link_removes_nothing", names::second_link),
        test!("2", "a_set_that_was_moved_and_found_closed_is_gone_under_its_new_name_too", names::new_name),
        test!("2", "a_child_that_enrols_notices_that_the_file_was_moved", names::by_enrolling),
        test!("2", "a_process_that_sees_another_directory_removes_nothing", || names::unseen("directory")),
        test!("2", "a_process_that_sees_a_mount_in_place_of_the_file_removes_nothing", || {
            names::unseen("file")
        }),
        test!("2", "a_process_with_another_root_removes_nothing", || names::unseen("root")),
        test!("2", "a_removal_is_noticed_through_another_mount_of_the_directory", names::through_a_mount),
    ] as [(&'static str, fn()); 11]);
    tests.extend([
        test!("2", "an_acquisition_that_was_returned_gives_no_other_permit_back", || identity::of(
            "acquisition"
        )),
        test!("2", "an_acquisition_that_was_returned_changes_nothing_and_says_so", || identity::of(
            "reports"
        )),
        test!("7", "a_future_that_lost_its_place_leaves_no_other_place", || identity::of("future")),
        test!("7", "a_future_that_lost_its_place_is_woken_and_joins_anew", || identity::of("polled")),
        test!("7", "a_charge_that_lost_its_place_leaves_no_other_place", || identity::of("charge")),
        test!("7", "a_thread_that_lost_its_place_joins_anew", || identity::of("thread")),
        test!("2", "a_permit_that_was_returned_gives_no_other_permit_back", || identity::of("permit")),
        test!("2", "a_guard_of_a_lock_that_was_taken_over_changes_nothing", || identity::of("guard")),
        test!("6", "an_item_that_was_returned_writes_no_other_result", || identity::of("item")),
        test!("6", "a_result_that_was_returned_stays_with_its_next_collector", || identity::of("result")),
        test!("3", "a_lent_slot_lock_that_is_dropped_can_be_lent_again", || identity::of("dropped")),
        test!("3", "a_slot_lock_dropped_while_lent_can_still_be_taken_back", || identity::of(
            "dropped_while_lent"
        )),
    ] as [(&'static str, fn()); 12]);
    support::main(roles, tests);
}

fn or_skip(promises: &str, name: &str, test: impl FnOnce() -> Result<(), Skipped>) {
    match test() {
        Ok(()) => support::proof(promises, &name.replace('_', " "), "held"),
        Err(why) => println!("SKIPPED {name}: {why}"),
    }
}

/// Runs a test of forks in a process that has one thread to begin with.
fn child(what: &str) -> Result<(), Skipped> {
    let name = TempName::new();
    let mut worker = Worker::start("child", &[&name.0, what]);
    let answer = worker.hear();
    assert!(worker.finish().success());
    if answer == "done" { Ok(()) } else { Err(answer) }
}

fn as_root() -> Result<(), Skipped> {
    if nix::unistd::geteuid().is_root() { Ok(()) } else { Err("needs root".to_owned()) }
}

/// Much patience, because the machine may be busy; short slices, because tests wait for deaths.
fn options() -> SegmentOptions {
    Segment::options()
        .slots(16)
        .waiters(2)
        .mutex("pair", 2)
        .semaphore("db", 4)
        .words("notes", 2)
        .patience(Duration::from_secs(60))
        .doorbell_slice(Duration::from_millis(5))
}
