"""Waiting at a work queue in an event loop: woken, cancelled at any time, and without a thread."""

import asyncio
import os
import signal
import threading

import pytest

from limitset import LimitSet, QueueError, QueueOptions, QueueTimeout


def work_queue(items=8, **place):
    return LimitSet([], queue=QueueOptions(items=items, item_bytes=16), **place).queue


def threads():
    return len(os.listdir("/proc/self/task"))


def test_tasks_wait_for_items_room_results_and_the_end():
    async def main():
        queue = work_queue(items=2)
        done, results = [], []

        async def work():
            async for item in queue:
                async with item:
                    await asyncio.sleep(0)
                    done.append(item.id)
                    item.done_with(item.payload)

        async def collect():
            while (finished := await queue.async_collect(timeout=60)) is not None:
                async with finished:
                    results.append(finished.result)

        tasks = [asyncio.create_task(it()) for it in (work, work, work, collect)]
        for number in range(100):
            await queue.async_push(number, b"%d" % number, timeout=60)
        await queue.async_drain(timeout=60)
        queue.close()
        await asyncio.gather(*tasks)
        assert sorted(done) == list(range(100))
        assert sorted(results) == sorted(b"%d" % number for number in range(100))

    asyncio.run(main())


def test_many_tasks_at_a_queue_cost_one_thread_and_one_descriptor():
    async def main():
        queue = work_queue(items=64)
        before, descriptors = threads(), len(os.listdir("/proc/self/fd"))
        tasks = [asyncio.create_task(queue.async_take()) for _ in range(50)]
        await asyncio.sleep(0)
        assert threads() <= before + 1
        assert len(os.listdir("/proc/self/fd")) <= descriptors + 1
        # A thread pushes while the loop turns.
        pushes = threading.Thread(target=lambda: [queue.push(number, b"") for number in range(50)])
        pushes.start()
        items = await asyncio.gather(*tasks)
        pushes.join()
        assert sorted(item.id for item in items) == list(range(50))

    asyncio.run(main())


def test_a_cancelled_task_takes_nothing_and_pushes_nothing():
    async def main():
        queue = work_queue(items=1)
        waits = [queue.async_take, queue.async_collect]
        tasks = [asyncio.create_task(wait()) for wait in waits * 10]
        await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(end, asyncio.CancelledError) for end in ends)
        queue.push(1, b"")
        push = asyncio.create_task(queue.async_push(2, b""))
        await asyncio.sleep(0)
        push.cancel()
        with pytest.raises(asyncio.CancelledError):
            await push
        item = queue.try_take()
        assert item.attempts == 1
        item.done()
        assert queue.get_stats()["pushed"] == 1
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(queue.async_take(), 0.01)
        with pytest.raises(QueueTimeout):
            await queue.async_take(timeout=0.01)

    asyncio.run(main())


def test_an_item_that_came_when_its_task_was_cancelled_goes_to_another():
    async def main():
        queue = work_queue()
        for number in range(50):
            first, other = (asyncio.create_task(queue.async_take()) for _ in range(2))
            await asyncio.sleep(0)
            queue.push(number, b"")
            # Sometimes before the wake-up, sometimes after it.
            for _ in range(number % 4):
                await asyncio.sleep(0)
            first.cancel()
            ends = await asyncio.gather(first, return_exceptions=True)
            if isinstance(ends[0], asyncio.CancelledError):
                item = await other
                assert item.attempts == 1, "no worker has had it before"
            else:
                item = ends[0]
                other.cancel()
            assert item.id == number
            item.done()

    asyncio.run(main())


def test_cancelling_the_work_on_an_item_gives_it_back():
    async def main():
        queue = work_queue()
        queue.push(1, b"")
        working = asyncio.Event()

        async def work():
            async with await queue.async_take():
                working.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(work())
        await working.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await queue.async_take()).attempts == 1
        with pytest.raises(asyncio.TimeoutError):
            async with await queue.async_take() as item:
                await asyncio.wait_for(asyncio.Event().wait(), 0.01)
        assert item.id == 1 and queue.get_stats()["retried"] == 1, "a timeout within the block is a failure"

    asyncio.run(main())


def test_errors_of_a_queue_come_when_they_are_awaited():
    async def main():
        queue = work_queue(items=1)
        with pytest.raises(TypeError):
            queue.async_push(1, "text")
        push = queue.async_push(1, b"x" * 17)
        with pytest.raises(QueueError):
            await push
        queue.close()
        with pytest.raises(ValueError):
            await queue.async_push(1, b"")
        assert await queue.async_take() is None and await queue.async_collect() is None

    asyncio.run(main())


HOLDER = """
import sys
from limitset import *
with LimitSet.attach(sys.argv[1]).queue.take() as item:
    print("has", item.id)
    sys.stdin.readline()
"""


def test_an_item_of_a_killed_worker_comes_back_to_a_task_that_waits(name, program):
    queue = work_queue(name=name)
    queue.push(7, b"work")
    holder = program(HOLDER, name)
    assert holder.line() == "has 7"

    async def main():
        task = asyncio.create_task(queue.async_take(timeout=60))
        await asyncio.sleep(0)
        holder.signal(signal.SIGKILL)
        async with await task as item:
            assert item.attempts == 2

    asyncio.run(main())
    assert queue.get_stats()["done"] == 1
