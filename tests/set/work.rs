//! The work queue of a set: who gets which item when, and what becomes of it.

use std::time::Duration;

use limitset::{
    CallLimit, Cooldown, LimitSet, LimitSetBuilder, OpenError, QueueError, QueueOptions, Reason,
    ResourceLimit, Segment, WorkItem, WorkQueue,
};

use crate::worlds::{HOUR, MINUTE, Set, World, manual, rules};

rules![
    items_are_handed_out_in_the_order_they_were_pushed,
    an_item_is_with_one_worker_until_it_says_what_became_of_it,
    a_queue_is_bounded_by_its_places,
    what_is_too_long_is_refused_and_the_item_is_kept,
    an_item_without_bytes_is_an_item,
    a_result_is_collected_once_it_is_there_and_keeps_its_place_till_then,
    a_result_that_was_not_forgotten_can_be_collected_again,
    an_item_put_off_comes_back_at_its_time_and_before_the_others,
    items_put_off_come_back_in_the_order_of_their_times,
    an_item_tried_too_often_becomes_a_dead_letter_with_its_counts,
    a_rate_limited_item_is_parked_once_and_handed_out_once_after_the_pause,
    a_429_is_no_attempt_and_too_many_make_a_dead_letter,
    a_late_429_parks_the_item_for_no_longer_than_the_pause_lasts,
    an_early_end_of_the_pause_hands_out_what_was_parked,
    a_dropped_item_goes_to_the_next_and_the_attempt_counts,
    an_item_given_back_was_not_tried,
    a_worker_may_give_an_item_up_and_say_why,
    a_dead_letter_can_be_revived,
    what_was_said_of_an_item_is_said_once,
    a_closed_queue_takes_nothing_more_and_ends_when_all_is_finished,
    a_queue_that_is_not_closed_does_not_end,
    draining_waits_for_what_is_at_work,
    a_place_is_used_again,
    a_429_of_another_set_pauses_that_one_and_puts_the_item_off,
    who_waits_for_an_item_gets_the_next_one_pushed,
    who_waits_for_room_gets_it_when_an_item_is_done,
    who_waits_is_told_when_the_set_is_removed,
    a_timeout_of_the_queue_is_no_emptiness,
    a_set_without_a_queue_says_so,
    impossible_queues_are_refused,
    counts_tell_what_happened,
    it_is_not_said_that_no_result_will_come_while_one_may_be_put_back,
    a_429_that_comes_with_a_finished_item_still_pauses_the_set,
    an_item_is_parked_also_if_the_set_was_opened_twice,
];

const SECOND: Duration = Duration::from_secs(1);

fn builder(options: QueueOptions) -> LimitSetBuilder {
    let cooldown = Cooldown::default().first(10 * SECOND).jitter(0.0).slow_start(0, SECOND, SECOND);
    manual()
        .limit(CallLimit::per_minute(1_000))
        .limit(ResourceLimit::new("connections", 4))
        .cooldown(cooldown)
        .queue(options)
}

fn with_queue(world: World, options: QueueOptions) -> (Set, WorkQueue) {
    let set = world.open(&builder(options));
    let queue = set.queue().unwrap();
    (set, queue)
}

/// A queue with `count` items, numbered from 1, whose bytes say their number.
fn filled(world: World, count: u64) -> (Set, WorkQueue) {
    let (set, queue) = with_queue(world, QueueOptions::new(8, 20));
    for id in 1..=count {
        queue.try_push(id, format!("item {id}").as_bytes()).unwrap();
    }
    (set, queue)
}

fn take(queue: &WorkQueue) -> WorkItem {
    queue.try_take().unwrap().unwrap()
}

/// The numbers of all items that can be had now; they are done then.
fn ids(queue: &WorkQueue) -> Vec<u64> {
    let mut found = Vec::new();
    while let Ok(Some(mut item)) = queue.try_take() {
        assert!(item.payload() == format!("item {}", item.id()).as_bytes() || item.payload().is_empty());
        found.push(item.id());
        item.done().unwrap();
    }
    found
}

fn items_are_handed_out_in_the_order_they_were_pushed(world: World) {
    let (_set, queue) = filled(world, 5);
    assert_eq!(ids(&queue), [1, 2, 3, 4, 5]);
    assert!(matches!(queue.try_take(), Err(QueueError::Empty)));
}

fn an_item_is_with_one_worker_until_it_says_what_became_of_it(world: World) {
    let (_set, queue) = filled(world, 2);
    let (mut a, mut b) = (take(&queue), take(&queue));
    assert_eq!((a.id(), b.id(), a.attempts(), a.rate_limits()), (1, 2, 1, 0));
    assert!(matches!(queue.try_take(), Err(QueueError::Empty)));
    assert_eq!(queue.stats().unwrap().leased, 2);
    b.done().unwrap();
    a.done().unwrap();
    let stats = queue.stats().unwrap();
    assert_eq!((stats.leased, stats.done, stats.unfinished()), (0, 2, 0));
}

fn a_queue_is_bounded_by_its_places(world: World) {
    let (_set, queue) = with_queue(world, QueueOptions::new(2, 8));
    queue.try_push(1, b"a").unwrap();
    queue.try_push(2, b"b").unwrap();
    let full = queue.try_push(3, b"c").unwrap_err();
    assert!(matches!(full, QueueError::Full { items: 2 }), "{full}");
    let mut item = take(&queue);
    assert!(matches!(queue.try_push(3, b"c"), Err(QueueError::Full { .. })), "what is at work has a place");
    item.done().unwrap();
    queue.try_push(3, b"c").unwrap();
}

fn what_is_too_long_is_refused_and_the_item_is_kept(world: World) {
    let (_set, queue) = with_queue(world, QueueOptions::new(2, 9).result_bytes(3));
    queue.try_push(1, &[7; 9]).unwrap();
    let refused = queue.push(2, &[7; 10]).unwrap_err();
    assert!(
        refused.to_string().starts_with("an item of 10 bytes is too long, there is room for 9"),
        "{refused}"
    );
    let mut item = take(&queue);
    assert_eq!(item.payload(), [7; 9]);
    assert!(matches!(item.done_with(b"four"), Err(QueueError::TooLong { found: 4, most: 3, .. })));
    assert!(matches!(item.dead_letter(b"four"), Err(QueueError::TooLong { .. })));
    item.done_with(b"abc").unwrap();
    assert_eq!(queue.try_collect().unwrap().unwrap().result(), b"abc");
}

fn an_item_without_bytes_is_an_item(world: World) {
    let (_set, queue) = with_queue(world, QueueOptions::new(2, 0));
    queue.try_push(u64::MAX, b"").unwrap();
    let mut item = take(&queue);
    assert_eq!((item.id(), item.payload()), (u64::MAX, &b""[..]));
    item.done_with(b"").unwrap();
    assert_eq!(queue.try_collect().unwrap().unwrap().result(), b"");
}

fn a_result_is_collected_once_it_is_there_and_keeps_its_place_till_then(world: World) {
    let (_set, queue) = with_queue(world, QueueOptions::new(1, 8).result_bytes(30));
    queue.try_push(5, b"question").unwrap();
    assert!(matches!(queue.try_collect(), Err(QueueError::Empty)));
    take(&queue).done_with(b"an answer of twenty-six bytes").unwrap();
    assert!(matches!(queue.try_push(6, b""), Err(QueueError::Full { .. })));
    let mut result = queue.try_collect().unwrap().unwrap();
    assert_eq!((result.id(), result.payload()), (5, &b"question"[..]));
    assert_eq!((result.result(), result.reason()), (&b"an answer of twenty-six bytes"[..], None));
    assert_eq!((result.attempts(), result.rate_limits()), (1, 0));
    assert!(matches!(queue.try_push(6, b""), Err(QueueError::Full { .. })));
    result.forget().unwrap();
    queue.try_push(6, b"").unwrap();
}

fn a_result_that_was_not_forgotten_can_be_collected_again(world: World) {
    let (_set, queue) = filled(world, 2);
    for _ in 0..2 {
        let mut item = take(&queue);
        let id = item.id();
        item.done_with(&[u8::try_from(id).unwrap()]).unwrap();
    }
    let first = queue.try_collect().unwrap().unwrap();
    let second = queue.try_collect().unwrap().unwrap();
    assert!(matches!(queue.try_collect(), Err(QueueError::Empty)), "each is with one collector");
    drop((second, first));
    let again: Vec<_> = (0..2)
        .map(|_| {
            let mut result = queue.try_collect().unwrap().unwrap();
            result.forget().unwrap();
            (result.id(), result.result().to_vec())
        })
        .collect();
    assert_eq!(again, [(1, vec![1]), (2, vec![2])], "in their order");
}

fn an_item_put_off_comes_back_at_its_time_and_before_the_others(world: World) {
    let (set, queue) = filled(world, 3);
    take(&queue).retry(MINUTE).unwrap();
    set.advance(MINUTE - Duration::from_nanos(1)).unwrap();
    let mut second = take(&queue);
    assert_eq!(second.id(), 2);
    second.done().unwrap();
    set.advance_nanos(1);
    let mut first = take(&queue);
    assert_eq!((first.id(), first.attempts()), (1, 2));
    first.done().unwrap();
    assert_eq!(ids(&queue), [3]);
}

fn items_put_off_come_back_in_the_order_of_their_times(world: World) {
    let (set, queue) = filled(world, 5);
    for seconds in [30, 10, 20, 10, 40] {
        take(&queue).retry(seconds * SECOND).unwrap();
    }
    assert_eq!(queue.stats().unwrap().delayed, 5);
    let mut order = Vec::new();
    for _ in 0..5 {
        set.advance(10 * SECOND).unwrap();
        order.push(ids(&queue));
    }
    assert_eq!(order, [vec![2, 4], vec![3], vec![1], vec![5], vec![]]);
}

fn an_item_tried_too_often_becomes_a_dead_letter_with_its_counts(world: World) {
    let (_set, queue) = filled(world, 1);
    for attempt in 1..=3 {
        let mut item = take(&queue);
        assert_eq!(item.attempts(), attempt);
        item.retry(Duration::ZERO).unwrap();
    }
    assert!(matches!(queue.try_take(), Err(QueueError::Empty)));
    let stats = queue.stats().unwrap();
    assert_eq!((stats.dead_letters, stats.dead_lettered, stats.retried, stats.unfinished()), (1, 1, 2, 0));
    let mut dead = queue.collect_dead().unwrap().unwrap();
    assert_eq!((dead.id(), dead.attempts(), dead.rate_limits()), (1, 3, 0));
    assert_eq!((dead.reason(), dead.payload()), (Some(Reason::Attempts), &b"item 1"[..]));
    dead.forget().unwrap();
    assert!(matches!(queue.collect_dead(), Err(QueueError::Empty)));
}

fn a_rate_limited_item_is_parked_once_and_handed_out_once_after_the_pause(world: World) {
    let (set, queue) = filled(world, 3);
    let mut item = take(&queue);
    let held = set.try_acquire(()).unwrap();
    let pause = item.rate_limited(held, Some(30 * SECOND)).unwrap();
    assert_eq!((pause.remaining, pause.generation, pause.absorbed), (Some(30 * SECOND), 1, false));
    assert!(set.holds().is_empty(), "the acquisition has ended");
    let stats = queue.stats().unwrap();
    assert_eq!((stats.parked, stats.leased, stats.rate_limited), (1, 0, 1));
    set.advance(30 * SECOND - Duration::from_nanos(1)).unwrap();
    let mut second = take(&queue);
    assert_eq!(second.id(), 2, "others are handed out");
    second.done().unwrap();
    set.advance_nanos(1);
    let mut again = take(&queue);
    assert_eq!((again.id(), again.attempts(), again.rate_limits()), (1, 1, 1));
    again.done().unwrap();
    assert_eq!(ids(&queue), [3]);
    assert_eq!(queue.stats().unwrap().redistributed, 1);
}

fn a_429_is_no_attempt_and_too_many_make_a_dead_letter(world: World) {
    let (set, queue) = with_queue(world, QueueOptions::new(2, 8).attempts(2).rate_limits(4));
    queue.try_push(9, b"x").unwrap();
    for times in 0..4 {
        let mut item = take(&queue);
        assert_eq!((item.attempts(), item.rate_limits()), (1, times));
        item.rate_limited(set.try_acquire(()).unwrap(), None).unwrap();
        set.advance(HOUR).unwrap();
    }
    let mut dead = queue.collect_dead().unwrap().unwrap();
    assert_eq!((dead.reason(), dead.attempts(), dead.rate_limits()), (Some(Reason::RateLimits), 0, 4));
    dead.forget().unwrap();
    // Failures and 429s of one item are counted apart.
    queue.try_push(9, b"x").unwrap();
    take(&queue).retry(Duration::ZERO).unwrap();
    let mut item = take(&queue);
    assert_eq!((item.attempts(), item.rate_limits()), (2, 0));
    item.rate_limited(set.try_acquire(()).unwrap(), None).unwrap();
    set.advance(HOUR).unwrap();
    let mut item = take(&queue);
    assert_eq!((item.attempts(), item.rate_limits()), (2, 1));
    item.retry(Duration::ZERO).unwrap();
    assert_eq!(queue.collect_dead().unwrap().unwrap().reason(), Some(Reason::Attempts));
}

fn a_late_429_parks_the_item_for_no_longer_than_the_pause_lasts(world: World) {
    let (set, queue) = filled(world, 2);
    let (mut a, mut b) = (take(&queue), take(&queue));
    let (held_a, held_b) = (set.try_acquire(()).unwrap(), set.try_acquire(()).unwrap());
    a.rate_limited(held_a, None).unwrap();
    set.advance(10 * SECOND).unwrap();
    let late = b.rate_limited(held_b, None).unwrap();
    assert_eq!((late.absorbed, late.remaining, late.generation), (true, None, 1));
    assert_eq!(ids(&queue), [1, 2]);
}

fn an_early_end_of_the_pause_hands_out_what_was_parked(world: World) {
    let (set, queue) = filled(world, 1);
    take(&queue).rate_limited(set.try_acquire(()).unwrap(), Some(HOUR)).unwrap();
    let waiting = {
        let queue = queue.clone();
        std::thread::spawn(move || queue.take().unwrap().unwrap().id())
    };
    assert!(matches!(queue.try_take(), Err(QueueError::Empty)));
    assert!(set.resume().unwrap());
    assert_eq!(waiting.join().unwrap(), 1);
}

fn a_dropped_item_goes_to_the_next_and_the_attempt_counts(world: World) {
    let (_set, queue) = filled(world, 2);
    for attempt in 1..=3 {
        let item = take(&queue);
        assert_eq!((item.id(), item.attempts()), (1, attempt), "before those that came later");
    }
    assert_eq!(take(&queue).id(), 2);
    assert_eq!(queue.collect_dead().unwrap().unwrap().reason(), Some(Reason::Attempts));
    let panicked = std::panic::catch_unwind(|| {
        let _item = take(&queue);
        std::panic::resume_unwind(Box::new("in the middle of work"));
    });
    assert!(panicked.is_err());
    assert_eq!(take(&queue).attempts(), 3);
}

fn an_item_given_back_was_not_tried(world: World) {
    let (_set, queue) = filled(world, 2);
    for _ in 0..10 {
        let mut item = take(&queue);
        assert_eq!((item.id(), item.attempts()), (1, 1));
        item.give_back().unwrap();
    }
    assert_eq!(ids(&queue), [1, 2]);
}

fn a_worker_may_give_an_item_up_and_say_why(world: World) {
    let (_set, queue) = filled(world, 1);
    take(&queue).dead_letter(b"no such city").unwrap();
    let dead = queue.collect_dead().unwrap().unwrap();
    assert_eq!((dead.reason(), dead.result()), (Some(Reason::GivenUp), &b"no such city"[..]));
}

fn a_dead_letter_can_be_revived(world: World) {
    let (_set, queue) = filled(world, 2);
    take(&queue).dead_letter(b"why").unwrap();
    queue.close().unwrap();
    queue.collect_dead().unwrap().unwrap().revive().unwrap();
    let mut other = take(&queue);
    other.done().unwrap();
    let mut item = take(&queue);
    assert_eq!((item.id(), item.attempts(), item.payload()), (1, 1, &b"item 1"[..]));
    item.done_with(b"").unwrap();
    let result = queue.try_collect().unwrap().unwrap();
    assert_eq!((result.reason(), result.result()), (None, &b""[..]));
}

fn what_was_said_of_an_item_is_said_once(world: World) {
    let (set, queue) = filled(world, 2);
    let mut item = take(&queue);
    item.done().unwrap();
    assert!(matches!(item.done(), Err(QueueError::Spent)));
    assert!(matches!(item.done_with(b""), Err(QueueError::Spent)));
    assert!(matches!(item.retry(SECOND), Err(QueueError::Spent)));
    assert!(matches!(item.dead_letter(b""), Err(QueueError::Spent)));
    assert!(matches!(item.give_back(), Err(QueueError::Spent)));
    let held = set.try_acquire(()).unwrap();
    assert!(matches!(item.rate_limited(held, None), Err(QueueError::Spent)));
    assert_eq!(set.stats().unwrap().cooldown.generation, 1, "what the other side said is true all the same");
    assert!(set.holds().is_empty(), "and what was acquired has ended");
    set.resume().unwrap();
    drop(item);
    assert_eq!(queue.stats().unwrap().done, 1);
    take(&queue).done_with(b"x").unwrap();
    let mut result = queue.try_collect().unwrap().unwrap();
    result.forget().unwrap();
    assert!(matches!(result.forget(), Err(QueueError::Spent)));
    assert!(matches!(result.revive(), Err(QueueError::Spent)));
}

fn a_closed_queue_takes_nothing_more_and_ends_when_all_is_finished(world: World) {
    let (set, queue) = filled(world, 2);
    queue.close().unwrap();
    assert!(matches!(queue.push(3, b""), Err(QueueError::Closed)));
    let mut first = take(&queue);
    let mut second = take(&queue);
    assert!(matches!(queue.try_take(), Err(QueueError::Empty)), "they may come back");
    first.retry(SECOND).unwrap();
    second.done().unwrap();
    assert!(matches!(queue.try_take(), Err(QueueError::Empty)));
    let waiting = {
        let queue = queue.clone();
        std::thread::spawn(move || {
            let mut item = queue.take().unwrap().unwrap();
            let id = item.id();
            item.done_with(b"late").unwrap();
            (id, queue.take().unwrap().is_none())
        })
    };
    set.advance(SECOND).unwrap();
    assert_eq!(waiting.join().unwrap(), (1, true));
    assert!(queue.try_take().unwrap().is_none());
    queue.collect().unwrap().unwrap().forget().unwrap();
    assert!(queue.collect().unwrap().is_none());
    assert!(queue.collect_dead().unwrap().is_none());
}

fn a_queue_that_is_not_closed_does_not_end(world: World) {
    let (_set, queue) = filled(world, 1);
    take(&queue).done().unwrap();
    assert!(matches!(queue.try_take(), Err(QueueError::Empty)));
    assert!(matches!(queue.try_collect(), Err(QueueError::Empty)));
    queue.drain().unwrap();
}

fn draining_waits_for_what_is_at_work(world: World) {
    let (set, queue) = filled(world, 3);
    let (mut a, mut b, mut c) = (take(&queue), take(&queue), take(&queue));
    let waiting = {
        let queue = queue.clone();
        std::thread::spawn(move || {
            queue.drain().unwrap();
            queue.stats().unwrap().unfinished()
        })
    };
    a.done().unwrap();
    b.dead_letter(b"").unwrap();
    c.rate_limited(set.try_acquire(()).unwrap(), None).unwrap();
    assert!(matches!(queue.drain_timeout(Duration::ZERO), Err(QueueError::TimedOut)));
    set.advance(HOUR).unwrap();
    take(&queue).done_with(b"").unwrap();
    assert_eq!(waiting.join().unwrap(), 0);
}

fn a_place_is_used_again(world: World) {
    let (_set, queue) = with_queue(world, QueueOptions::new(3, 20));
    for round in 0..50u64 {
        for id in [round, round + 1, round + 2] {
            queue.try_push(id, format!("item {id}").as_bytes()).unwrap();
        }
        assert_eq!(ids(&queue), [round, round + 1, round + 2]);
    }
}

fn a_429_of_another_set_pauses_that_one_and_puts_the_item_off(world: World) {
    let (set, queue) = filled(world, 1);
    let (other, _) = filled(world, 0);
    let mut item = take(&queue);
    let pause = item.rate_limited(other.try_acquire(()).unwrap(), None).unwrap();
    assert_eq!(pause.remaining, Some(10 * SECOND));
    assert_eq!(set.stats().unwrap().cooldown.generation, 0);
    assert_eq!(other.stats().unwrap().cooldown.generation, 1);
    assert_eq!(queue.stats().unwrap().delayed, 1);
    set.advance(10 * SECOND).unwrap();
    let mut item = take(&queue);
    assert_eq!((item.attempts(), item.rate_limits()), (1, 1));
    item.done().unwrap();
}

fn who_waits_for_an_item_gets_the_next_one_pushed(world: World) {
    let (_set, queue) = filled(world, 0);
    let workers: Vec<_> = (0..4)
        .map(|_| {
            let queue = queue.clone();
            std::thread::spawn(move || {
                let mut found = Vec::new();
                while let Some(mut item) = queue.take().unwrap() {
                    found.push(item.id());
                    item.done().unwrap();
                }
                found
            })
        })
        .collect();
    for id in 0..500 {
        queue.push(id, b"").unwrap();
    }
    queue.close().unwrap();
    let mut all: Vec<_> = workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect();
    all.sort_unstable();
    assert_eq!(all, (0..500).collect::<Vec<_>>());
}

fn who_waits_for_room_gets_it_when_an_item_is_done(world: World) {
    let (_set, queue) = with_queue(world, QueueOptions::new(1, 8));
    queue.push(1, b"").unwrap();
    let pusher = {
        let queue = queue.clone();
        std::thread::spawn(move || queue.push(2, b"").unwrap())
    };
    take(&queue).done().unwrap();
    pusher.join().unwrap();
    assert_eq!(take(&queue).id(), 2);
}

fn who_waits_is_told_when_the_set_is_removed(world: World) {
    let (set, queue) = filled(world, 0);
    let waiting = {
        let queue = queue.clone();
        std::thread::spawn(move || queue.take().map(drop))
    };
    set.remove().unwrap();
    assert!(matches!(waiting.join().unwrap(), Err(QueueError::Removed)));
    assert!(matches!(queue.try_push(1, b""), Err(QueueError::Removed)));
}

fn a_timeout_of_the_queue_is_no_emptiness(world: World) {
    let (_set, queue) = filled(world, 0);
    let moment = Duration::from_millis(1);
    assert!(matches!(queue.take_timeout(moment), Err(QueueError::TimedOut)));
    assert!(matches!(queue.collect_timeout(moment), Err(QueueError::TimedOut)));
    for id in 0..8 {
        queue.push_timeout(id, b"", moment).unwrap();
    }
    assert!(matches!(queue.push_timeout(9, b"", moment), Err(QueueError::TimedOut)));
}

fn a_set_without_a_queue_says_so(world: World) {
    let set = world.three_kinds();
    let refused = set.queue().unwrap_err();
    assert!(matches!(refused, QueueError::NoQueue), "{refused}");
    assert_eq!(set.stats().unwrap().queue, None);
}

fn impossible_queues_are_refused(world: World) {
    for options in
        [QueueOptions::new(0, 8), QueueOptions::new(1, 70_000), QueueOptions::new(1, 8).attempts(0)]
    {
        assert!(matches!(world.try_open(&builder(options)), Err(OpenError::Setting(_))));
    }
    let huge = world.try_open(&builder(QueueOptions::new(1 << 20, 1 << 16)));
    assert!(matches!(huge, Err(OpenError::Segment(_))), "more bytes than a segment may have");
    let wild = manual().cooldown(Cooldown::default().factor(0.0));
    assert!(matches!(world.try_open(&wild), Err(OpenError::Setting(_))));
    if world == World::Process {
        let set = world.open(&builder(QueueOptions::new(4, 8)));
        let reopen = |options| builder(options).open(&set.name).map(drop).unwrap_err().to_string();
        assert!(reopen(QueueOptions::new(5, 8)).contains("4 items of work"));
        assert!(reopen(QueueOptions::new(4, 9)).contains("8 bytes of an item"));
        assert!(reopen(QueueOptions::new(4, 8).attempts(9)).contains("3 attempts"));
        LimitSet::builder().attach(&set.name).unwrap().queue().unwrap();
        builder(QueueOptions::new(4, 8)).open(&set.name).unwrap();
    }
}

fn counts_tell_what_happened(world: World) {
    let options = Segment::options().slots(4).waiters(2).doorbell_slice(HOUR);
    let set = world.open(&builder(QueueOptions::new(6, 20)).segment(options));
    let queue = set.queue().unwrap();
    (1..=6).for_each(|id| queue.push(id, b"").unwrap());
    take(&queue).done().unwrap();
    take(&queue).done_with(b"result").unwrap();
    take(&queue).retry(SECOND).unwrap();
    take(&queue).dead_letter(b"").unwrap();
    take(&queue).rate_limited(set.try_acquire(()).unwrap(), None).unwrap();
    let _at_work = take(&queue);
    let stats = set.stats().unwrap().queue.unwrap();
    assert_eq!((stats.capacity, stats.is_closed), (6, false));
    let now = (stats.ready, stats.parked, stats.delayed, stats.leased, stats.results, stats.dead_letters);
    assert_eq!(now, (0, 1, 1, 1, 1, 1));
    assert_eq!((stats.pushed, stats.taken, stats.done, stats.retried), (6, 6, 2, 1));
    assert_eq!((stats.rate_limited, stats.redistributed, stats.returned, stats.dead_lettered), (1, 0, 0, 1));
    assert_eq!(stats.unfinished(), 3);
    if world == World::Process {
        let seen = LimitSet::observe(&set.name).unwrap().stats().unwrap().queue.unwrap();
        assert_eq!(seen, stats);
    }
}

fn it_is_not_said_that_no_result_will_come_while_one_may_be_put_back(world: World) {
    let (_set, queue) = filled(world, 2);
    queue.close().unwrap();
    take(&queue).done_with(b"x").unwrap();
    take(&queue).dead_letter(b"y").unwrap();
    let (result, dead) = (queue.collect().unwrap().unwrap(), queue.collect_dead().unwrap().unwrap());
    assert!(matches!(queue.try_collect(), Err(QueueError::Empty)));
    assert!(matches!(queue.collect_dead(), Err(QueueError::Empty)));
    drop((result, dead)); // or the collector is killed
    queue.collect().unwrap().unwrap().forget().unwrap();
    queue.collect_dead().unwrap().unwrap().forget().unwrap();
    assert!(queue.try_collect().unwrap().is_none() && queue.collect_dead().unwrap().is_none());
}

fn a_429_that_comes_with_a_finished_item_still_pauses_the_set(world: World) {
    let (set, queue) = filled(world, 1);
    let mut item = take(&queue);
    let held = set.try_acquire(()).unwrap();
    item.done().unwrap();
    assert!(matches!(item.rate_limited(held, Some(MINUTE)), Err(QueueError::Spent)));
    let cooldown = set.stats().unwrap().cooldown;
    assert_eq!((cooldown.consecutive, cooldown.remaining), (1, Some(MINUTE)));
}

fn an_item_is_parked_also_if_the_set_was_opened_twice(world: World) {
    if world != World::Process {
        return; // Only a name can be opened again.
    }
    let (set, _) = filled(world, 1);
    let again = LimitSet::attach(&set.name).unwrap();
    let queue = again.queue().unwrap();
    let pause = take(&queue).rate_limited(set.try_acquire(()).unwrap(), None).unwrap();
    assert_eq!((pause.remaining, pause.absorbed), (Some(10 * SECOND), false));
    let stats = again.stats().unwrap();
    let counts = stats.queue.unwrap();
    assert_eq!((counts.parked, counts.rate_limited, counts.delayed), (1, 1, 0));
    assert_eq!(stats.cooldown.participants, 1, "reported once");
    set.resume().unwrap();
    assert_eq!(take(&queue).rate_limits(), 1);
}
