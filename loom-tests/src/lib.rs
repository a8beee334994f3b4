//! Model checks of limitset's protocol: the very source of `limitset::core`, in a world made of loom's
//! objects.
//!
//! Loom runs a model once for every interleaving and for every value that a load may return under the memory
//! model. On top of that, a model is run again and again with one participant killed at its first operation,
//! at its second, and so on until it is never reached; then the next participant. No `cfg` is involved: the
//! protocol is generic over its environment, and so are its defects, which [`mutant`] puts into the
//! environment. Each model catches at least one of them (`tests/mutants.rs`).
//!
//! ```text
//! set        a set of one limit in a world, and what its participants do
//! depot      a set with a work queue, likewise
//! world      words, slots, kernel and participants of a model; kills
//! sleepers   those asleep on a word
//! sweep      all interleavings, a kill at every operation; what is printed
//! mutant     defects (shared with the tests that use real processes)
//! models     the models
//! ```
//!
//! The models, and what always holds in them; each says it again, exactly:
//!
//! ```text
//! lock       lock_excludes (_three)            nobody is inside with another who is alive
//!            lock_loses_no_wake                nobody sleeps for a free lock
//!            giving_up_strands_nobody          … nor if another sleeper gave up
//! journal    journal_all_or_none (_three)      words of one transaction change together
//!            recovery_survives_kills           … also if who undoes it is killed
//!            thieves_take_turns, _are_killed   a dead holder's lock passes to one, with whole words
//!            threads_of_one_participant        threads with one name exclude each other too
//! enrolment  newcomer_is_alive                 who enrols is not taken for dead
//!            successor_betrays_death           a reused slot hides nothing of its last owner
//!            slot_passes_on                    what the last owner began is undone once
//!            slot_is_reused                    … also if who undoes it is killed
//! reader     snapshot_is_whole                 a snapshot is a committed state
//!            snapshot_during_recovery          … also while somebody undoes
//!            snapshot_shows_nothing_undone     … never one that was given up
//!            snapshot_beside_a_newcomer        … nor a look into a living writer's work
//! semaphore  permits_balance                   never more permits than there are, none lost
//!            permits_return_once               those of the dead return once
//!            sleeper_gets_its_permit           a permit given back finds who sleeps for it
//!            sleepers_get_their_permits        … all of them
//!            recovery_rings, adoption_rings    … also if a stranger returned it for the dead
//! windows    windows_take_turns                sweeps that ask about few slots leave none out
//!            holders_take_turns                … nor a holder of a semaphore
//!            last_sweep_serves_the_waiter      a waiter that gives up first gets what a dead holder left
//! at_once    at_once_balances                  asking and giving back without a guard: nothing half done
//!            at_once_passes_nobody_over        … and who waits is not forgotten
//! queue      waiter_gets_its_grant             who waits is granted what is given back, and told
//!            waiters_are_served_in_order       … in the order of arrival
//!            newcomer_does_not_overtake        … and not who did not wait
//!            covered_newcomer_delays_nobody    … unless it leaves every waiter what it asked for
//!            timeout_against_grant             who gives up has it or has left
//!            cancel_passes_the_grant_on        … and what it leaves goes to the next
//!            the_dead_pass_their_turn_on       … also if it was killed, or who granted
//!            the_dead_come_in_pairs            … or both
//!            recovery_rings_waiters            who was granted by the dead is told by the living
//! recovery   recovery_is_recovered             … also if the process that recovers the lock is killed
//!            moved_alarm_is_recovered          a waiter whose alarm has moved is told, whoever is killed
//!            collecting_passes_the_alarm_on    … and tells the next one of its process in the end
//! rejudge    removal_ends_waiting              nobody sleeps in a set that was removed
//!            removal_finds_used_entries        … in whatever entry
//!            removal_rings_participants        … or behind whatever doorbell
//!            lowered_limit_refuses             who can never be served is told so
//!            refund_is_granted                 a token given back finds who waits for it
//!            successor_serves_waiters          … and so does what a slot's last owner held
//!            threads_of_one_participant_wait   threads wait like strangers, and die together
//!            shared_doorbell_tells_of_all      one doorbell for several waiters loses none
//!            shared_doorbell_rings_last        … and rings after theirs
//! cooldown   reports_pause_once                reports of one time begin one pause
//!            late_report_is_absorbed           … also those that come when it is over
//!            reporters_die_in_pairs            … also if all who report are killed
//!            report_against_admission          nobody is admitted in a pause, whatever is free
//!            pause_is_slept_through            who waits is admitted when it is over, told or not
//!            leaving_passes_the_alarm_on       … though one before it is stopped, and another has left
//!            report_against_expiry             … also if it has just become longer
//!            resuming_admits_waiters           … or was ended by hand
//!            moved_clock_ends_the_pause        … or the clock was moved by hand
//!            success_against_report            a success counts if it came before the report
//!            slow_start_spaces_waiters         after a pause there is one admission per gap
//!            slow_start_survives_kills         … whoever is killed admitting
//! work       items_are_handed_out_once         an item is with one at a time, none is lost
//!            payload_is_whole                  who takes an item reads what was pushed
//!            result_is_whole                   its end is recorded once, with what was written
//!            dead_workers_item_returns         … or it comes back, once, with its attempt counted
//!            attempts_end_in_a_dead_letter     … until it was tried often enough
//!            item_is_parked_with_the_pause     a 429 parks its item and pauses the set, or neither
//!            parked_items_are_handed_out_once  … and after the pause it is handed out again
//!            taker_hears_of_the_push           who waits for an item gets it
//!            recovery_rings_takers             … also if who pushed it was killed before it told
//!            pusher_hears_of_room              … and so does who waits for room
//!            collector_hears_of_the_result     … or for a result
//!            taker_hears_that_the_pause_is_over … or for the end of a pause
//!            taker_hears_that_all_is_over      nobody waits for items that will not come
//!            collector_hears_that_all_is_over  … nor leaves before the last result
//!            rings_find_whom_they_help         a ring wakes one waiter, whom it helps
//!            leaving_taker_rings_on            … and if that one leaves, the next
//!            takers_ring_on                    … and if more is there, the next, too
//!            removal_ends_waiting_for_work     nobody waits in a set that was removed
//! ```
//!
//! What loom does not see: stores that run ahead of earlier loads of their own thread (load buffering),
//! sequential consistency beyond acquire and release, and the order that a compiler gives to stores nobody
//! synchronises on. The last is why the journal's stores are releasing though no model needs it; the
//! single-step killer of the process tests looks at the instructions themselves.
//!
//! Orderings that no model of the queue needs, each weakened by itself: the acquiring loads of waiters' doorbells (whoever
//! wakes takes the lock, or has passed a full fence), the acquiring load of the number of entries in `ring_all` (the
//! full fence before it), and the releasing stores of the journal and the version (the lock; readers need the latter).
//! Those of enrolment are not put to the test here: other models do that. With a bound on preemptions the search may
//! miss interleavings even below the bound: that is why so little runs at one time here.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a model stops at the first surprise, like a test"
)]

pub mod depot;
pub mod models;
#[path = "../../tests/support/mutant.rs"]
pub mod mutant;
pub mod set;
mod sleepers;
pub mod sweep;
pub mod world;
