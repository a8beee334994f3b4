//! Living beside the crates `shared_memory` and `raw_sync`: mappings made with the one are adopted, events of
//! the other replaced; and what `raw_sync`'s own mutex does when its holder is killed, next to ours.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[path = "interop/adopting.rs"]
mod adopting;
#[path = "interop/events.rs"]
mod events;
#[path = "support/forks.rs"]
mod forks;
#[path = "support/mod.rs"]
mod support;
#[path = "support/victim.rs"]
mod victim;

use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use limitset::sync::LockedMutex;
use limitset::{Segment, SegmentOptions};
use raw_sync::locks::{LockImpl, LockInit, Mutex};
use shared_memory::{Shmem, ShmemConf};
use support::{TempName, Worker, listen, say};

/// How long the waiter of a dead holder is watched: hundreds of times what ours needs to go on.
const OBSERVED: Duration = Duration::from_secs(2);

fn main() {
    support::main(
        &[
            ("adopt", adopting::adopt_role),
            ("adopt_forked", adopting::forked_role),
            ("adopt_full", adopting::full_role),
            ("adopt_stepped", adopting::stepped_role),
            ("event_wait", events::wait_role),
            ("event_count", events::count_role),
            ("event_loop", events::loop_role),
            ("event_stepped", events::stepped_role),
            ("hold_raw", hold_raw_role),
            ("wait_raw", wait_raw_role),
            ("hold_ours", hold_ours_role),
            ("wait_ours", wait_ours_role),
        ],
        vec![
            ("a_fresh_mapping_becomes_a_segment_and_its_file_stays", adopting::fresh),
            ("a_mapping_that_is_a_segment_is_attached_to", adopting::existing),
            ("a_mapping_that_is_too_small_is_refused_with_the_size_it_needs", adopting::too_small),
            ("a_mapping_with_bytes_of_others_is_refused_and_left_alone", adopting::foreign),
            ("a_mapping_whose_name_leads_elsewhere_is_refused", adopting::renamed),
            ("a_mapping_somebody_else_is_adopting_is_busy", adopting::busy),
            ("an_adopted_mapping_outlives_a_forked_child_that_drops_it", adopting::forked),
            ("adopting_on_a_full_file_system_is_an_error_and_no_signal", adopting::full),
            ("processes_that_adopt_at_once_share_one_segment", adopting::at_once),
            ("an_adopter_killed_at_random_leaves_what_the_next_can_adopt", adopting::killed),
            ("an_adopter_killed_at_any_instruction_leaves_what_the_next_can_adopt", adopting::stepped),
            ("ours_is_used_like_the_event_it_replaces", events::drop_in),
            ("an_event_times_out_and_says_so", events::timeouts),
            ("bytes_that_are_no_event_are_refused_and_any_address_will_do", events::places),
            ("a_set_wakes_every_process_that_waits_even_if_cleared_at_once", events::manual_reset),
            ("an_auto_reset_event_lets_one_process_go_per_set", events::auto_reset),
            ("an_event_outlives_150_kills_of_setters_and_waiters", events::killed),
            ("a_setter_killed_at_any_instruction_strands_no_sleeper", events::setter_stepped),
            ("a_waiter_killed_at_any_instruction_leaves_a_usable_event", events::waiter_stepped),
            ("control_a_raw_sync_mutex_stays_locked_when_its_holder_is_killed_and_ours_does_not", control),
        ],
    );
}

/// The id that `shared_memory` knows the file of a name by.
fn id_of(name: &str) -> String {
    format!("/limitset.{name}")
}

fn open(name: &str) -> Shmem {
    ShmemConf::new().os_id(id_of(name)).open().unwrap()
}

// ---- the negative control ----

fn options() -> SegmentOptions {
    Segment::options().slots(8).waiters(2).mutex("ours", 1).words("theirs", 16).words("entered", 2)
}

/// The mutex of `raw_sync` in the plain words of a segment: both kinds live in the same shared memory.
fn raw_mutex(segment: &Segment, is_new: bool) -> Box<dyn LockImpl> {
    let place: *mut u8 = segment.words("theirs").unwrap().as_ptr().cast_mut().cast();
    let make = if is_new { Mutex::new } else { Mutex::from_existing };
    // SAFETY: 128 bytes that are mapped as long as the segment is attached, that is to the end of the test or
    // worker, and that are used for nothing else; the mutex guards no data.
    unsafe { make(place, std::ptr::null_mut()) }.unwrap().0
}

fn hold_raw_role(arguments: &[String]) {
    let segment = Segment::attach(&arguments[0]).unwrap();
    let mutex = raw_mutex(&segment, false);
    let _held = mutex.lock().unwrap();
    say("holding");
    listen();
}

fn wait_raw_role(arguments: &[String]) {
    let segment = Segment::attach(&arguments[0]).unwrap();
    let mutex = raw_mutex(&segment, false);
    say("waiting");
    let _held = mutex.lock().unwrap();
    segment.words("entered").unwrap()[0].store(1, SeqCst);
    say("entered");
    listen();
}

fn hold_ours_role(arguments: &[String]) {
    let segment = Segment::attach(&arguments[0]).unwrap();
    let mutex = segment.mutex("ours").unwrap();
    let _held = mutex.lock().unwrap().guard();
    say("holding");
    listen();
}

fn wait_ours_role(arguments: &[String]) {
    let segment = Segment::options().patience(Duration::from_secs(3600)).attach(&arguments[0]).unwrap();
    let mutex = segment.mutex("ours").unwrap();
    say("waiting");
    let locked = mutex.lock().unwrap();
    assert!(matches!(locked, LockedMutex::OwnerDied(_)));
    segment.words("entered").unwrap()[1].store(1, SeqCst);
    say("entered");
    listen();
}

fn control() {
    let name = TempName::new();
    let segment = options().create(&name).unwrap();
    let _mutex = raw_mutex(&segment, true);
    let entered = segment.words("entered").unwrap();
    let [mut theirs, mut ours] = ["raw", "ours"].map(|kind| {
        let mut holder = Worker::start(&format!("hold_{kind}"), &[&name.0]);
        holder.expect("holding");
        let mut waiter = Worker::start(&format!("wait_{kind}"), &[&name.0]);
        waiter.expect("waiting");
        waiter.wait_until_asleep();
        holder.kill();
        waiter
    });
    let killed = Instant::now();
    ours.expect("entered");
    assert_eq!(entered[1].load(SeqCst), 1);

    while killed.elapsed() < OBSERVED {
        assert_eq!(entered[0].load(SeqCst), 0, "raw_sync's mutex passes on now: the docs claim it does not");
        std::thread::sleep(Duration::from_millis(50));
    }
    theirs.wait_until_asleep();
    theirs.kill();
}
