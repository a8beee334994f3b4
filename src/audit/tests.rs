//! Damages each word that the audit checks, and expects a finding.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::thread::JoinHandle;
use std::time::Duration;

use super::{Audit, Gravity};
use crate::format::header::RegionKind;
use crate::format::state::{LimitWord, LinkWord, RuleWord, StateMap};
use crate::format::waiters::WaiterWord;
use crate::format::work::{ItemWord, List, WorkWord};
use crate::protocol::journal::description;
use crate::{
    Acquisition, CallLimit, Finished, LimitSet, QueueOptions, RateLimit, Report, ResourceLimit, Segment,
    WorkItem,
};

const LONG: Duration = Duration::from_secs(3_600);
const CALLS: usize = 0;
const TOKENS: usize = 1;
const DB: usize = 2;

/// A set in which all states occur: permits are held, two requests wait, one entry is free, and of the work items one
/// each is ready, delayed, leased, done, dead, collected and free.
struct Stage {
    set: LimitSet,
    held: Vec<Acquisition>,
    waiting: Vec<JoinHandle<()>>,
    leased: Vec<WorkItem>,
    collected: Vec<Finished>,
}

impl Stage {
    fn new() -> Self {
        let set = LimitSet::builder()
            .limit(CallLimit::per_second(1_000_000))
            .limit(RateLimit::per_minute("tokens", 1_000).report(Report::Optional))
            .limit(ResourceLimit::new("db", 4))
            .queue(QueueOptions::new(16, 8))
            .segment(
                Segment::options()
                    .semaphore("door", 3)
                    .mutex("till", 4)
                    .slots(8)
                    .waiters(8)
                    .doorbell_slice(LONG),
            )
            .open_anonymous()
            .unwrap();
        let mut stage =
            Self { set, held: Vec::new(), waiting: Vec::new(), leased: Vec::new(), collected: Vec::new() };
        stage.held.push(stage.set.acquire([("tokens", 100), ("db", 3)]).unwrap());
        for count in 1..=2 {
            let set = stage.set.clone();
            stage.waiting.push(std::thread::spawn(move || {
                let _ = set.acquire_timeout([("db", 2)], LONG);
            }));
            while stage.set.stats().unwrap().waiters < count {
                std::thread::yield_now();
            }
        }
        // Leaves an entry that is free again.
        stage.set.acquire_timeout([("db", 2)], Duration::from_millis(1)).unwrap_err();
        stage.fill_queue();
        stage
    }

    fn fill_queue(&mut self) {
        let queue = self.set.queue().unwrap();
        for id in 1..=9 {
            queue.push(id, b"12345678").unwrap();
        }
        let take = || queue.try_take().unwrap().unwrap();
        take().done().unwrap();
        take().done_with(b"result").unwrap();
        take().done_with(b"result").unwrap();
        take().dead_letter(b"no").unwrap();
        take().retry(LONG).unwrap();
        take().retry(2 * LONG).unwrap();
        self.leased.push(take());
        self.collected.push(queue.try_collect().unwrap().unwrap());
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        &self.set.segment().view().state().unwrap().words[index]
    }

    /// Returns the audit while a word has a wrong value.
    fn spoil(&self, word: &AtomicU64, value: u64) -> Audit {
        let before = word.swap(value, SeqCst);
        assert_ne!(before, value, "this is no damage");
        let audit = Audit::of(self.set.segment().view()).unwrap();
        word.store(before, SeqCst);
        audit
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.leased.clear();
        self.collected.clear();
        self.held.clear();
        self.set.remove().unwrap();
        for waiting in self.waiting.drain(..) {
            waiting.join().unwrap();
        }
    }
}

#[track_caller]
fn assert_found(audit: &Audit, check: &str, text: &str) {
    let found = audit.checks.iter().find(|it| it.what == check);
    let findings = &found.unwrap_or_else(|| panic!("{check}: {audit:#?}")).findings;
    let is_it = |it: &super::Finding| it.gravity == Gravity::Broken && it.what.contains(text);
    assert!(findings.iter().any(is_it), "{check}, {text:?}: {audit:#?}");
    assert!(!audit.is_sound());
}

#[test]
fn a_set_at_work_is_sound_and_everything_is_looked_at() {
    let stage = Stage::new();
    let audit = stage.set.segment().audit().unwrap();
    assert_eq!(audit.findings().count(), 0, "{audit:#?}");
    let looked_at: Vec<_> = audit.checks.iter().map(|it| (it.what, it.looked_at)).collect();
    let expected = [
        ("header", 1),
        ("definition", 3),
        ("locks and journals", 3),
        ("semaphores", 1),
        ("numbers", 3),
        ("totals", 1),
        ("holders", 1),
        ("rates", 2),
        ("clock", 1),
        ("cooldown", 1),
        ("queue", 3),
        ("work queue", 9),
    ];
    assert_eq!(looked_at, expected);
}

#[test]
fn every_word_of_the_limits_that_makes_no_sense_is_found() {
    let stage = Stage::new();
    let map = stage.set.keys().table.map;
    let row = stage.set.keys().table.holdings().row(1);
    let far = stage.word(StateMap::LAST_NOW).load(SeqCst) + (1 << 50);
    for (index, value, check, text) in [
        (
            map.rule(CALLS, RuleWord::Capacity),
            2,
            "numbers",
            "the capacity of \"call_count\" is 2, 1000000 was declared",
        ),
        (map.rule(TOKENS, RuleWord::WindowNanos), 0, "numbers", "the window of \"tokens\" is 0"),
        (map.rule(TOKENS, RuleWord::Burst), 9, "numbers", "the burst of \"tokens\" is 9, 1000 was declared"),
        (map.limit(DB, LimitWord::Level), 2, "totals", "2 of \"db\" are taken, its holders have 3"),
        (map.limit(DB, LimitWord::Level), 5, "totals", "5 of \"db\" are taken, there are 4"),
        (row + 1 + DB, 0, "totals", "3 of \"db\" are taken, its holders have 0"),
        (row + 1 + TOKENS, 1, "holders", "has reports due of \"tokens\", which needs no"),
        (row, 0, "holders", "are with slot 1, but have no owner"),
        (row, 77, "holders", "are with owner 77 of slot 1, which has had 1"),
        (map.limit(TOKENS, LimitWord::At), far, "rates", "later than the set's latest decision"),
        (map.limit(TOKENS, LimitWord::Level), 1_001, "rates", "has 1001 tokens, the maximum is 1000"),
        (map.limit(TOKENS, LimitWord::Remainder), u64::MAX, "rates", "parts of its next token"),
        (StateMap::LAST_NOW, far, "clock", "in the future"),
        (StateMap::NEXT_ADMISSION, far, "cooldown", "after any gap or pause ends"),
        (StateMap::SLOW_ADMISSIONS_LEFT, 21, "cooldown", "21 admissions are left to be spaced"),
        (StateMap::RESET_TICKET, 1 << 40, "cooldown", "the last reset was at ticket"),
    ] {
        assert_found(&stage.spoil(stage.word(index), value), check, text);
    }
    assert!(stage.set.segment().audit().unwrap().is_sound());
}

#[test]
fn every_word_of_the_queue_that_makes_no_sense_is_found() {
    let stage = Stage::new();
    let map = stage.set.keys().table.map;
    let link = |waiter, word| map.link(waiter, word);
    // Entry 1 waits, 2 behind it, and 3 is free again.
    for (index, value, text) in [
        (StateMap::USED_WAITERS, 9, "9 entries were ever used, the maximum is 8"),
        (StateMap::QUEUE_HEAD, 7, "the queue leads to entry 7, only 3 were ever used"),
        (StateMap::QUEUE_HEAD, 2, "entry 2 of the queue follows entry 0, but its link names 1"),
        (StateMap::QUEUE_TAIL, 1, "the queue ends with entry 2, but its tail is 1"),
        (StateMap::QUEUE_LENGTH, 3, "the queue has 2 entries, but its length is 3"),
        (
            StateMap::FREE_WAITERS,
            2,
            "entry 2 is waiting, but is 1 times in the queue and 1 times in the free list",
        ),
        (
            StateMap::FREE_WAITERS,
            0,
            "entry 3 is free, but is 0 times in the queue and 0 times in the free list",
        ),
        (StateMap::FREE_WAITERS, 6, "the list of free entries leads to 6"),
        (StateMap::NEXT_TICKET, 0, "the next one is 0"),
        (link(2, LinkWord::Next), 1, "the queue has no end"),
        (link(2, LinkWord::Previous), 2, "entry 2 of the queue follows entry 1, but its link names 2"),
        (link(2, LinkWord::State), 0, "entry 2 is in the queue, but its state is free"),
        (link(1, LinkWord::State), 9, "entry 1 has unknown state 9"),
        (link(1, LinkWord::Ticket), 1 << 30, "entry 2 of the queue follows an entry that arrived later"),
        (link(1, LinkWord::Slot), 99, "are with slot 99, there are 8"),
        (link(1, LinkWord::Generation), 5, "are with owner 5 of slot 1, which has had 1"),
        (map.rule(DB, RuleWord::Enqueued), 0, "the waiters in the queue want 4"),
    ] {
        assert_found(&stage.spoil(stage.word(index), value), "queue", text);
    }
    let engine = stage.set.parts().unwrap();
    let wish = |waiter: usize, word: WaiterWord| {
        &engine.waiters.words[(waiter - 1) * engine.waiters.stride + word.place()]
    };
    let audit = stage.spoil(wish(1, WaiterWord::Amount(DB)), 3);
    assert_found(&audit, "queue", "4 of \"db\" are waited for, but the waiters in the queue want 5");
    assert_found(&stage.spoil(wish(2, WaiterWord::Mask), 0b1101), "queue", "entry 2 wants limits 0b1101");
    assert!(stage.set.segment().audit().unwrap().is_sound());
}

#[test]
fn every_word_of_the_work_queue_that_makes_no_sense_is_found() {
    let stage = Stage::new();
    let map = stage.set.keys().table.map;
    let states: Vec<_> =
        (1..=9).map(|item| stage.word(map.item(item, ItemWord::State)).load(SeqCst)).collect();
    let with = |state: u64| 1 + states.iter().position(|it| *it == state).unwrap();
    let (free, ready, delayed, leased) = (with(0), with(1), with(3), with(4));
    let (done, dead, collected) = (with(5), with(6), with(7));
    let work = |word| map.work(word);
    let first_delayed = usize::try_from(stage.word(map.item(1, ItemWord::HeapCell)).load(SeqCst)).unwrap();
    let cases = [
        (work(WorkWord::Used), 17, "17 items were ever used, the maximum is 16".to_owned()),
        (work(WorkWord::Closed), 2, "its closed flag is 2".to_owned()),
        (work(WorkWord::First(List::Ready)), 12, "the ready list leads to item 12".to_owned()),
        (work(WorkWord::Last(List::Results)), 0, "but its last item is 0".to_owned()),
        (
            work(WorkWord::Length(List::DeadLetters)),
            2,
            "in the dead letters list, but its length is 2".to_owned(),
        ),
        (work(WorkWord::Leased), 9, "items are leased, but the queue counts 9".to_owned()),
        (work(WorkWord::Collected), 9, "items are with collectors, but the queue counts 9".to_owned()),
        (work(WorkWord::NextLease), 0, format!("item {leased} has lease")),
        (work(WorkWord::Free), 14, "the list of free items leads to 14".to_owned()),
        (work(WorkWord::Free), 0, format!("item {free} is free, but is in 0 lists")),
        (map.item(ready, ItemWord::State), 9, format!("item {ready} has unknown state 9")),
        (
            map.item(ready, ItemWord::State),
            6,
            format!("item {ready} is in the ready list, but its state is dead"),
        ),
        (map.item(leased, ItemWord::State), 1, format!("item {leased} is ready, but is in 0 lists")),
        (map.item(delayed, ItemWord::State), 1, format!("item {delayed} is among the delayed ones")),
        (
            map.item(first_delayed, ItemWord::NotBefore),
            u64::MAX,
            format!("comes due before item {first_delayed}"),
        ),
        (map.item(1, ItemWord::HeapCell), 12, "cell 1 of the delayed items leads to item 12".to_owned()),
        (map.item(2, ItemWord::HeapCell), 0, "cell 2 of the delayed items leads to item 0".to_owned()),
        (work(WorkWord::Delayed), 1, "is delayed, but is in 0 lists".to_owned()),
        (work(WorkWord::Delayed), 17, "17 items are delayed, and 9 were ever used".to_owned()),
        (map.item(collected, ItemWord::Generation), 0, "but have no owner".to_owned()),
        (map.item(leased, ItemWord::Slot), 0, "are with slot 0".to_owned()),
        (map.item(done, ItemWord::Next), done as u64, "the results list leads to item".to_owned()),
        (
            map.item(done, ItemWord::ResultBytes),
            9,
            format!("item {done} has 9 bytes of result, the maximum is 8"),
        ),
        (map.item(dead, ItemWord::PayloadBytes), 9, format!("item {dead} has 9 bytes, the maximum is 8")),
        (
            map.item(dead, ItemWord::Previous),
            3,
            format!("item {dead} of the dead letters list follows item 0"),
        ),
    ];
    for (index, value, text) in cases {
        assert_found(&stage.spoil(stage.word(index), value), "work queue", &text);
    }
    assert!(stage.set.segment().audit().unwrap().is_sound());
}

#[test]
fn header_definition_locks_and_journals_are_checked() {
    let stage = Stage::new();
    let view = stage.set.segment().view();
    let at = |offset: u64| &view.map.words64(offset, 1)[0];
    assert_found(&stage.spoil(at(0), 7), "header", "a segment with \"LIMITSET\"");
    assert_found(&stage.spoil(at(48), 7), "header", "checksum");
    let definition = view.checked.definition.unwrap().offset;
    assert_found(&stage.spoil(at(definition + 160), 7), "definition", "checksum");
    let till = view.region("till", RegionKind::Mutex, "mutex").unwrap();
    for (name, region) in [("the set", view.checked.state), ("\"till\"", till)] {
        let block = view.block(&region).unwrap();
        let audit = stage.spoil(block.change, block.change.load(SeqCst) | 2);
        assert_found(&audit, "locks and journals", &format!("{name}: was left in the middle of a change"));
        assert_found(&stage.spoil(block.deposed, 1), "locks and journals", "found another owner in the lock");
        block.lock.store(9, SeqCst);
        let audit = Audit::of(view).unwrap();
        block.lock.store(0, SeqCst);
        assert_found(&audit, "locks and journals", &format!("{name}: its lock names slot 9, there are 8"));
    }
    let door = view.region("door", RegionKind::Semaphore, "semaphore").unwrap();
    let door = view.block(&door).unwrap();
    assert_found(&stage.spoil(&door.words[1], 2), "semaphores", "2 permits are taken, its holders have 0");
    let permit = stage.set.segment().semaphore("door").unwrap().try_acquire(2).unwrap();
    assert_found(&stage.spoil(&door.words[0], 1), "semaphores", "2 permits are taken of 1");
    assert_found(&stage.spoil(&door.words[2], 9), "semaphores", "owner 9 of slot 1, which has had 1");
    drop(permit);
    assert!(stage.set.segment().audit().unwrap().is_sound());
}

#[test]
fn a_half_done_change_of_the_dead_is_pending_and_one_that_cannot_be_undone_is_broken() {
    let stage = Stage::new();
    let block = stage.set.segment().view().state().unwrap();
    // Slot 2 has never had an owner, so the owner in this lock word is dead.
    block.lock.store(2 | 1 << 12, SeqCst);
    let change = block.change.load(SeqCst);
    block.journal[0].store(2, SeqCst);
    block.journal[1].store(description(StateMap::QUEUE_LENGTH, 1), SeqCst);
    block.change.store(change | 2, SeqCst);
    let spoilt = block.words[StateMap::QUEUE_LENGTH].swap(99, SeqCst);
    let audit = Audit::of(stage.set.segment().view()).unwrap();
    assert!(audit.is_sound(), "the old value is in the journal: {audit:#?}");
    let told: Vec<_> = audit.findings().map(|it| it.what.as_str()).collect();
    assert!(told[0].contains("slot 2 died with its lock") && told[1].contains("left half done"), "{told:?}");
    let told = |what: u64, of: u64| format!("its journal says {what}, the maximum is {of}");
    let (room, words) = (block.journal.len() as u64, block.words.len() as u64);
    // A word that does not exist, more words than the entry can have, none at all.
    for (described, found, most) in [
        (description(1 << 30, 1), 1 << 30, words),
        (description(3, 2), description(3, 2), room),
        (description(3, 0), 3, room),
    ] {
        block.journal[1].store(described, SeqCst);
        let audit = Audit::of(stage.set.segment().view()).unwrap();
        assert_found(&audit, "locks and journals", &told(found, most));
    }
    block.change.store(change | 0xffff, SeqCst);
    let audit = Audit::of(stage.set.segment().view()).unwrap();
    assert_found(&audit, "locks and journals", &told(0xffff, room));
    block.words[StateMap::QUEUE_LENGTH].store(spoilt, SeqCst);
    block.change.store(change, SeqCst);
    block.lock.store(0, SeqCst);
}

#[test]
fn garbage_everywhere_is_told_in_few_words_and_nothing_panics() {
    let stage = Stage::new();
    let before: Vec<u64> = {
        let block = stage.set.segment().view().state().unwrap();
        block.words.iter().map(|word| word.load(SeqCst)).collect()
    };
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    for round in 0..200 {
        let block = stage.set.segment().view().state().unwrap();
        for word in block.words {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            word.store(if round % 2 == 0 { random } else { random >> 60 }, SeqCst);
        }
        let audit = Audit::of(stage.set.segment().view()).unwrap();
        assert!(!audit.is_sound());
        assert!(audit.checks.iter().all(|it| it.findings.len() <= super::MOST_TOLD + 1));
    }
    let block = stage.set.segment().view().state().unwrap();
    for (word, value) in block.words.iter().zip(before) {
        word.store(value, SeqCst);
    }
    assert!(stage.set.segment().audit().unwrap().is_sound());
}

#[test]
fn a_total_below_its_holders_is_raised_and_one_above_is_left() {
    let stage = Stage::new();
    let level = stage.set.keys().table.map.limit(DB, LimitWord::Level);
    stage.word(level).store(1, SeqCst);
    let repaired = stage.set.repair().unwrap();
    assert_eq!(repaired.raised_totals, [("db".to_owned(), 1, 3)]);
    assert!(stage.set.segment().audit().unwrap().is_sound());
    stage.word(level).store(4, SeqCst);
    assert_eq!(stage.set.repair().unwrap(), crate::Repaired::default());
    assert_found(
        &stage.set.segment().audit().unwrap(),
        "totals",
        "4 of \"db\" are taken, its holders have 3",
    );
    stage.word(level).store(3, SeqCst);
}
