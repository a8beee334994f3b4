//! The table of defects, each with the environment's effect that brings it about.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use super::{Class, Effect, Mutation, mutation};

/// The word of a set with the number of those who wait; `docs/format.md` names it.
const QUEUE_LENGTH: usize = 7;
/// The words about pauses; `docs/format.md` names them.
const NEXT_ADMISSION: usize = 2;
const COOLDOWN_GENERATION: usize = 3;
const COOLDOWN_UNTIL: usize = 8;
const COOLDOWN_COUNT: usize = 9;
const SLOW_ADMISSIONS_LEFT: usize = 10;
/// The first and the last of the words of a set that are reserved; no row that is written at once is longer.
pub(super) const FIRST_UNUSED: usize = 25;
pub(super) const UNUSED: usize = 31;
/// The word with the state of the first entry of the queue, in a set of one limit of permits and three slots.
const FIRST_STATE: usize = 32 + 8 + 8 + 3 * 2;

/// The word with the units of the second limit that ever joined the queue, in a set of two limits.
const ENQUEUED_OF_SECOND: usize = 32 + 2 * 8 + 8 + 4;

/// The first word of a work queue (the next item), in a set of one limit of permits and three slots without waiters.
const FIRST_READY: usize = 32 + 8 + 8 + 3 * 2;
/// How many items of it are done.
const DONE: usize = FIRST_READY + 21;
/// The words of its first item: state, generation of who has it, attempts.
const ITEM_STATE: usize = FIRST_READY + 32;
const ITEM_GENERATION: usize = ITEM_STATE + 5;
const ITEM_ATTEMPTS: usize = ITEM_STATE + 7;

/// All defects.
#[rustfmt::skip]
pub const MUTATIONS: &[Mutation] = &[
    mutation("lock_without_acquire", "a holder may not see what the last one wrote",
        Effect::WeakenCas(Class::Lock, AcqRel, Release)),
    mutation("unlock_without_release", "a holder may keep its writes from the next one",
        Effect::RelaxStores(Class::Lock)),
    mutation("name_before_generation", "a holder's name may be seen before the generation it belongs to",
        Effect::WeakenCas(Class::Lock, AcqRel, Acquire)),
    mutation("judge_without_acquire", "who judges a holder may know an older generation than the holder's",
        Effect::RelaxLoads(Class::Lock)),
    mutation("generation_without_release", "a new owner may keep from others what its predecessor wrote",
        Effect::RelaxStores(Class::Generation)),
    mutation("generation_without_acquire", "who sees a slot reused may not see what its dead owner wrote",
        Effect::RelaxLoads(Class::Generation)),
    mutation("change_without_release", "a change may be seen with the lock still free",
        Effect::RelaxJournal(true)),
    mutation("commit_without_release", "a change may look over before the words have changed",
        Effect::RelaxJournal(false)),
    mutation("word_without_release", "a changed word may be seen before that something changes",
        Effect::RelaxStores(Class::Word)),
    mutation("reader_without_acquire", "a reader may read words from before the change",
        Effect::RelaxLoads(Class::Change)),
    mutation("writer_without_fence", "undone words may be seen before that something changes",
        Effect::SkipFence(Release)),
    mutation("reader_without_fence", "a reader may look for changes before it has read the words",
        Effect::SkipFence(Acquire)),
    mutation("no_journal", "the journal is always empty", Effect::LoseJournal(true)),
    mutation("length_after_word", "a word changes before its old value counts as saved",
        Effect::LengthAfterWord),
    mutation("stale_old_value", "the old value is not saved, undoing restores whatever is there",
        Effect::LoseOldValues),
    mutation("commit_before_apply", "the last word changes after the commit",
        Effect::WordAfterCommit),
    mutation("skip_recovery", "journal entries of the dead are not looked at",
        Effect::Read(Class::Change, 0)),
    mutation("undo_restores_nothing", "recovery empties the journal without restoring a word",
        Effect::LoseUndo),
    mutation("steal_from_the_living", "everybody counts as dead",
        Effect::SlotsLookFree),
    mutation("death_unnoticed", "nobody counts as dead", Effect::SlotsLookTaken),
    mutation("generation_not_published", "a new owner of a slot does not write its generation",
        Effect::LoseStores(Class::Generation)),
    mutation("one_generation", "all owners of a slot have the same name",
        Effect::OneGeneration),
    mutation("lock_wake_lost", "unlocking wakes nobody",
        Effect::LoseWakes(Class::Sleepers)),
    mutation("unlock_without_fence", "who unlocks may overlook somebody who is about to sleep",
        Effect::SkipPairedFence(true)),
    mutation("sleeper_without_fence", "who is about to sleep may overlook that the lock is free",
        Effect::SkipPairedFence(false)),
    mutation("two_light_fences", "who unlocks and who is about to sleep both leave the barrier to the other",
        Effect::LightenFences),
    mutation("waiters_forgotten", "who slept for the lock does not wake the next sleeper",
        Effect::ForgetWaiters),
    mutation("debt_forgotten", "who gives up waiting for the lock keeps its wake from the next sleeper",
        Effect::ForgetDebt),
    mutation("doorbell_not_rung", "giving permits back does not change the doorbell",
        Effect::RingNothing(Class::Doorbell)),
    mutation("doorbell_wake_lost", "giving permits back wakes nobody",
        Effect::LoseWakes(Class::Doorbell)),
    mutation("doorbell_wakes_one", "giving several permits back wakes one sleeper",
        Effect::WakeOneOfAll),
    mutation("sleepers_bit_trusted", "sleepers that the dead were about to wake stay asleep",
        Effect::TrustSleepersBit),
    mutation("taken_not_counted", "taking permits does not raise the total",
        Effect::LoseNonZeroOf(1)),
    mutation("returned_twice", "a dead holder's row keeps what was returned from it",
        Effect::LoseZeroOf(3)),
    mutation("cursor_lost", "every sweep asks about the same slots",
        Effect::LoseStores(Class::Other)),
    mutation("commit_lost", "the journal is never emptied, so what was done is undone later",
        Effect::LoseJournal(false)),
    mutation("grant_not_journalled", "that a waiter was granted something is not undone with the rest",
        Effect::JournalForgets(FIRST_STATE)),
    mutation("bell_not_rung", "a grant does not change the doorbell of its waiter",
        Effect::RingNothing(Class::Bell)),
    mutation("bell_wake_lost", "a grant wakes nobody",
        Effect::LoseWakes(Class::Bell)),
    mutation("bell_without_release", "a participant may hear that it was rung before it sees for which waiter",
        Effect::WeakenCas(Class::Bell, Release, Relaxed)),
    mutation("thief_rings_nobody", "waiters that the dead were about to wake stay asleep",
        Effect::ThiefRingsNothing),
    mutation("pending_rings_overlooked", "the process that recovers the lock takes no waiter's ring for pending",
        Effect::PendingOverlooked),
    mutation("queued_units_overlooked", "it looks as if nobody waits for anything of the second limit",
        Effect::ReadZeroOf(ENQUEUED_OF_SECOND)),
    mutation("queue_not_served", "permits are given back without a look at the queue",
        Effect::SkipServe),
    mutation("newcomer_first", "who asks takes what is there though others wait for it",
        Effect::Overtake),
    mutation("place_not_compared", "a waiter that was taken for dead leaves an entry that is another's by now",
        Effect::LeaveUnasked),
    mutation("queue_overlooked", "the queue looks empty to everybody",
        Effect::ReadZeroOf(QUEUE_LENGTH)),
    mutation("remover_without_fence", "who removes a set may overlook somebody who is about to wait",
        Effect::SkipStrongFence(true)),
    mutation("waiter_without_fence", "who is about to sleep may overlook that the set was removed",
        Effect::SkipStrongFence(false)),
    mutation("gate_overlooked", "whoever asks is admitted, pause or not",
        Effect::ReadZeroOf(NEXT_ADMISSION)),
    mutation("stamped_at_the_end", "a request counts as admitted when it ends: a late report is about the time after the pause",
        Effect::StampAtEnd),
    mutation("pauses_not_counted", "all pauses have the same number",
        Effect::LoseNonZeroOf(COOLDOWN_GENERATION)),
    mutation("pause_not_journalled", "the end of a pause that was not reported stays",
        Effect::JournalForgets(COOLDOWN_UNTIL)),
    mutation("count_not_journalled", "a report that was not made makes the next pause longer",
        Effect::JournalForgets(COOLDOWN_COUNT)),
    mutation("success_forgotten", "a success does not make the next pause a first one",
        Effect::LoseZeroOf(COOLDOWN_COUNT)),
    mutation("gap_not_noted", "after a pause everybody is admitted at once",
        Effect::LoseNonZeroOf(NEXT_ADMISSION)),
    mutation("slow_start_not_journalled", "an admission that was not made counts in the slow start",
        Effect::JournalForgets(SLOW_ADMISSIONS_LEFT)),
    mutation("taken_item_stays_in_line", "the last item is still the first of its list after it was taken",
        Effect::LoseZeroOf(FIRST_READY)),
    mutation("item_not_journalled", "the state of an item is not undone with the rest",
        Effect::JournalForgets(ITEM_STATE)),
    mutation("end_not_journalled", "that an item is done is counted, and not undone with the rest",
        Effect::JournalForgets(DONE)),
    mutation("owner_of_item_unknown", "nobody can tell that an item is with the dead",
        Effect::ReadZeroOf(ITEM_GENERATION)),
    mutation("attempt_not_counted", "an item does not know how often it was tried",
        Effect::LoseNonZeroOf(ITEM_ATTEMPTS)),
    mutation("pause_number_not_journalled", "a pause that was undone counts as one",
        Effect::JournalForgets(COOLDOWN_GENERATION)),
    mutation("parked_items_do_not_wait", "the set's pause looks over to everybody",
        Effect::ReadZeroOf(COOLDOWN_UNTIL)),
    mutation("bytes_after_commit", "an item's bytes are written after the transaction that says they are there",
        Effect::BytesLate),
    mutation("bell_after_look", "who waits for work asks the doorbell after it has looked",
        Effect::LookBeforeBell),
    mutation("work_bell_without_acquire", "who waits for work may hear of a removal before it sees it",
        Effect::RelaxLoads(Class::Bell)),
    mutation("woken_rings_nobody", "a waiter that was woken keeps to itself that there is more, or that it leaves",
        Effect::WokenRingsNobody),
];
