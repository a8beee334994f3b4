"""What can go wrong, and what a refusal says.

All of these can be pickled, so that they come back from worker processes whole.
"""

from __future__ import annotations

import math
import queue
from typing import Iterable, NamedTuple, Optional


class LimitStatus(NamedTuple):
    """How one limit stands to a request."""

    key: str
    #: How much was asked of it; 0 if it was left alone.
    requested: int
    #: How much it would give now; negative is debt.
    available: int
    #: How much it ever gives at once.
    most: int
    #: Whether the request fits.
    passed: bool
    #: Seconds until it fits, if nobody else asks before; None if it fits, or if that depends on others.
    retry_after: Optional[float]
    #: Units per window, or how many there are.
    capacity: int
    #: Length of the window in seconds; None for what is held and returned.
    window: Optional[float]


class Holder(NamedTuple):
    """Somebody who holds what is in the way."""

    #: Its process number; 0 if it is dead.
    pid: int
    command: str
    is_this_process: bool
    key: str
    amount: int


def _text(key: str) -> str:
    """A key as a string of structured fields: printable ASCII, the rest percent-encoded."""
    plain = "".join(c if " " <= c <= "~" and c != "%" else "".join(f"%{b:02x}" for b in c.encode()) for c in key)
    return '"' + plain.replace("\\", "\\\\").replace('"', '\\"') + '"'


def rate_limit_headers(statuses: Iterable[LimitStatus], retry_after: Optional[float] = None) -> dict[str, str]:
    """The IETF fields `RateLimit` and `RateLimit-Policy`, and `Retry-After` if there is one, for an HTTP response."""
    rates, policies = [], []
    for it in statuses:
        wait = "" if it.retry_after is None else f";t={math.ceil(it.retry_after)}"
        rates.append(f"{_text(it.key)};r={max(it.available, 0)}{wait}")
        policy = f"{_text(it.key)};q={it.capacity}"
        if it.window is None:
            policy += ';qu="concurrent-requests"'
        elif it.window == int(it.window):
            policy += f";w={int(it.window)}"
        policies.append(policy)
    fields = {"RateLimit": ", ".join(rates), "RateLimit-Policy": ", ".join(policies)} if rates else {}
    if retry_after is not None:
        fields["Retry-After"] = str(max(1, math.ceil(retry_after)))
    return fields


class LimitError(Exception):
    """Whatever limitset has to complain about."""


class LimitDenied(LimitError):
    """The limits do not allow it now. Nothing was charged.

    A web application answers it with `status_code` and `headers`.
    """

    #: Too Many Requests.
    status_code = 429

    def __init__(
        self,
        message: str = "denied",
        *,
        reason: str = "limited",
        retry_after: Optional[float] = None,
        statuses: tuple[LimitStatus, ...] = (),
        ahead: int = 0,
        waiters: Optional[int] = None,
    ) -> None:
        super().__init__(message)
        #: "limited", "queued" (others came first), "cooling_down", "queue_full" or "timed_out".
        self.reason = reason
        #: Seconds until the same request can succeed, if that is known.
        self.retry_after = retry_after
        #: How every limit of the set stood to the request.
        self.statuses = tuple(statuses)
        #: How many others came first.
        self.ahead = ahead
        #: How many places the queue has, if all of them were taken.
        self.waiters = waiters

    @property
    def violations(self) -> tuple[LimitStatus, ...]:
        """The limits that were in the way."""
        return tuple(status for status in self.statuses if not status.passed)

    @property
    def bottleneck(self) -> Optional[LimitStatus]:
        """The limit that was most in the way: permits that others hold, else the rate that takes longest."""
        wait = lambda it: math.inf if it.retry_after is None else it.retry_after  # noqa: E731
        return max(self.violations, key=wait, default=None)

    @property
    def rate_limit(self) -> str:
        """The value of the `RateLimit` field."""
        return self.headers.get("RateLimit", "")

    @property
    def rate_limit_policy(self) -> str:
        """The value of the `RateLimit-Policy` field."""
        return self.headers.get("RateLimit-Policy", "")

    @property
    def headers(self) -> dict[str, str]:
        """`RateLimit`, `RateLimit-Policy` and, if it is known, `Retry-After`."""
        return rate_limit_headers(self.statuses, self.retry_after)


class LimitTimeout(LimitDenied, TimeoutError):
    """The limits did not allow it in time. Nothing was charged."""

    def __init__(
        self,
        message: str = "timed out",
        *,
        reason: str = "timed_out",
        retry_after: Optional[float] = None,
        statuses: tuple[LimitStatus, ...] = (),
        ahead: int = 0,
        waited: float = 0.0,
        cooling_down: Optional[float] = None,
        holders: tuple[Holder, ...] = (),
    ) -> None:
        super().__init__(message, reason=reason, retry_after=retry_after, statuses=statuses, ahead=ahead)
        #: How long that was, in seconds.
        self.waited = waited
        #: How long the set would still have admitted nobody, if it was cooling down.
        self.cooling_down = cooling_down
        #: Who held what was in the way.
        self.holders = tuple(holders)


class BadRequest(LimitError, ValueError):
    """A request that makes no sense to this set: an unknown key, a negative amount, a rate that is not named."""


class AboveCapacity(BadRequest):
    """More than a limit ever gives, however long one waits."""

    def __init__(self, message: str = "above capacity", *, key: str = "", requested: int = 0, most: int = 0) -> None:
        super().__init__(message)
        self.key = key
        self.requested = requested
        #: How much it ever gives at once.
        self.most = most


class UsageError(LimitError, ValueError):
    """A report that does not fit what was acquired. Nothing was changed."""

    def __init__(self, message: str = "", *, reason: str = "") -> None:
        super().__init__(message)
        #: "not_requested", "above_requested", "above_charged", "permits", "too_much" or "ended".
        self.reason = reason


class Unreported(LimitError, RuntimeError):
    """Released, but the use of a rate was not reported."""

    def __init__(self, message: str = "unreported", *, keys: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.keys = tuple(keys)


class QueueError(LimitError):
    """Nothing was done to a work queue, or to an item of it."""

    def __init__(self, message: str = "", *, reason: str = "") -> None:
        super().__init__(message)
        #: "no_queue", "empty", "full", "closed", "timed_out" or "too_long"; of an item "spent" (what became of it was said
        #: before) or "not_held".
        self.reason = reason


class NoQueue(QueueError, AttributeError):
    """The set was opened without a work queue."""

    def __init__(self, message: str = "no queue", *, reason: str = "no_queue") -> None:
        super().__init__(message, reason=reason)


class QueueEmpty(QueueError, queue.Empty):
    """There is nothing in the queue now; there may be later."""

    def __init__(self, message: str = "empty", *, reason: str = "empty") -> None:
        super().__init__(message, reason=reason)


class QueueFull(QueueError, queue.Full):
    """All places of the queue are taken. Nothing was pushed."""

    def __init__(self, message: str = "full", *, reason: str = "full") -> None:
        super().__init__(message, reason=reason)


class QueueClosed(QueueError, ValueError):
    """The queue was closed for good. Nothing was pushed."""

    def __init__(self, message: str = "closed", *, reason: str = "closed") -> None:
        super().__init__(message, reason=reason)


class QueueTimeout(QueueError, TimeoutError):
    """The queue had nothing to offer in time."""

    def __init__(self, message: str = "timed out", *, reason: str = "timed_out") -> None:
        super().__init__(message, reason=reason)


class ItemTooLong(QueueError, ValueError):
    """More bytes than an item, or a result, has room for. Nothing was changed."""

    def __init__(self, message: str = "too long", *, reason: str = "too_long", found: int = 0, most: int = 0) -> None:
        super().__init__(message, reason=reason)
        self.found = found
        #: How many there is room for.
        self.most = most


class LimitUnavailable(LimitError):
    """The limits could not be asked: a stopped process holds their lock, or their memory is damaged."""

    #: Service Unavailable.
    status_code = 503


class LimitSetRemoved(LimitError):
    """Somebody removed the set: open it again."""


class NotShared(LimitError, RuntimeError):
    """It belongs to the process that forked this one."""


class BadLimit(LimitError, ValueError):
    """A limit, a name or an option that cannot be."""


class SegmentError(LimitError, OSError):
    """A set that cannot be created, or attached to."""


class SegmentNotFound(SegmentError, FileNotFoundError):
    """There is no set of that name."""


class LimitsDiffer(SegmentError):
    """The set exists and was declared otherwise."""
