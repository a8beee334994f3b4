"""Denials: their HTTP headers, and their fields after pickling."""

import pickle

import pytest

import limitset
from limitset import CallLimit, LimitSet, LimitStatus, LimitTimeout, RateLimit, ResourceLimit, rate_limit_headers


def refused(requested, **options):
    limits = LimitSet(
        [
            CallLimit(window="minute", capacity=10),
            RateLimit("tokens", window="hour", capacity=3600, report=False),
            ResourceLimit("connections", capacity=1),
        ],
        clock="manual",
        **options,
    )
    limits.try_charge({"tokens": 3600, "call_count": 4})
    return limits, limits.try_acquire(requested).denial


def test_a_denial_is_an_answer_to_an_http_request():
    _, denied = refused({"tokens": 30})
    assert denied.status_code == 429
    assert denied.retry_after == pytest.approx(30)
    assert denied.rate_limit == '"call_count";r=6, "tokens";r=0;t=30, "connections";r=1'
    assert denied.rate_limit_policy == (
        '"call_count";q=10;w=60, "tokens";q=3600;w=3600, "connections";q=1;qu="concurrent-requests"'
    )
    assert denied.headers == {
        "Retry-After": "30",
        "RateLimit": denied.rate_limit,
        "RateLimit-Policy": denied.rate_limit_policy,
    }


def test_what_depends_on_others_has_no_retry_after():
    limits, _ = refused({"tokens": 1})
    with limits.acquire({"connections": 1}):
        denied = limits.try_acquire({"connections": 1}).denial
    assert denied.retry_after is None and "Retry-After" not in denied.headers
    assert denied.bottleneck.key == "connections"


def test_policies_are_those_of_now():
    limits, _ = refused({"tokens": 1})
    limits.reconfigure([RateLimit("tokens", window="minute", capacity=1800, report=False)])
    denied = limits.try_acquire({"tokens": 1}).denial
    assert '"tokens";q=1800;w=60' in denied.rate_limit_policy


def test_keys_and_windows_of_any_kind_make_valid_fields():
    status = LimitStatus('a"b\\c\u00e4%', 1, -5, 9, False, 0.2, 9, 0.25)
    fields = rate_limit_headers([status], 0.0)
    assert fields["RateLimit"] == '"a\\"b\\\\c%c3%a4%25";r=0;t=1'
    assert fields["RateLimit-Policy"] == '"a\\"b\\\\c%c3%a4%25";q=9'
    assert fields["Retry-After"] == "1"
    assert rate_limit_headers([]) == {}


def test_errors_survive_pickle():
    limits, denied = refused({"tokens": 30})
    with limits.acquire({"connections": 1}):
        with pytest.raises(LimitTimeout) as caught:
            limits.acquire({"connections": 1}, timeout=0)
    with pytest.raises(ValueError) as above:
        limits.acquire({"tokens": 9999})
    for error in [denied, caught.value, above.value]:
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is type(error) and str(again) == str(error)
        assert vars(again) == vars(error)


def test_every_error_is_a_limit_error_and_what_python_would_call_it():
    for name in limitset.__all__:
        it = getattr(limitset, name)
        if isinstance(it, type) and issubclass(it, BaseException):
            assert issubclass(it, limitset.LimitError)
    assert issubclass(limitset.LimitTimeout, TimeoutError)
    assert issubclass(limitset.AboveCapacity, ValueError)
    assert issubclass(limitset.SegmentNotFound, FileNotFoundError)
