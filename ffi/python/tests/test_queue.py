"""The work queue of a set: the order of items, the ways to end one, and leaving its block."""

import asyncio
import datetime
import gc
import pickle
import queue as standard
import weakref

import pytest

import limitset
from limitset import (
    CallLimit,
    Cooldown,
    ItemTooLong,
    LimitSet,
    LimitsDiffer,
    NoQueue,
    QueueClosed,
    QueueEmpty,
    QueueError,
    QueueFull,
    QueueOptions,
    QueueTimeout,
    ResourceLimit,
)


def work_queue(count=0, *, limits=(), **options):
    """A queue with `count` items, numbered from 1."""
    options = {"items": 8, "item_bytes": 16, **options}
    queue = LimitSet(limits, clock="manual", queue=QueueOptions(**options)).queue
    for number in range(1, count + 1):
        queue.push(number, b"item %d" % number)
    return queue


def counts(queue, *names):
    stats = queue.get_stats()
    return tuple(stats[name] for name in names)


def test_items_are_handed_out_in_order_with_their_bytes():
    queue = work_queue(3)
    items = [queue.take(), queue.take(timeout=60), queue.try_take()]
    assert [(it.id, it.payload, it.attempts, it.rate_limits) for it in items] == [
        (number, b"item %d" % number, 1, 0) for number in (1, 2, 3)
    ]
    assert repr(items[0]) == "<WorkItem id=1 attempts=1 rate_limits=0>"
    for item in items:
        item.done()
    assert counts(queue, "done", "leased", "unfinished", "capacity") == (3, 0, 0, 8)
    assert queue.limit_set.get_stats()["queue"] == queue.get_stats()


def test_payloads_and_results_are_whatever_is_bytes():
    queue = work_queue()
    for number, payload in enumerate([b"abc", bytearray(b"abc"), memoryview(b"xabcx")[1:4], memoryview(b"abc")]):
        queue.push(number, payload)
        item = queue.take()
        assert item.payload == b"abc" and type(item.payload) is bytes
        item.done_with(payload)
        with queue.collect() as finished:
            assert finished.result == b"abc"
    with pytest.raises(TypeError, match="a payload must be bytes, not str: encode it"):
        queue.push(1, "abc")
    queue.push(2**64 - 1, b"")
    item = queue.take()
    assert (item.id, item.payload) == (2**64 - 1, b"")
    for wrong in ["abc", 5, None]:
        with pytest.raises(TypeError, match="a result must be bytes, not"):
            item.done_with(wrong)
    with pytest.raises(TypeError, match="a reason must be bytes"):
        item.dead_letter("no")
    item.done()
    for wrong in [-1, 2**64]:
        with pytest.raises(ValueError, match="the id of an item cannot be"):
            queue.try_push(wrong, b"")
    with pytest.raises(TypeError, match="must be an int, not str"):
        queue.push("1", b"")
    assert counts(queue, "ready", "leased") == (0, 0)


def test_what_is_too_long_is_refused_and_the_item_is_kept():
    queue = work_queue(1, result_bytes=3)
    with pytest.raises(ItemTooLong) as caught:
        queue.push(2, b"x" * 17)
    assert (caught.value.found, caught.value.most, caught.value.reason) == (17, 16, "too_long")
    item = queue.take()
    for end in (item.done_with, item.dead_letter):
        with pytest.raises(ValueError):
            end(b"four")
    item.done_with(b"abc")


def test_what_became_of_an_item_is_said_once():
    queue = work_queue(1)
    item = queue.take()
    item.done_with(b"well")
    for end in (item.done, item.retry, item.dead_letter, item.give_back, lambda: item.done_with(b"")):
        with pytest.raises(QueueError) as caught:
            end()
        assert caught.value.reason == "spent"
    assert (item.id, item.payload) == (1, b"item 1"), "its properties can still be read"
    finished = queue.collect()
    assert repr(finished) == "<Finished done id=1 attempts=1>"
    finished.forget()
    for end in (finished.forget, finished.revive, finished.put_back):
        with pytest.raises(QueueError) as caught:
            end()
        assert caught.value.reason == "spent"


def test_leaving_the_block_of_an_item_says_that_it_is_done():
    queue = work_queue(2)
    with queue.take() as item:
        assert item.id == 1
    with queue.take() as item:
        item.done_with(b"said before")
    assert counts(queue, "done", "results", "leased") == (2, 1, 0)


def test_an_exception_in_the_block_of_an_item_is_raised_and_has_it_tried_again():
    queue = work_queue(1, attempts=3)
    for attempt in (1, 2, 3):
        with pytest.raises(ZeroDivisionError):
            with queue.take() as item:
                assert item.attempts == attempt
                1 / 0
    with pytest.raises(QueueEmpty):
        queue.try_take()
    dead = queue.collect_dead()
    assert (dead.id, dead.attempts, dead.reason, dead.payload) == (1, 3, "attempts", b"item 1")


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, asyncio.CancelledError, GeneratorExit])
def test_a_worker_that_has_to_stop_gives_the_item_back_untried(kind):
    queue = work_queue(1)
    for _ in range(5):
        with pytest.raises(kind):
            with queue.take() as item:
                assert item.attempts == 1
                raise kind
    assert counts(queue, "ready", "retried", "dead_letters") == (1, 0, 0)


def test_what_was_said_in_the_block_counts_also_if_it_raises():
    queue = work_queue(1)
    with pytest.raises(ZeroDivisionError):
        with queue.take() as item:
            item.dead_letter(b"broken")
            1 / 0
    with queue.collect_dead() as dead:
        assert (dead.result, dead.reason) == (b"broken", "given_up")
    assert counts(queue, "dead_letters", "dead_lettered", "retried") == (0, 1, 0)


def test_blocks_of_items_may_be_async():
    async def main():
        queue = work_queue(2, attempts=2)
        async with await queue.async_take() as item:
            assert item.id == 1
        with pytest.raises(ZeroDivisionError):
            async with await queue.async_take():
                1 / 0
        async with await queue.async_take() as item:
            item.done_with(b"")
        async with await queue.async_collect() as finished:
            assert finished.attempts == 2
        assert counts(queue, "done", "results", "retried") == (2, 0, 1)

    asyncio.run(main())


def test_a_result_is_forgotten_when_its_block_is_left_and_put_back_when_it_raises():
    queue = work_queue(2)
    for item in [queue.take(), queue.take()]:
        item.done_with(b"result of %d" % item.id)
    with pytest.raises(ZeroDivisionError):
        with queue.collect() as finished:
            1 / 0
    with queue.collect() as finished:
        assert (finished.id, finished.result, finished.reason) == (1, b"result of 1", None)
    finished = queue.collect()
    finished.put_back()
    finished = queue.collect()
    assert finished.id == 2
    del finished
    gc.collect()
    with queue.try_collect() as finished:
        assert finished.id == 2
    with pytest.raises(QueueEmpty):
        queue.try_collect()


def test_an_item_that_is_destroyed_goes_to_the_next_and_the_attempt_counts():
    queue = work_queue(1)
    item = queue.take()
    gone = weakref.ref(item)
    del item
    gc.collect()
    assert gone() is None and queue.take().attempts == 2


def test_an_item_put_off_comes_back_at_its_time():
    queue = work_queue(2)
    queue.take().retry(after=10)
    queue.take().retry(after=datetime.timedelta(seconds=5))
    assert counts(queue, "delayed", "retried") == (2, 2)
    with pytest.raises(QueueEmpty):
        queue.try_take()
    with pytest.raises(ValueError):
        queue.limit_set.queue.push(3, b"") or queue.take().retry(after=-1)
    queue.limit_set.advance(5)
    assert queue.take().id == 2
    queue.limit_set.advance(5)
    ids = {queue.try_take().id for _ in range(2)}
    assert 1 in ids


def test_a_dead_letter_can_be_revived():
    queue = work_queue(1, attempts=1)
    queue.take().retry()
    queue.collect_dead().revive()
    item = queue.take()
    assert item.attempts == 1
    item.done()
    with pytest.raises(QueueEmpty):
        queue.collect_dead()


def test_a_rate_limited_item_is_parked_while_the_set_pauses():
    limits = [CallLimit(window="minute", capacity=9), ResourceLimit("c", 1)]
    cooldown = Cooldown(first=5, jitter=0, slow_admissions=0)
    limits = LimitSet(limits, clock="manual", cooldown=cooldown, queue=QueueOptions(items=2, item_bytes=8))
    limits.queue.push(1, b"one")
    with limits.queue.take() as item:
        with limits.acquire() as held:
            pause = item.rate_limited(held, retry_after="7")
    assert (pause.remaining, pause.generation, pause.absorbed) == (7, 1, False)
    assert counts(limits.queue, "parked", "rate_limited", "done") == (1, 1, 0), "leaving the blocks says no more"
    assert limits.get_stats()["limits"]["c"]["in_use"] == 0
    with pytest.raises(QueueEmpty):
        limits.queue.try_take()
    limits.advance(7)
    item = limits.queue.take()
    assert (item.attempts, item.rate_limits) == (1, 1)
    # Nothing was acquired, so the item is neither finished nor returned.
    with limits.acquire():
        with pytest.raises(limitset.UsageError):
            item.rate_limited(limits.try_acquire())
    item.done()
    held = limits.acquire()
    with pytest.raises(QueueError):
        item.rate_limited(held)
    assert limits.get_stats()["cooldown"]["generation"] == 2, "what the other side said is true all the same"


def test_a_queue_is_bounded_and_says_when_it_is_full_empty_late_or_closed():
    queue = work_queue(2, items=2)
    with pytest.raises(QueueFull):
        queue.try_push(3, b"")
    with pytest.raises(standard.Full):
        queue.try_push(3, b"")
    with pytest.raises(QueueTimeout):
        queue.push(3, b"", timeout=0.01)
    with pytest.raises(TimeoutError):
        queue.drain(timeout=datetime.timedelta(milliseconds=1))
    items = [queue.take(), queue.take()]
    for late in (queue.take, queue.collect):
        with pytest.raises(QueueTimeout):
            late(timeout=0)
        with pytest.raises(ValueError):
            late(timeout=-1)
    with pytest.raises(standard.Empty):
        queue.try_take()
    queue.close()
    with pytest.raises(QueueClosed):
        queue.push(3, b"")
    with pytest.raises(QueueEmpty):
        queue.try_take()
    for item in items:
        item.done()
    queue.drain()
    assert [queue.take(), queue.try_take(), queue.collect(), queue.try_collect(), queue.collect_dead()] == [None] * 5
    assert queue.get_stats()["is_closed"] is True


def test_a_queue_is_iterated_until_all_is_finished():
    queue = work_queue(3)
    queue.close()
    seen = []
    for item in queue:
        with item:
            seen.append(item.id)
            item.done_with(item.payload)
    assert seen == [1, 2, 3]
    for finished in iter(queue.collect, None):
        with finished:
            seen.append(finished.id)
    assert seen == [1, 2, 3] * 2

    async def main():
        queue = work_queue(3)
        queue.close()
        seen = []
        async for item in queue:
            async with item:
                seen.append(item.id)
        return seen

    assert asyncio.run(main()) == [1, 2, 3]


def test_a_set_without_a_queue_says_so():
    limits = LimitSet([ResourceLimit("c", 1)])
    assert not hasattr(limits, "queue") and limits.get_stats()["queue"] is None
    with pytest.raises(NoQueue, match="open it with queue=QueueOptions") as caught:
        limits.queue
    assert caught.value.reason == "no_queue"


def test_queues_that_cannot_be_are_refused():
    for options in [(0, 8), (1, 70_000), (-1, 8), (2**40, 8), (1, 8, None, 0), (1, 8, None, 1, 0)]:
        with pytest.raises(limitset.BadLimit):
            LimitSet([], queue=QueueOptions(*options))
    for wrong in [5, {"items": 5}, QueueOptions("5", 5)]:
        with pytest.raises(TypeError):
            LimitSet([], queue=wrong)


def test_the_queue_is_part_of_what_was_declared(name):
    options = QueueOptions(items=4, item_bytes=8)
    limits = LimitSet([ResourceLimit("c", 1)], name=name, queue=options)
    limits.queue.push(1, b"one")
    assert LimitSet([ResourceLimit("c", 1)], name=name, queue=options).queue.get_stats()["ready"] == 1
    with pytest.raises(LimitsDiffer):
        LimitSet([ResourceLimit("c", 1)], name=name, queue=QueueOptions(items=5, item_bytes=8))
    with LimitSet.attach(name).queue.take() as item:
        assert item.payload == b"one"


def test_a_pickled_set_brings_its_queue_and_a_pickled_queue_its_set(name):
    limits = LimitSet([], name=name, queue=QueueOptions(items=4, item_bytes=8))
    limits.queue.push(1, b"one")
    assert pickle.loads(pickle.dumps(limits)).queue.take().id == 1
    again = pickle.loads(pickle.dumps(limits.queue))
    assert again.limit_set.name == name and repr(again) == f"<WorkQueue of {again.limit_set!r}>"
    item = again.take()
    item.done_with(b"")
    for it in (item, again.collect()):
        with pytest.raises(TypeError):
            pickle.dumps(it)
    with pytest.raises(TypeError, match="cannot pickle"):
        pickle.dumps(work_queue())


def test_errors_of_queues_survive_pickle_and_are_what_python_would_call_them():
    queue = work_queue(8)
    errors = []
    for act in (lambda: queue.try_push(9, b""), lambda: queue.push(9, b"x" * 17), lambda: queue.collect(timeout=0),
                queue.try_collect, lambda: LimitSet([]).queue, lambda: queue.close() or queue.push(9, b"")):
        with pytest.raises(QueueError) as caught:
            act()
        errors.append(caught.value)
    kinds = [QueueFull, ItemTooLong, QueueTimeout, QueueEmpty, NoQueue, QueueClosed]
    assert [type(error) for error in errors] == kinds
    standards = [standard.Full, ValueError, TimeoutError, standard.Empty, AttributeError, ValueError]
    for error, kind in zip(errors, standards):
        assert isinstance(error, kind)
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), again.reason) == (type(error), str(error), error.reason)


def test_a_removed_set_takes_its_queue_along(name):
    limits = LimitSet([], name=name, queue=QueueOptions(items=1, item_bytes=8))
    queue = limits.queue
    queue.push(1, b"")
    item = queue.take()
    limits.remove()
    for act in (queue.take, queue.close, item.done, lambda: queue.push(1, b"")):
        with pytest.raises(limitset.LimitSetRemoved):
            act()
