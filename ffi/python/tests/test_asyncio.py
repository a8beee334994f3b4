"""Waiting in an event loop."""

import asyncio
import os
import threading

import pytest

from limitset import CallLimit, LimitPool, LimitSet, LimitTimeout, RateLimit, ResourceLimit, Unreported


def stats(limits, key):
    return limits.get_stats()["limits"][key]


def threads():
    return len(os.listdir("/proc/self/task"))


async def waiters(limits, count):
    """Returns when the set has `count` waiters. Each poll lets the loop turn once."""
    while limits.get_stats()["waiters"] != count:
        await asyncio.sleep(0)


def test_an_acquisition_is_awaited_or_entered_directly():
    async def main():
        limits = LimitSet([CallLimit(window="day", capacity=9), ResourceLimit("c", 1)], mode="asyncio")
        async with limits.async_acquire() as held:
            assert held.charged("c") == 1
            with pytest.raises(TimeoutError):
                async with limits.async_acquire(timeout=0.01):
                    raise AssertionError("never entered")
        held = await limits.async_acquire({"c": 1}, timeout=60)
        held.release()
        async with await limits.async_acquire() as held:
            assert stats(limits, "c")["in_use"] == 1
        assert stats(limits, "c")["in_use"] == 0
        assert stats(limits, "call_count")["granted"] == 3

    asyncio.run(main())


def test_errors_come_when_it_is_awaited():
    async def main():
        limits = LimitSet([RateLimit("tokens", window="day", capacity=9)])
        for requested in [{"nothing": 1}, {"tokens": 10}, None]:
            asked = limits.async_acquire(requested)
            with pytest.raises(ValueError):
                await asked
        with pytest.raises(Unreported):
            async with limits.async_acquire({"tokens": 1}):
                pass
        with pytest.raises(ZeroDivisionError):
            async with limits.async_acquire({"tokens": 5}):
                1 / 0
        assert stats(limits, "tokens")["consumed"] == 1, "the charge of the failed block returned"

    asyncio.run(main())


def test_two_hundred_waiters_cost_one_thread_and_one_descriptor_and_are_served_in_order():
    async def main():
        limits = LimitSet([ResourceLimit("c", 1)])
        order = []

        async def work(number):
            async with limits.async_acquire():
                order.append(number)

        held = limits.acquire()
        before, descriptors = threads(), len(os.listdir("/proc/self/fd"))
        tasks = []
        for number in range(200):
            tasks.append(asyncio.create_task(work(number)))
            await waiters(limits, number + 1)
        assert threads() <= before + 1
        assert len(os.listdir("/proc/self/fd")) <= descriptors + 1
        held.release()
        await asyncio.gather(*tasks)
        assert order == list(range(200))

    asyncio.run(main())


def test_the_loop_turns_while_others_wait_and_a_thread_may_release():
    async def main():
        limits = LimitSet([ResourceLimit("c", 1)])
        held = limits.acquire()
        task = asyncio.create_task(limits.async_acquire().__aenter__())
        await waiters(limits, 1)
        thread = threading.Thread(target=held.release)
        thread.start()
        mine = await task
        thread.join()
        assert mine.charged("c") == 1
        mine.release()

    asyncio.run(main())


def test_a_cancelled_waiter_leaves_the_queue():
    async def main():
        limits = LimitSet([ResourceLimit("c", 1)])
        held = limits.acquire()

        async def wait():
            async with limits.async_acquire():
                raise AssertionError("never entered")

        tasks = [asyncio.create_task(wait()) for _ in range(10)]
        await waiters(limits, 10)
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(it, asyncio.CancelledError) for it in results)
        assert limits.get_stats()["waiters"] == 0
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(wait(), 0.02)
        assert limits.get_stats()["waiters"] == 0
        held.release()
        limits.try_acquire().or_raise().release()

    asyncio.run(main())


def test_a_grant_that_meets_a_cancellation_goes_back():
    async def main():
        limits = LimitSet([RateLimit("tokens", window="day", capacity=1000), ResourceLimit("c", 1)])
        for _ in range(300):
            held = limits.acquire({"tokens": 0})
            task = asyncio.create_task(limits.async_acquire({"tokens": 1}).__aenter__())
            await waiters(limits, 1)
            # Granted under the lock before the task polls; cancelled before it polls.
            held.release()
            assert stats(limits, "c")["in_use"] == 1
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert stats(limits, "c")["in_use"] == 0
        assert stats(limits, "tokens")["consumed"] == 0
        assert limits.get_stats()["waiters"] == 0

    asyncio.run(main())


def test_a_cancelled_block_returns_its_charge():
    async def main():
        limits = LimitSet([RateLimit("tokens", window="day", capacity=9)])
        entered = asyncio.Event()

        async def work():
            async with limits.async_acquire({"tokens": 4}):
                entered.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(work())
        await entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert stats(limits, "tokens")["consumed"] == 0

    asyncio.run(main())


def test_loops_one_after_the_other_and_side_by_side_are_woken():
    limits = LimitSet([ResourceLimit("c", 2)])

    async def main(rounds):
        for _ in range(rounds):
            async with limits.async_acquire():
                await asyncio.sleep(0)

    async def crowd():
        await asyncio.gather(*(main(20) for _ in range(5)))

    for _ in range(3):
        asyncio.run(crowd())
    side_by_side = [threading.Thread(target=lambda: asyncio.run(crowd())) for _ in range(4)]
    for thread in side_by_side:
        thread.start()
    for thread in side_by_side:
        thread.join()
    assert stats(limits, "c")["in_use"] == 0 and limits.get_stats()["waiters"] == 0


def test_pools_and_decorated_coroutines():
    async def main():
        one, two = (LimitSet([ResourceLimit("c", 1)], config={"region": it}) for it in "ab")
        pool = LimitPool([one, two], load_balancing="first_free")
        async with pool.async_acquire() as first, pool.async_acquire() as second:
            assert (first.config["region"], second.config["region"]) == ("a", "b")
            with pytest.raises(LimitTimeout):
                await pool.async_acquire(timeout=0.01)
            task = asyncio.create_task(pool.async_acquire().__aenter__())
            await waiters(one, 1)
        (await task).release()

        @pool.limit(c=1)
        async def call(value):
            assert stats(one, "c")["in_use"] == 1
            return value

        assert asyncio.iscoroutinefunction(call) and await call(5) == 5
        assert stats(one, "c")["in_use"] == 0

    asyncio.run(main())
