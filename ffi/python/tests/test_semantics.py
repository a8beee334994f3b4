"""The rules of a set in one process."""

import datetime

import pytest

import limitset
from limitset import (
    AboveCapacity,
    Algorithm,
    BadLimit,
    BadRequest,
    CallLimit,
    Cooldown,
    LimitDenied,
    LimitSet,
    LimitSetRemoved,
    LimitTimeout,
    RateLimit,
    ResourceLimit,
    Unreported,
    UsageError,
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


def test_a_call_and_a_permit_come_along():
    limits = usual()
    with limits.acquire({"tokens": 300}) as held:
        assert held and held.successful and held.enforced
        assert [held.charged(key) for key in limits] == [1, 300, 1]
        assert stats(limits, "connections")["in_use"] == 1
        held.update(usage={"tokens": 100})
        assert held.charged("tokens") == 100
    assert stats(limits, "connections")["in_use"] == 0
    assert stats(limits, "call_count")["consumed"] == 1
    assert stats(limits, "tokens")["consumed"] == 100


def test_a_rate_that_is_not_named_is_left_alone_unless_nothing_is_named():
    limits = usual()
    with limits.acquire({"connections": 2}) as held:
        assert held.charged("tokens") is None
        assert held.charged("connections") == 2
    with pytest.raises(BadRequest, match="tokens"):
        limits.acquire()
    with pytest.raises(BadRequest, match="tokens"):
        limits.try_acquire({})


def test_try_acquire_raises_nothing_on_denial_and_says_why():
    limits = usual()
    first = limits.try_acquire({"tokens": 1000})
    held = limits.try_acquire({"tokens": 600})
    assert first and not held and not held.successful
    assert held.retry_after == pytest.approx(36.0)
    assert held.denial.retry_after == held.retry_after
    assert held.denial.bottleneck.key == "tokens"
    assert [it.key for it in held.denial.violations] == ["tokens"]
    assert [it.passed for it in held.denial.statuses] == [True, False, True]
    with pytest.raises(LimitDenied):
        held.or_raise()
    assert first.or_raise() is first and first.denial is None and first.retry_after is None
    first.cancel()


def test_releasing_what_was_refused_does_nothing():
    limits = usual()
    with limits.acquire({"connections": 2}):
        before = limits.get_stats()["limits"]
        with limits.try_acquire({"connections": 1}) as held:
            assert not held.successful
        held.release()
        held.cancel()
        after = limits.get_stats()["limits"]
        assert {key: it["in_use"] for key, it in before.items()} == {key: it["in_use"] for key, it in after.items()}
        with pytest.raises(UsageError, match="the request was denied"):
            held.update(usage={"connections": 1})


def test_leaving_the_block_without_a_report_releases_and_then_raises():
    limits = usual()
    with pytest.raises(Unreported, match="tokens") as caught:
        with limits.acquire({"tokens": 5}):
            pass
    assert caught.value.keys == ("tokens",)
    assert stats(limits, "connections")["in_use"] == 0
    assert stats(limits, "tokens")["consumed"] == 5
    with pytest.raises(Unreported):
        limits.acquire({"tokens": 5}).release()


def test_an_exception_in_the_block_is_never_masked_and_returns_the_charge():
    limits = usual()
    with pytest.raises(ZeroDivisionError):
        with limits.acquire({"tokens": 400}):
            1 / 0
    assert stats(limits, "tokens")["consumed"] == 0
    assert stats(limits, "call_count")["consumed"] == 0
    assert stats(limits, "connections")["in_use"] == 0


def test_an_exception_is_not_masked_by_a_set_that_is_gone():
    limits = usual()
    with pytest.raises(ZeroDivisionError):
        with limits.acquire({"tokens": 400}):
            limits.remove()
            1 / 0
    with pytest.raises(LimitSetRemoved):
        limits.acquire({"tokens": 1})


def test_usage_is_reported_by_update_adjust_and_settle():
    limits = usual()
    held = limits.acquire({"tokens": 500})
    assert held.settle("tokens", 800) == 0
    assert held.adjust("tokens", 300) == 0
    assert stats(limits, "tokens")["debt"] == 100
    assert held.adjust("tokens", -100) == 100
    held.update({"tokens": 500})
    assert stats(limits, "tokens")["available"] == 500
    held.release()
    held.release()
    with pytest.raises(UsageError, match="released before") as caught:
        held.settle("tokens", 1)
    assert caught.value.reason == "ended"


def test_reports_that_do_not_fit_change_nothing():
    limits = usual()
    held = limits.acquire({"tokens": 500})
    for report, reason in [
        (lambda: held.update(usage={"tokens": 501}), "above_requested"),
        (lambda: held.update(usage={"token": 1}), "not_requested"),
        (lambda: held.adjust("tokens", -501), "above_charged"),
        (lambda: held.settle("connections", 2), "permits"),
    ]:
        with pytest.raises(UsageError) as caught:
            report()
        assert caught.value.reason == reason
    assert held.charged("tokens") == 500
    held.cancel()


@pytest.mark.parametrize("amount", [-1, 2**64])
def test_amounts_that_cannot_be_are_errors(amount):
    limits = usual()
    for ask in (limits.acquire, limits.try_acquire, limits.try_charge, limits.charge, limits.check):
        with pytest.raises(BadRequest, match="tokens"):
            ask({"tokens": amount})
    with limits.acquire({"tokens": 1}) as held:
        with pytest.raises(BadRequest):
            held.update(usage={"tokens": amount})
        with pytest.raises(BadRequest):
            held.settle("tokens", amount)
        held.use_all()


def test_amounts_of_another_type_are_errors():
    limits = usual()
    for requested in [{"tokens": 1.5}, {"tokens": "1"}, {"tokens": None}, {1: 1}, 5, [("tokens", 1)]]:
        with pytest.raises(TypeError):
            limits.acquire(requested)


def test_unknown_keys_are_errors_that_name_those_there_are():
    limits = usual()
    for ask in (limits.acquire, limits.try_acquire):
        with pytest.raises(BadRequest, match="call_count, tokens, connections"):
            ask({"token": 1})


def test_above_capacity_is_a_value_error_also_for_those_who_only_try():
    limits = usual()
    for ask in (limits.acquire, limits.try_acquire):
        with pytest.raises(ValueError) as caught:
            ask({"tokens": 1001})
        assert isinstance(caught.value, AboveCapacity)
        assert (caught.value.key, caught.value.requested, caught.value.most) == ("tokens", 1001, 1000)


def test_a_timeout_is_a_timeout_error_that_says_who_holds_what():
    limits = usual()
    with limits.acquire({"connections": 2}):
        with pytest.raises(TimeoutError) as caught:
            limits.acquire({"connections": 1}, timeout=0.01)
    late = caught.value
    assert isinstance(late, LimitTimeout) and isinstance(late, LimitDenied)
    assert late.bottleneck.key == "connections" and late.waited >= 0.01
    assert [(it.key, it.amount, it.is_this_process) for it in late.holders] == [("connections", 2, True)]
    assert limits.get_stats()["waiters"] == 0


def test_timeouts_are_seconds_or_a_timedelta_and_not_negative():
    limits = usual()
    with limits.acquire({"connections": 2}):
        for timeout in [0, 0.0, datetime.timedelta(milliseconds=1)]:
            with pytest.raises(LimitTimeout):
                limits.acquire({"connections": 1}, timeout=timeout)
        for timeout in [-1, float("nan")]:
            with pytest.raises(ValueError):
                limits.acquire({"connections": 1}, timeout=timeout)
        with pytest.raises(TypeError):
            limits.acquire({"connections": 1}, timeout="soon")
    limits.acquire({"connections": 1}, timeout=float("inf")).release()


def test_the_clock_of_the_set_decides_when_a_rate_is_free_again():
    limits = usual()
    limits.try_charge({"tokens": 1000})
    assert not limits.try_acquire({"tokens": 100})
    limits.advance(5.999)
    assert not limits.try_acquire({"tokens": 100})
    limits.advance(datetime.timedelta(milliseconds=1))
    assert limits.check({"tokens": 100})[1].available == 100
    limits.try_acquire({"tokens": 100}).cancel()


def test_rate_limited_pauses_the_set_and_needs_no_report():
    limits = usual(cooldown=Cooldown(first=2, jitter=0, slow_admissions=0, first_gap=0, last_gap=0))
    pause = limits.acquire({"tokens": 5}).rate_limited(retry_after="30")
    assert (pause.remaining, pause.generation, pause.absorbed) == (30.0, 1, False)
    held = limits.try_acquire({"tokens": 5})
    assert not held and held.retry_after == pytest.approx(30)
    assert held.denial.reason == "cooling_down"
    assert [it.key for it in held.denial.statuses] == ["call_count", "tokens", "connections"]
    assert limits.resume() and not limits.resume()
    for retry_after in [None, 1, 0.5, datetime.timedelta(seconds=1), "no date", "Wed, 21 Oct 2015 07:28:00 GMT"]:
        held = limits.acquire({"tokens": 1})
        assert held.rate_limited(retry_after).remaining >= 2
        with pytest.raises(UsageError):
            held.rate_limited()
        limits.resume()


def test_a_decorator_acquires_before_the_function_runs():
    limits = usual()

    @limits.limit(tokens=100)
    def call(a, *, b):
        """Says a and b."""
        assert stats(limits, "connections")["in_use"] == 1
        return a, b

    assert call(1, b=2) == (1, 2)
    assert (call.__name__, call.__doc__) == ("call", "Says a and b.")
    assert stats(limits, "tokens")["consumed"] == 100
    assert stats(limits, "tokens")["unreported"] == 0

    @limits.limit({"tokens": 100, "connections": 2}, timeout=0.01)
    def fail():
        assert stats(limits, "connections")["in_use"] == 2
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        fail()
    assert stats(limits, "tokens")["consumed"] == 100
    with limits.acquire({"connections": 1}):
        with pytest.raises(LimitTimeout):
            fail()
    with pytest.raises(TypeError):
        limits.limit({"tokens": 1}, tokens=1)


def test_a_decorator_needs_no_parentheses_where_nothing_is_to_be_said():
    limits = LimitSet([CallLimit(window="minute", capacity=1)], clock="manual")

    @limits.limit
    def call():
        return 7

    assert call() == 7
    assert not limits.try_acquire()


def test_limits_are_found_by_key_and_windows_are_understood():
    minute = datetime.timedelta(minutes=1)
    limits = LimitSet(
        [
            RateLimit(key="a", window="minute", capacity=5, algorithm="GCRA", burst=2),
            RateLimit(key="b", window=minute, capacity=5, algorithm=Algorithm.SlidingWindow, resolution=6),
            CallLimit(window=0.5, capacity=3),
            ResourceLimit(key="c", capacity=1),
        ]
    )
    assert limits["a"] == RateLimit("a", 60, 5, Algorithm.GCRA, burst=2)
    assert limits["b"].window == 60.0 and limits["b"].resolution == 6
    assert limits["call_count"] == CallLimit(window=0.5, capacity=3)
    assert [it.key for it in limits.limits] == list(limits) == ["a", "b", "call_count", "c"]
    assert "a" in limits and "d" not in limits and len(limits) == 4
    with pytest.raises(KeyError):
        limits["d"]
    with pytest.raises(TypeError):
        limits[0]


def test_limits_that_cannot_be_are_value_errors():
    for limit in [
        lambda: RateLimit("a", window="fortnight", capacity=1),
        lambda: RateLimit("a", window=1, capacity=1, algorithm="magic"),
        lambda: LimitSet([ResourceLimit("a", 0)]),
        lambda: LimitSet([ResourceLimit("a", -1)]),
        lambda: LimitSet([ResourceLimit("a", 1), ResourceLimit("a", 1)]),
        lambda: LimitSet([CallLimit(window=0, capacity=1)]),
        lambda: LimitSet([CallLimit(window=-1, capacity=1)]),
        lambda: LimitSet([], name="no/../name/"),
        lambda: LimitSet([], name=""),
        lambda: LimitSet([], mode="ray"),
        lambda: LimitSet([], mode="thread", name="a"),
        lambda: LimitSet([], mode="process", shared=False),
        lambda: LimitSet([], order="random"),
        lambda: LimitSet([], cooldown=Cooldown(factor=0.5)),
    ]:
        with pytest.raises(ValueError):
            limit()
    for limit in [lambda: LimitSet([1]), lambda: LimitSet(5), lambda: LimitSet([], config={"a": 1})]:
        with pytest.raises(TypeError):
            limit()
    assert issubclass(BadLimit, ValueError)


def test_modes_in_memory_are_not_shared():
    for mode in ["sync", "thread", "asyncio"]:
        limits = LimitSet(limits=[CallLimit(window=1, capacity=1)], shared=True, mode=mode, config={"region": "eu"})
        assert (limits.mode, limits.shared, limits.name) == (mode, False, None)
        assert limits.acquire().config["region"] == limits.config["region"] == "eu"
        with pytest.raises(TypeError):
            limits.config["region"] = "us"


def test_a_name_implies_processes_and_every_opener_shares(name):
    limits = LimitSet([CallLimit(window="day", capacity=2)], name=name, config={"region": "eu"})
    assert (limits.mode, limits.shared, limits.name) == ("process", True, name)
    other = LimitSet([CallLimit(window="day", capacity=2)], name=name, config={"region": "eu"})
    assert limits.try_acquire() and other.try_acquire() and not limits.try_acquire()
    attached = LimitSet.attach(name)
    assert attached.limits == limits.limits and dict(attached.config) == {"region": "eu"}
    with pytest.raises(limitset.LimitsDiffer, match="call_count"):
        LimitSet([CallLimit(window="day", capacity=3)], name=name, config={"region": "eu"})
    changed = LimitSet(
        [CallLimit(window="day", capacity=3)], name=name, config={"region": "eu"}, on_difference="reconfigure"
    )
    assert stats(changed, "call_count")["capacity"] == 3
    limits.remove()
    for it in (limits, other, attached):
        with pytest.raises(LimitSetRemoved):
            it.try_acquire()
    with pytest.raises(FileNotFoundError):
        LimitSet.attach(name)


def test_numbers_are_changed_live_and_everything_can_be_reset():
    limits = usual()
    limits.try_charge({"tokens": 1000})
    limits.reset()
    assert stats(limits, "tokens")["available"] == 1000
    limits.reconfigure([RateLimit("tokens", window="minute", capacity=10)])
    assert stats(limits, "tokens")["capacity"] == 10
    with pytest.raises(BadLimit):
        limits.reconfigure([ResourceLimit("tokens", 10)])
    with pytest.raises(BadRequest):
        limits.reconfigure([ResourceLimit("other", 10)])
    assert limits.reap() == 0


def test_more_can_be_had_under_the_same_acquisition():
    limits = usual()
    with limits.acquire({"tokens": 100}) as held:
        held.acquire_more({"connections": 1})
        assert held.charged("connections") == 2
        with pytest.raises(LimitDenied):
            held.acquire_more({"connections": 1})
        held.use_all()
    assert stats(limits, "connections")["in_use"] == 0


def test_an_acquisition_that_is_forgotten_gives_its_permits_back():
    limits = usual()
    held = limits.acquire({"connections": 2})
    del held
    limits.try_acquire({"connections": 2}).release()
