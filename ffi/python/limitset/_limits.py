"""Limits as plain data. Opening a set checks its limits."""

from __future__ import annotations

import datetime
import enum
from dataclasses import dataclass
from typing import Optional, Union

Window = Union[int, float, str, datetime.timedelta]

_SECONDS = {"second": 1.0, "minute": 60.0, "hour": 3600.0, "day": 86400.0}


class Algorithm(str, enum.Enum):
    """How a rate counts."""

    TokenBucket = "token_bucket"
    LeakyBucket = "leaky_bucket"
    SlidingWindow = "sliding_window"
    FixedWindow = "fixed_window"
    GCRA = "gcra"

    def __str__(self) -> str:
        return self.value

    @classmethod
    def _missing_(cls, value: object) -> Optional[Algorithm]:
        return _by_name(cls, value)


class LoadBalancing(str, enum.Enum):
    """The order in which the sets of a pool are asked."""

    RoundRobin = "round_robin"
    Random = "random"
    FirstFree = "first_free"

    def __str__(self) -> str:
        return self.value

    @classmethod
    def _missing_(cls, value: object) -> Optional[LoadBalancing]:
        return _by_name(cls, value)


def _by_name(cls, value):
    """`"TokenBucket"`, `"token-bucket"` and `"TOKEN_BUCKET"` are all `token_bucket`."""
    if isinstance(value, str):
        plain = value.replace("_", "").replace("-", "").lower()
        for member in cls:
            if member.value.replace("_", "") == plain:
                return member
    return None


def seconds(window: Window) -> float:
    """Returns a window in seconds, given as a number, a name such as `"minute"`, or a timedelta."""
    if isinstance(window, str):
        try:
            return _SECONDS[window]
        except KeyError:
            names = ", ".join(_SECONDS)
            raise ValueError(f"unknown window {window!r}: use one of {names}, seconds, or a timedelta") from None
    if isinstance(window, datetime.timedelta):
        return window.total_seconds()
    if isinstance(window, bool) or not isinstance(window, (int, float)):
        raise TypeError(f"invalid window {window!r}: use seconds, a name such as 'minute', or a timedelta")
    return float(window)


@dataclass(frozen=True)
class RateLimit:
    """Units per time; each request names its amount: tokens, bytes, rows.

    `window` is seconds, "second", "minute", "hour", "day" or a timedelta. `burst` is the most at once, if that is
    not the capacity; `resolution` the number of sub-windows of a sliding window. Use has to be reported before
    release, unless `report` is false: then the requested amount counts as used.
    """

    key: str
    window: Window
    capacity: int
    algorithm: Union[Algorithm, str] = Algorithm.TokenBucket
    burst: Optional[int] = None
    resolution: Optional[int] = None
    report: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "window", seconds(self.window))
        object.__setattr__(self, "algorithm", Algorithm(self.algorithm))


@dataclass(frozen=True)
class CallLimit:
    """Calls per time: each request takes 1 unless it asks for more, and no report is due."""

    window: Window
    capacity: int
    key: str = "call_count"
    algorithm: Union[Algorithm, str] = Algorithm.TokenBucket
    burst: Optional[int] = None
    resolution: Optional[int] = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "window", seconds(self.window))
        object.__setattr__(self, "algorithm", Algorithm(self.algorithm))


@dataclass(frozen=True)
class ResourceLimit:
    """Permits that are held and returned: connections, slots, licences. Each request holds 1 unless it asks for more."""

    key: str
    capacity: int


Limit = Union[RateLimit, CallLimit, ResourceLimit]


@dataclass(frozen=True)
class Cooldown:
    """How a set pauses after "too many requests", and how slowly it resumes. Times are in seconds.

    The first pause is `first` long; until a request succeeds, each further one is `factor` times as long, up to
    `longest`. A pause is never shorter than the Retry-After of the other side. After a pause, `slow_admissions`
    admissions of all processes together are spaced, by `first_gap` at first and by `last_gap` in the end. Pauses and
    gaps are up to `jitter` of their length longer, at random.
    """

    first: float = 5.0
    factor: float = 2.0
    longest: float = 600.0
    jitter: float = 0.1
    slow_admissions: int = 20
    first_gap: float = 0.5
    last_gap: float = 0.05


@dataclass(frozen=True)
class QueueOptions:
    """A work queue in the memory of a set: room for `items` items of at most `item_bytes` bytes each.

    Every item needs a place until it is done; an item with a result, until a process has collected the result; a dead
    letter, until it is forgotten. A result has at most `result_bytes` bytes, as many as an item unless set. An item
    becomes a dead letter after `attempts` attempts, or after `rate_limits` answers of "too many requests", which do not
    count as attempts.
    """

    items: int
    item_bytes: int
    result_bytes: Optional[int] = None
    attempts: int = 3
    rate_limits: int = 20
