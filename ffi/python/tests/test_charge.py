"""Charges: rates are paid at once or after a wait, and nothing is held."""

import asyncio
import threading
import time

import pytest

from limitset import (
    AboveCapacity,
    BadRequest,
    CallLimit,
    LimitDenied,
    LimitSet,
    LimitTimeout,
    RateLimit,
    ResourceLimit,
)


def usual(**options):
    limits = [
        CallLimit(window="minute", capacity=10),
        RateLimit("tokens", window="minute", capacity=1000),
        ResourceLimit("connections", capacity=2),
    ]
    return LimitSet(limits, clock="manual", **options)


def stats(limits, key):
    return limits.get_stats()["limits"][key]


def until_waiters(limits, count):
    while limits.get_stats()["waiters"] != count:
        time.sleep(0)


@pytest.mark.parametrize("method", ["try_charge", "check_rate"])
def test_a_charge_without_a_wait_charges_or_raises(method):
    limits = usual()
    charge = getattr(limits, method)
    assert charge({"tokens": 700}) is None
    with pytest.raises(LimitDenied) as caught:
        charge({"tokens": 700})
    assert caught.value.bottleneck.key == "tokens"
    assert stats(limits, "tokens")["consumed"] == 700
    assert stats(limits, "call_count")["consumed"] == 1
    assert stats(limits, "connections")["in_use"] == 0
    with pytest.raises(BadRequest):
        charge({"tokens": 1, "connections": 1})
    with pytest.raises(AboveCapacity):
        charge({"tokens": 1001})


@pytest.mark.parametrize("method", ["charge", "check_and_wait"])
def test_a_charge_with_a_wait_is_made_in_its_turn(method):
    limits = usual()
    charge = getattr(limits, method)
    assert charge({"tokens": 1000}) is None
    done = []
    waiter = threading.Thread(target=lambda: done.append(charge({"tokens": 600})))
    waiter.start()
    until_waiters(limits, 1)
    with pytest.raises(LimitDenied):
        limits.try_charge({"tokens": 1})
    with pytest.raises(LimitTimeout):
        charge({"tokens": 100}, timeout=0.01)
    limits.advance(60)
    waiter.join()
    assert done == [None]
    assert stats(limits, "tokens")["consumed"] == 1600
    assert stats(limits, "connections")["in_use"] == 0
    with pytest.raises(BadRequest):
        charge({"tokens": 1, "connections": 1})
    with pytest.raises(ValueError, match="a timeout cannot be"):
        charge({"tokens": 1}, timeout=-1)


def test_a_charge_is_awaited():
    async def main():
        limits = usual()
        assert await limits.async_charge({"tokens": 1000}) is None
        with pytest.raises(LimitTimeout):
            await limits.async_charge({"tokens": 1}, timeout=0.01)
        waiting = asyncio.create_task(limits.async_charge({"tokens": 600}))
        cancelled = asyncio.create_task(limits.async_charge({"tokens": 300}))
        while limits.get_stats()["waiters"] != 2:
            await asyncio.sleep(0)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        limits.advance(60)
        assert await waiting is None
        assert stats(limits, "tokens")["consumed"] == 1600
        assert limits.get_stats()["waiters"] == 0

    asyncio.run(main())
