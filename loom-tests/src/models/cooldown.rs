//! Pausing together: reports of "too many requests" against each other, against admissions, against successes, and
//! against the end of the pause.
//!
//! One limit of permits. It is the instant `NOW`; a pause that begins then ends at `END`, and is followed by a slow
//! start of `SPACED` admissions, `GAP` apart. The clock is the world's: it is moved by the model, and alarms go off by
//! it, so an alarm that is not set, or too late, is a deadlock. Whoever lets go of the lock checks that nobody was
//! admitted in a pause, nor two at one instant after it (`spacing`).

use std::sync::{Arc, Mutex};
use std::time::Duration;

use limitset::engine::models::{Draft, Work};
use limitset::engine::{Admitted, Ending, Entered, Paused, Place, Report};
use limitset::protocol::{Env, Guard, NEVER};
use limitset::{Cooldown, Limit, ResourceLimit};

use crate::mutant::{Effect, Mutation};
use crate::set::{ALWAYS, Answer, Life, Promise, Set, Size, beside};
use crate::sweep::{Model, Scenario};
use crate::world::Sleep;

const NOW: u64 = 10;
const END: u64 = 100;
/// The second pause in a row is twice as long.
const SECOND_END: u64 = NOW + 2 * (END - NOW);
/// What the other side asks for if it wants more than the first pause, and when that is over.
const LONGER: u64 = 150;
const LONG_END: u64 = NOW + LONGER;
const GAP: u64 = 50;
const SPACED: u64 = 3;
/// When all is over.
const LATER: u64 = 10_000;

/// Admitted before the first pause, or after it and before anything went well.
const EARLY: Admitted = Admitted::new(0, false);
const ON_TRIAL: Admitted = Admitted::new(1, true);

/// What the words say about pauses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Words {
    next_admission: u64,
    generation: u64,
    until: u64,
    count: u64,
    spaced: u64,
    reports: u64,
    absorbed: u64,
}

impl Words {
    /// A first pause until this instant, by so many reports; none without a report.
    fn first(until: u64, reports: u64) -> Self {
        if reports == 0 {
            return Self::default();
        }
        let (generation, count, absorbed) = (1, 1, reports - 1);
        Self { next_admission: until, generation, until, count, spaced: SPACED, reports, absorbed }
    }

    fn all(self) -> [u64; 7] {
        let Self { next_admission, generation, until, count, spaced, reports, absorbed } = self;
        [next_admission, generation, until, count, spaced, reports, absorbed]
    }

    fn read(draft: &Draft, get: &dyn Fn(usize) -> u64) -> Self {
        let [next_admission, generation, until, count, spaced, reports, absorbed] = draft.cooldown().map(get);
        Self { next_admission, generation, until, count, spaced, reports, absorbed }
    }
}

/// What a set is like at first.
struct Start<'a> {
    permits: u64,
    /// Slots whose owners hold one each.
    holders: &'a [u32],
    /// The last one is for who looks when all is quiet.
    slots: u32,
    words: Words,
}

impl Start<'_> {
    fn draft(&self) -> Draft {
        let limit = Limit::from(ResourceLimit::new("permit", self.permits));
        let nanos = Duration::from_nanos;
        let cooldown = Cooldown::default().first(nanos(END - NOW)).jitter(0.0).slow_start(
            u32::try_from(SPACED).unwrap(),
            nanos(GAP),
            nanos(GAP),
        );
        let no_work = Work { items: 0, most: [1, 1] };
        let mut draft = Draft::with_work(vec![limit], self.slots, WAITERS, cooldown, no_work);
        for (index, value) in draft.cooldown().into_iter().zip(self.words.all()) {
            draft.words[index] = value;
        }
        for slot in self.holders {
            draft.hold(*slot, 0, 1);
        }
        draft
    }

    /// A set whose clock is the world's.
    fn set(&self, scenario: Scenario) -> Arc<Set> {
        let draft = self.draft();
        let promise = spacing(&draft);
        let size = Size { slots: self.slots, waiters: WAITERS, sleep: Sleep::UntilAlarm };
        let set = Set::in_time(scenario, draft, size, promise);
        set.world.pass(NOW);
        set
    }

    /// A set whose clock is moved by hand.
    fn set_by_hand(&self, scenario: Scenario, now: u64) -> Arc<Set> {
        let mut draft = self.draft().by_hand();
        let [_, manual_now] = draft.time();
        draft.words[manual_now] = now;
        let promise = spacing(&draft);
        let size = Size { slots: self.slots, waiters: WAITERS, sleep: Sleep::UntilNews };
        Set::in_time(scenario, draft, size, promise)
    }
}

const WAITERS: u32 = 3;

/// Nobody is admitted in a pause; then one, and one more per gap; and the slow start counts them.
fn spacing(draft: &Draft) -> Promise {
    let granted = draft.granted(0);
    let at_first = Words::read(draft, &|index| draft.words[index]);
    // How many were admitted before each pause; none if its beginning was not seen.
    let before = Mutex::new(vec![(at_first.generation, Some(0))]);
    let indices = draft.cooldown();
    Box::new(move |get, now| {
        let [_, generation, until, _, spaced, ..] = indices.map(get);
        let granted = get(granted);
        let known =
            before.lock().unwrap().iter().find(|(of, _)| *of == generation).map(|(_, before)| *before);
        let before = known.unwrap_or_else(|| {
            let seen = (now < until).then(|| granted - SPACED.saturating_sub(spaced));
            before.lock().unwrap().push((generation, seen));
            seen
        });
        let Some(before) = before.filter(|_| generation > 0) else { return };
        let since = granted - before;
        match now.checked_sub(until) {
            None => assert_eq!(since, 0, "somebody was admitted in a pause"),
            Some(after) => assert!(since <= 1 + after / GAP, "two were admitted at one instant"),
        }
        assert_eq!(spaced, SPACED.saturating_sub(since), "the slow start has lost count");
    })
}

/// The stamp of an acquisition, unless the defect is that it is stamped when it ends.
fn stamp<E: Env>(life: &Life<'_, E>, guard: &Guard<'_, E>, admitted: Admitted) -> Admitted {
    match life.effect() {
        Effect::StampAtEnd => life.engine.admitted(guard, None).unwrap(),
        _ => admitted,
    }
}

/// The one permit was of no use: the other side wanted less.
fn report<E: Env>(life: &Life<'_, E>, admitted: Admitted, retry_after: u64, noted: impl FnOnce()) -> Paused {
    let (mut guard, now) = life.lock_now().unwrap();
    noted();
    let report = Report { admitted: Some(stamp(life, &guard, admitted)), retry_after };
    life.note_return(1);
    let paused = life.engine.rate_limited(&mut guard, &life.charges(1), report, now).unwrap();
    life.unlock(guard, now).unwrap();
    paused
}

/// The one permit was of use.
fn succeed<E: Env>(life: &Life<'_, E>, admitted: Admitted, noted: impl FnOnce()) {
    let (mut guard, now) = life.lock_now().unwrap();
    noted();
    let ending = Ending::Released(stamp(life, &guard, admitted));
    life.note_return(1);
    life.engine.finish(&mut guard, &life.charges(1), ending, now).unwrap();
    life.unlock(guard, now).unwrap();
}

/// Ends the pause.
fn resume<E: Env>(life: &Life<'_, E>) -> bool {
    let (mut guard, now) = life.lock_now().unwrap();
    let was_paused = life.engine.resume(&mut guard, now).unwrap();
    life.unlock(guard, now).unwrap();
    was_paused
}

/// Moves a clock that is moved by hand.
fn advance<E: Env>(life: &Life<'_, E>, draft: &Draft, by: u64) {
    let (mut guard, now) = life.lock_now().unwrap();
    if life.effect() == Effect::SkipServe {
        let [_, manual_now] = draft.time();
        let mut change = guard.begin();
        change.set(manual_now, now + by).unwrap();
        change.commit();
    } else {
        life.engine.advance(&mut guard, by).unwrap();
    }
    life.unlock(guard, now + by).unwrap();
}

/// Waits for the one permit; tells when it was admitted.
fn wait<E: Env>(life: &Life<'_, E>, mut place: Place) -> Admitted {
    loop {
        life.engine.sleep(life.me, &place, NEVER, ALWAYS, &life.time(), |_| Ok(())).unwrap();
        if let Some(answer) = life.look(&mut place, 1, NEVER) {
            assert_eq!(answer, Answer::Granted);
            return place.admitted;
        }
    }
}

/// What somebody finds who comes when all is quiet.
struct Found {
    words: Words,
    /// The instant.
    now: u64,
    /// How many were ever admitted.
    granted: u64,
    /// What the owner of each slot holds, dead or alive.
    rows: Vec<u64>,
}

impl Found {
    /// Whether the one permit of a slot's owner was given back.
    fn has_ended(&self, slot: u32) -> bool {
        self.rows[slot as usize - 1] == 0
    }
}

/// Takes the lock in a slot, and so undoes what the dead had begun; but does not look for them.
fn find(set: &Set, slot: u32, slots: u32) -> Found {
    let found = set.live(slot, 0, |life| {
        let (guard, now) = life.lock_now().unwrap();
        let get = |index| set.world.word(index);
        let words = Words::read(set.draft(), &get);
        let granted = get(set.draft().granted(0));
        let rows = (1..=slots).map(|slot| get(set.draft().holdings().row(slot) + 1)).collect();
        life.unlock(guard, now).unwrap();
        Found { words, now, granted, rows }
    });
    found.expect("nobody kills it")
}

/// When the dead are gone and the pause is over, the rest can be had, once.
fn check(set: &Set) {
    set.sweep();
    set.world.pass(LATER);
    set.check();
}

/// Invariant: two who were admitted before the pause and report begin one pause, which lasts as long as the longer of
/// their wishes; whoever is killed at whatever operation, its report and the return of its permit are done, or neither.
pub fn reports_pause_once(mutation: Mutation) {
    let model = Model::exhaustive("reports_pause_once", 2, "1, 2, 3", mutation).bounded(2);
    model.sweep(&[1, 2], |scenario| {
        let start = Start { permits: 2, holders: &[1, 2], slots: 3, words: Words::default() };
        let set = start.set(scenario);
        let second = beside(&set, |set| set.live(2, 1, |life| report(&life, EARLY, LONGER, || {})));
        let first = set.live(1, 1, |life| report(&life, EARLY, 0, || {}));
        let answers = [first, second.join().unwrap()];
        let found = find(&set, 3, 3);
        check_reports(&found, answers, |[_, second]| if second { LONG_END } else { END });
        check(&set);
    });
}

/// Whoever was answered has reported; of those, one began the pause; the words tell of those who did and of nobody else.
fn check_reports(found: &Found, answers: [Option<Paused>; 2], until: impl FnOnce([bool; 2]) -> u64) {
    let told = [1, 2].map(|slot| found.has_ended(slot));
    for (answer, told) in answers.iter().zip(told) {
        assert!(told || answer.is_none(), "a report was lost");
    }
    let reports = told.into_iter().map(u64::from).sum();
    assert_eq!(found.words, Words::first(until(told), reports), "the pause is not that of the reports");
    let answered = || answers.iter().flatten();
    assert!(answered().all(|paused| paused.generation == 1), "a second pause began: {answers:?}");
    let began = answered().filter(|paused| !paused.absorbed).count();
    let is_known = answered().count() as u64 == reports;
    assert!(began <= 1 && (began == 1 || !is_known || reports == 0), "{began} reports began a pause");
}

/// Invariant: who was admitted before the pause and reports when it is over begins no second one; whoever is killed at
/// whatever operation.
pub fn late_report_is_absorbed(mutation: Mutation) {
    let model = Model::exhaustive("late_report_is_absorbed", 2, "1, 3", mutation).bounded(2);
    model.sweep(&[1, 2], |scenario| {
        let start = Start { permits: 2, holders: &[1, 2], slots: 3, words: Words::default() };
        let set = start.set(scenario);
        let second = beside(&set, |set| set.live(2, 1, |life| report(&life, EARLY, 0, || {})));
        let first = set.live(1, 1, |life| report(&life, EARLY, 0, || {}));
        set.world.pass(END);
        let answers = [first, second.join().unwrap()];
        let found = find(&set, 3, 3);
        // If only the second one reported, perhaps later than the first would have.
        let ends = |[first, _]: [bool; 2]| if first { END } else { found.words.until };
        check_reports(&found, answers, ends);
        assert!([0, END, END + END - NOW].contains(&found.words.until), "{:?}", found.words);
        check(&set);
    });
}

/// Invariant: who asks while another reports is admitted before the pause, and its own report is about that time; or it
/// is refused because of the pause, whatever is free. Whoever is killed at whatever operation.
pub fn report_against_admission(mutation: Mutation) {
    let model = Model::exhaustive("report_against_admission", 2, "1, 2, 3", mutation).bounded(2);
    model.sweep(&[1, 2], |scenario| {
        let start = Start { permits: 2, holders: &[1], slots: 3, words: Words::default() };
        let set = start.set(scenario);
        let asks = beside(&set, |set| {
            set.live(2, 0, |life| match life.join_at_once(1).unwrap() {
                Entered::Granted { admitted, .. } => {
                    assert_eq!(admitted, EARLY, "somebody was admitted in a pause");
                    Some(report(&life, admitted, 0, || {}))
                }
                Entered::CoolingDown { left } => {
                    assert_eq!(left, END - NOW);
                    None
                }
                other => panic!("{other:?}"),
            })
        });
        let first = set.live(1, 1, |life| report(&life, EARLY, 0, || {}));
        let second = asks.join().unwrap().flatten();
        let mut found = find(&set, 3, 3);
        if found.granted == 0 {
            // It had nothing to report.
            assert_eq!(second, None);
            found.rows[1] = 1;
        }
        check_reports(&found, [first, second], |_| END);
        check(&set);
    });
}

/// Invariant: who waits for a permit when its holder reports sleeps through the pause, and is granted it as soon as the
/// pause is over; at once, if the holder was killed before it reported. Whoever is killed at whatever operation.
pub fn pause_is_slept_through(mutation: Mutation) {
    let model = Model::exhaustive("pause_is_slept_through", 2, "2, 3, 7", mutation).bounded(2);
    model.sweep(&[1, 2], |scenario| {
        let start = Start { permits: 1, holders: &[1], slots: 3, words: Words::default() };
        let set = start.set(scenario);
        let place = set.queue_up(2, 1, NEVER, false);
        let waiter = beside(&set, |set| {
            set.live(2, 0, |life| {
                let admitted = wait(&life, place);
                succeed(&life, admitted, || {});
                admitted
            })
        });
        let reported = set.live(1, 1, |life| report(&life, EARLY, 0, || {}));
        set.world.pass(END);
        let admitted = waiter.join().unwrap();
        let found = find(&set, 3, 3);
        let paused = Words::first(END, found.words.reports);
        assert!(reported.is_none() || found.words.reports == 1, "a report was lost");
        let after = Words {
            next_admission: if found.granted * found.words.reports > 0 {
                END + GAP
            } else {
                paused.next_admission
            },
            spaced: paused.spaced.saturating_sub(found.granted),
            count: if admitted.is_some() { 0 } else { found.words.count.min(paused.count) },
            ..paused
        };
        assert_eq!(found.words, after, "the pause is not that of the report");
        if let Some(admitted) = admitted {
            assert_eq!(admitted.pause, found.words.generation, "admitted before the pause, and after it");
        }
        check(&set);
    });
}

/// Invariant: when a pause is over, a stopped waiter at the head of the queue keeps nobody asleep; also not a second one
/// of a process whose first was told to wake up then, but has left. Also if who reports is killed at whatever operation.
pub fn leaving_passes_the_alarm_on(mutation: Mutation) {
    let model = Model::exhaustive("leaving_passes_the_alarm_on", 1, "3, 7", mutation);
    model.sweep(&[1], |scenario| {
        let start = Start { permits: 2, holders: &[1, 1], slots: 4, words: Words::default() };
        let set = start.set(scenario);
        let [_, leaves, mut stays] = [2, 3, 3].map(|slot| set.queue_up(slot, 1, NEVER, false));
        set.live(1, 2, |life| {
            report(&life, EARLY, 0, || {});
            succeed(&life, EARLY, || {});
        });
        set.live(3, 0, |life| life.abandon(&leaves, 1));
        set.sweep();
        let answer = set.live(3, 0, |life| {
            // The stopped one is admitted, by who stays, and then who stays.
            [END, END + GAP].into_iter().find_map(|instant| {
                set.world.pass(instant);
                life.engine.sleep(life.me, &stays, NEVER, ALWAYS, &life.time(), |_| Ok(())).unwrap();
                life.look(&mut stays, 1, NEVER)
            })
        });
        assert_eq!(answer, Some(Some(Answer::Granted)));
    });
}

/// Invariant: while a pause is about to end, a late report makes it longer or comes too late: who waits is admitted when
/// the pause is over by the clock, not before, and does not oversleep. Whoever is killed at whatever operation.
pub fn report_against_expiry(mutation: Mutation) {
    let model = Model::exhaustive("report_against_expiry", 3, "2, 3, 7", mutation).bounded(1);
    model.sweep(&[1, 2], |scenario| {
        let start = Start { permits: 2, holders: &[1], slots: 3, words: Words::first(END, 1) };
        let set = start.set(scenario);
        let place = set.queue_up(2, 1, NEVER, false);
        let waiter = beside(&set, |set| set.live(2, 0, |life| wait(&life, place)));
        let late = beside(&set, |set| set.live(1, 1, |life| report(&life, EARLY, LONGER, || {})));
        set.world.pass(END);
        let reported = late.join().unwrap();
        set.world.pass(LONG_END);
        let admitted = waiter.join().unwrap();
        let found = find(&set, 3, 3);
        let Words { generation, until, count, reports, absorbed, .. } = found.words;
        assert_eq!((generation, count, absorbed), (1, 1, reports - 1), "a second pause began");
        assert!(reports == 2 || reported.is_none(), "a report was lost");
        if let Some(reported) = reported {
            assert!(reported.absorbed && reported.until == until, "{reported:?}: {:?}", found.words);
        }
        assert!(until == END || until == LONG_END && reports == 2, "{:?}", found.words);
        assert!(matches!(admitted, None | Some(ON_TRIAL)), "{admitted:?}");
        check(&set);
    });
}

/// Invariant: who waits for the end of a pause is admitted when somebody ends it by hand, without an alarm; if who does
/// is killed at whatever operation, then too, or when the pause is over.
pub fn resuming_admits_waiters(mutation: Mutation) {
    let model = Model::exhaustive("resuming_admits_waiters", 2, "3, 7", mutation).bounded(1);
    model.sweep(&[1, 2], |scenario| {
        let start = Start { permits: 1, holders: &[], slots: 3, words: Words::first(END, 1) };
        let set = start.set(scenario);
        let place = set.queue_up(2, 1, NEVER, false);
        let waiter = beside(&set, |set| set.live(2, 0, |life| wait(&life, place)));
        let resumed = set.live(1, 0, |life| resume(&life));
        assert_ne!(resumed, Some(false), "there was a pause");
        let Words { until, count, .. } = find(&set, 3, 3).words;
        assert!(
            matches!((until, count), (NOW, 0) | (END, 1)),
            "half resumed: until {until}, {count} in a row"
        );
        assert!(resumed.is_none() || until == NOW, "it was not resumed");
        if until == END {
            set.world.pass(END);
        }
        let admitted = waiter.join().unwrap();
        assert!(admitted.is_none_or(|admitted| admitted.pause == 1), "{admitted:?}");
        check(&set);
    });
}

/// Invariant: by a clock that is moved by hand, who waits is admitted by whoever moves it past the end of the pause, and
/// not before; though a late report may just have made it longer. If who moves it is killed at whatever operation, it has
/// moved or not, and if it has, nobody sleeps on.
pub fn moved_clock_ends_the_pause(mutation: Mutation) {
    let model = Model::exhaustive("moved_clock_ends_the_pause", 2, "2, 3, 7", mutation).bounded(2);
    model.sweep(&[1, 3], |scenario| {
        let start = Start { permits: 2, holders: &[1], slots: 4, words: Words::first(END, 1) };
        let set = start.set_by_hand(scenario, NOW);
        let place = set.queue_up(2, 1, NEVER, false);
        let late = beside(&set, |set| set.live(1, 1, |life| report(&life, EARLY, LONGER, || {})));
        set.live(3, 0, |life| advance(&life, set.draft(), END - NOW));
        late.join().unwrap();
        let Found { words, now, .. } = find(&set, 4, 4);
        assert!([NOW, END].contains(&now), "it is {now}");
        assert!([END, LONG_END].contains(&words.until), "{words:?}");
        // If it is over by the clock, no more is done.
        if now < words.until {
            set.live(4, 0, |life| advance(&life, set.draft(), words.until - now));
        }
        // A stopped waiter, which goes on now.
        assert_eq!(set.live(2, 0, |life| wait(&life, place)), Some(ON_TRIAL));
        set.live(4, 0, |life| advance(&life, set.draft(), LATER));
        set.check();
    });
}

/// Invariant: a success against a report, both of who was admitted after the last pause: the next pause is a first one
/// if the success came first, and else a second one, which that success does not undo. Whoever is killed at whatever
/// operation, what it did is done with the return of its permit, or neither.
pub fn success_against_report(mutation: Mutation) {
    let model = Model::exhaustive("success_against_report", 2, "1, 3", mutation).bounded(2);
    model.sweep(&[1, 2], |scenario| {
        let before = Words::first(NOW, 1);
        let start = Start { permits: 2, holders: &[1, 2], slots: 3, words: before };
        let set = start.set(scenario);
        // Who had the lock; none of the model's words.
        let order = Arc::new(Mutex::new(Vec::new()));
        let [first, second] = [1, 2].map(|slot| {
            let order = Arc::clone(&order);
            move || order.lock().unwrap().push(slot)
        });
        let reports = beside(&set, |set| set.live(2, 1, |life| report(&life, ON_TRIAL, 0, second)));
        set.live(1, 1, |life| succeed(&life, ON_TRIAL, first));
        let reported = reports.join().unwrap();
        let found = find(&set, 3, 3);
        assert!(reported.is_none() || found.has_ended(2), "a report was lost");
        let mut done = order.lock().unwrap().clone();
        done.retain(|slot| found.has_ended(*slot));
        let paused = |count, until| Words { count, generation: 2, ..Words::first(until, 1) };
        let expected = match done[..] {
            [] => before,
            [1] => Words { count: 0, ..before },
            [1, 2] => paused(1, END),
            // A success of before the pause is no news.
            [2] | [2, 1] => paused(2, SECOND_END),
            _ => panic!("{done:?}"),
        };
        assert_eq!(found.words, expected, "the count is not that of the order {done:?}");
        check(&set);
    });
}

/// Invariant: of two who wait for the end of a pause, the first is admitted then, and the second a gap later, whoever
/// admits whom; the first also if the second is killed at whatever operation, be it while it admits the first.
pub fn slow_start_spaces_waiters(mutation: Mutation) {
    let model = Model::exhaustive("slow_start_spaces_waiters", 2, "2, 3, 7", mutation).bounded(1);
    model.sweep(&[2], |scenario| {
        let start = Start { permits: 2, holders: &[], slots: 3, words: Words::first(END, 1) };
        let set = start.set(scenario);
        let [first, second] = [1, 2].map(|slot| set.queue_up(slot, 1, NEVER, false));
        set.world.pass(END);
        let second = beside(&set, |set| set.live(2, 0, |life| wait(&life, second)));
        assert_eq!(set.live(1, 0, |life| wait(&life, first)), Some(ON_TRIAL));
        set.world.pass(END + GAP);
        assert!(matches!(second.join().unwrap(), None | Some(ON_TRIAL)));
        check(&set);
    });
}

/// [`slow_start_spaces_waiters`], one after the other, with both killed: the second at whatever operation, also while it
/// admits the first, and then the first at whatever operation of cleaning up, collecting or admitting itself. However
/// many were admitted, the slow start has counted them, and what they held can be had when it is over.
pub fn slow_start_survives_kills(mutation: Mutation) {
    let model = Model::exhaustive("slow_start_survives_kills", 1, "1, 2, 3", mutation);
    model.sweep_pairs(3, &[2], |scenario| {
        let start = Start { permits: 2, holders: &[], slots: 4, words: Words::first(END, 1) };
        let set = start.set(scenario);
        let [first, second] = [2, 3].map(|slot| set.queue_up(slot, 1, NEVER, false));
        set.world.pass(END);
        // One look: it admits the first, and goes to sleep for a gap.
        let second = set.live(3, 0, |life| {
            let mut place = second;
            assert_eq!(life.look(&mut place, 1, NEVER), None);
            place
        });
        set.live(2, 0, |life| assert_eq!(wait(&life, first), ON_TRIAL));
        let found = find(&set, 4, 4);
        assert!(found.granted <= 1 && found.words.spaced == SPACED - found.granted, "{:?}", found.words);
        if found.granted == 1 {
            assert_eq!(found.words.next_admission, END + GAP, "the gap is not that of the admission");
        }
        set.world.pass(END + GAP);
        if let Some(second) = second {
            // In a role that nobody kills.
            set.sweep();
            assert_eq!(set.act(0, 3, 0, |life| wait(&life, second)), Some(ON_TRIAL));
        }
        check(&set);
    });
}

/// Invariant: the first who reports is killed at whatever operation, and the second at whatever operation of cleaning up
/// after it or reporting itself: there is one pause if one of them had reported, and who waits gets through after it.
pub fn reporters_die_in_pairs(mutation: Mutation) {
    let model = Model::exhaustive("reporters_die_in_pairs", 1, "1, 3, 7", mutation);
    model.sweep_pairs(1, &[2], |scenario| {
        let start = Start { permits: 2, holders: &[1, 2], slots: 4, words: Words::default() };
        let set = start.set(scenario);
        let place = set.queue_up(3, 2, NEVER, false);
        let first = set.live(1, 1, |life| report(&life, EARLY, 0, || {}));
        let second = set.live(2, 1, |life| report(&life, EARLY, LONGER, || {}));
        let found = find(&set, 4, 4);
        check_reports(&found, [first, second], |[_, second]| if second { LONG_END } else { END });
        set.world.pass(LONG_END);
        assert_eq!(set.live(3, 0, |life| life.wait(place, 2, NEVER)), Some(Answer::Granted));
        check(&set);
    });
}
