//! What a set of limits promises where there are several processes: deaths, stops, forks, removal.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[path = "set_processes/deaths.rs"]
mod deaths;
#[path = "set_processes/forked.rs"]
mod forked;
#[path = "support/forks.rs"]
mod forks;
#[path = "set_processes/others.rs"]
mod others;
#[path = "set_processes/stuck.rs"]
mod stuck;
#[path = "support/mod.rs"]
mod support;
#[path = "set_processes/work.rs"]
mod work;

use std::time::Duration;

use limitset::core::NEVER;
use limitset::{
    Acquisition, CallLimit, Clock, LimitSet, LimitSetBuilder, LimitStats, RateLimit, ResourceLimit, Segment,
    SegmentOptions,
};
use support::{listen, say};

fn main() {
    support::main(
        &[("user", user_role), ("forked", forked::role), ("dropper", stuck::dropper_role)],
        vec![
            ("another_process_sees_the_limits_and_the_config", others::attaching),
            ("another_process_shares_every_number", others::sharing),
            ("another_process_sees_new_numbers_at_its_next_acquire", others::reconfiguring),
            ("a_removed_set_is_removed_for_everybody", others::removing),
            (
                "a_file_keeps_charges_and_time_when_all_processes_are_gone_and_has_its_permits_back",
                others::file,
            ),
            ("the_permits_of_the_dead_return_before_anybody_is_denied_them", deaths::next_denial),
            (
                "a_refusal_within_the_slice_of_the_sleepers_returns_the_permits_of_a_killed_process",
                deaths::within_a_slice,
            ),
            (
                "a_waiter_without_time_gets_the_permits_of_a_killed_process_and_never_names_it",
                deaths::at_the_last_moment,
            ),
            ("between_two_sweeps_the_dead_are_told_and_can_be_reaped_at_once", deaths::reaping),
            ("a_dry_run_does_not_count_what_the_dead_held", deaths::checking),
            ("who_takes_the_slot_of_the_dead_returns_what_they_held", deaths::successor),
            ("a_writer_that_died_in_the_middle_leaves_the_state_before", deaths::in_mid_update),
            ("a_stopped_lock_holder_makes_a_set_unavailable_not_limited", stuck::denied),
            ("under_allow_a_stuck_set_lets_requests_pass_marked_and_counted", stuck::allowed),
            ("what_is_ended_while_the_lock_is_stuck_is_not_lost", || stuck::ending(stuck::End::GoesOn)),
            ("nor_if_the_stuck_holder_dies", || stuck::ending(stuck::End::Dies)),
            ("one_thread_returns_all_that_is_dropped_while_the_lock_is_stuck", stuck::one_thread),
            ("an_inherited_acquisition_is_inert_in_a_child", || forked::in_a_worker("inert")),
            ("so_it_is_in_a_child_of_an_anonymous_set", || forked::in_a_worker("inert_anonymous")),
            ("a_child_takes_part_on_its_own", || forked::in_a_worker("own")),
            ("so_does_a_child_of_an_anonymous_set", || forked::in_a_worker("own_anonymous")),
            ("a_dead_childs_permits_return_to_its_parent", || forked::in_a_worker("dead_child")),
            ("private_memory_answers_not_shared_in_a_child", || forked::in_a_worker("private")),
            ("a_dead_workers_item_comes_back_also_at_a_queue_that_is_never_empty", work::busy),
            ("a_result_comes_back_from_a_dead_collector", work::collector),
            ("a_stuck_lock_makes_a_queue_unavailable_and_loses_nothing", work::stuck),
            ("an_inherited_item_is_inert_in_a_child", || forked::in_a_worker("item")),
            ("a_child_without_a_slot_is_told_so_or_let_through", || forked::in_a_worker("no_slot")),
        ],
    );
}

const HOUR: Duration = Duration::from_secs(3600);

fn options() -> SegmentOptions {
    Segment::options().slots(4).waiters(2)
}

/// A hundred tokens, which need a report, and ten calls per minute; four connections.
fn builder() -> LimitSetBuilder {
    LimitSet::builder()
        .clock(Clock::Manual)
        .segment(options())
        .limit(RateLimit::per_minute("tokens", 100))
        .limit(CallLimit::per_minute(10))
        .limit(ResourceLimit::new("connections", 4))
        .config("region", "eu")
}

fn limit(set: &LimitSet, key: &str) -> LimitStats {
    set.stats().unwrap().limit(key).unwrap().clone()
}

/// A process that uses a set as it is told to, line by line, and tells what came of it.
fn user_role(arguments: &[String]) {
    let set = match arguments[1].as_str() {
        "attach" => LimitSet::attach(&arguments[0]).unwrap(),
        "open" => builder().open(&arguments[0]).unwrap(),
        other => panic!("{other}"),
    };
    say("attached");
    let mut held: Vec<Acquisition> = Vec::new();
    loop {
        let line = listen();
        let words: Vec<&str> = line.split(' ').collect();
        match words.as_slice() {
            ["acquire", tokens, connections] => {
                let amount = |text: &str| text.parse::<u64>().unwrap();
                let asked = [("tokens", amount(tokens)), ("connections", amount(connections))];
                match set.try_acquire(asked) {
                    Ok(granted) => {
                        held.push(granted);
                        say("granted");
                    }
                    Err(error) => say(&error.to_string()),
                }
            }
            ["cancel"] => {
                held.drain(..).for_each(|it| it.cancel().unwrap());
                say("cancelled");
            }
            ["advance", seconds] => {
                set.advance(Duration::from_secs(seconds.parse().unwrap())).unwrap();
                say("advanced");
            }
            ["reconfigure", connections] => {
                set.reconfigure([ResourceLimit::new("connections", connections.parse().unwrap())]).unwrap();
                say("reconfigured");
            }
            ["describe"] => {
                set.limits().iter().for_each(|limit| say(&limit.to_string()));
                say(&format!("{:?}", set.config()));
            }
            ["remove"] => {
                set.remove().unwrap();
                say("removed");
            }
            ["lock"] => {
                let (block, _) = set.segment().state_block().unwrap();
                let guard = block.lock(set.segment().participant().unwrap(), NEVER).unwrap().guard();
                say("locked");
                listen();
                guard.unlock().unwrap();
                say("unlocked");
            }
            ["half"] => half_an_update(&set),
            ["take"] => {
                std::mem::forget(set.queue().unwrap().take());
                say("taken");
            }
            ["collect"] => {
                std::mem::forget(set.queue().unwrap().collect());
                say("taken");
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Begins an update that changes every word of every limit, and never ends it.
fn half_an_update(set: &LimitSet) {
    let (block, holdings) = set.segment().state_block().unwrap();
    let mut guard = block.lock(set.segment().participant().unwrap(), NEVER).unwrap().guard();
    let mut change = guard.begin();
    for word in holdings.totals..holdings.totals + set.limits().len() * holdings.stride {
        change.set(word, 77_777).unwrap();
    }
    say("in the middle");
    listen();
    unreachable!("killed in the middle");
}
