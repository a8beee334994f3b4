"""Ended acquisitions are reused, which a program cannot notice."""

import gc
import weakref

import pytest

from limitset import LimitSet, RateLimit, ResourceLimit

ASKED = {"tokens": 10}


def usual():
    return LimitSet(
        [RateLimit("tokens", window="minute", capacity=1000, report=False), ResourceLimit("connections", capacity=4)],
        clock="manual",
    )


def stats(limits, key):
    return limits.get_stats()["limits"][key]


def warm(limits):
    for _ in range(4):
        with limits.acquire(ASKED):
            pass


def test_one_that_a_variable_refers_to_is_not_used_again():
    limits = usual()
    warm(limits)
    released = []
    for _ in range(6):
        with limits.acquire(ASKED) as held:
            assert all(held is not it for it in released)
        released.append(held)
    current = limits.acquire(ASKED)
    assert all(repr(it) == "<Acquisition released>" and it.charged("tokens") is None for it in released)
    assert current.charged("tokens") == 10
    current.release()


def test_nothing_of_its_last_use_is_left():
    limits = usual()
    warm(limits)
    with limits.acquire(ASKED) as held:
        held.update({"tokens": 3})
    del held
    with limits.acquire(ASKED) as held:
        assert held and held.charged("tokens") == 10 and held.config is limits.config
        assert stats(limits, "connections")["in_use"] == 1
    assert stats(limits, "connections")["in_use"] == 0


def test_nested_blocks_hold_each_their_own():
    limits = usual()
    warm(limits)
    for _ in range(5):
        with limits.acquire(ASKED) as a, limits.acquire(ASKED) as b, limits.acquire(ASKED) as c:
            assert len({id(a), id(b), id(c)}) == 3
            assert stats(limits, "connections")["in_use"] == 3
        assert stats(limits, "connections")["in_use"] == 0


def test_one_that_is_used_again_is_released_when_it_is_dropped():
    limits = usual()
    warm(limits)
    held = limits.acquire(ASKED)
    assert stats(limits, "connections")["in_use"] == 1
    del held
    gc.collect()
    assert stats(limits, "connections")["in_use"] == 0


def test_an_exception_returns_the_charge_of_one_that_is_used_again():
    limits = usual()
    warm(limits)
    before = stats(limits, "tokens")["consumed"]
    with pytest.raises(KeyError):
        with limits.acquire(ASKED):
            raise KeyError
    assert stats(limits, "tokens")["consumed"] == before
    assert stats(limits, "connections")["in_use"] == 0


def test_a_set_with_spares_ends_with_its_last_reference():
    limits = usual()
    warm(limits)
    seen = weakref.ref(limits)
    del limits
    assert seen() is None
