"""Exceptions, and the details of a denial.

All exceptions can be pickled, so that worker processes can return them.
"""

from __future__ import annotations

import math
import queue
from typing import Iterable, NamedTuple, Optional


class LimitStatus(NamedTuple):
    """The status of one limit with respect to a request."""

    key: str
    #: The requested amount; 0 if the request left the limit out.
    requested: int
    #: The amount that it would grant now; negative is debt.
    available: int
    #: The most that it ever grants at once.
    most: int
    #: Whether the request fits.
    passed: bool
    #: Seconds until the request fits, if no other request comes first; None if it fits, or if that depends on holders.
    retry_after: Optional[float]
    #: Units per window; permits of a resource limit.
    capacity: int
    #: Length of the window in seconds; None for a resource limit.
    window: Optional[float]


class Holder(NamedTuple):
    """A participant that holds permits which the request waits for."""

    #: The process number; 0 for a dead participant.
    pid: int
    command: str
    is_this_process: bool
    key: str
    amount: int


def _text(key: str) -> str:
    """Returns a key as a string of structured fields: printable ASCII, the rest percent-encoded."""
    plain = "".join(c if " " <= c <= "~" and c != "%" else "".join(f"%{b:02x}" for b in c.encode()) for c in key)
    return '"' + plain.replace("\\", "\\\\").replace('"', '\\"') + '"'


def rate_limit_headers(statuses: Iterable[LimitStatus], retry_after: Optional[float] = None) -> dict[str, str]:
    """Returns the fields `RateLimit`, `RateLimit-Policy` and, if it is known, `Retry-After` of an HTTP response."""
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
    """The base class of all errors of limitset."""


class LimitDenied(LimitError):
    """The limits do not allow the request now. Nothing was charged.

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
        #: "limited", "queued" (other waiters came first), "cooling_down", "queue_full" or "timed_out".
        self.reason = reason
        #: Seconds until the request can succeed, if that is known.
        self.retry_after = retry_after
        #: The status of every limit of the set.
        self.statuses = tuple(statuses)
        #: The number of waiters ahead.
        self.ahead = ahead
        #: The number of entries of the wait queue, if all of them were taken.
        self.waiters = waiters

    @property
    def violations(self) -> tuple[LimitStatus, ...]:
        """The limits that did not allow the request."""
        return tuple(status for status in self.statuses if not status.passed)

    @property
    def bottleneck(self) -> Optional[LimitStatus]:
        """The limit that takes longest: permits of other holders, else the rate with the longest wait."""
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
    """The limits did not allow the request within the timeout. Nothing was charged."""

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
        #: How long the request waited, in seconds.
        self.waited = waited
        #: How long the pause of the set would have lasted, in seconds, if it was paused.
        self.cooling_down = cooling_down
        #: The participants that held the missing permits.
        self.holders = tuple(holders)


class BadRequest(LimitError, ValueError):
    """The request is not valid for this set: an unknown key, a negative amount, a rate that is not named."""


class AboveCapacity(BadRequest):
    """The request exceeds the most that a limit ever grants: waiting cannot help."""

    def __init__(self, message: str = "above capacity", *, key: str = "", requested: int = 0, most: int = 0) -> None:
        super().__init__(message)
        self.key = key
        self.requested = requested
        #: The most that it ever grants at once.
        self.most = most


class UsageError(LimitError, ValueError):
    """The report does not fit the acquisition. Nothing was changed."""

    def __init__(self, message: str = "", *, reason: str = "") -> None:
        super().__init__(message)
        #: "not_requested", "above_requested", "above_charged", "permits", "too_much" or "ended".
        self.reason = reason


class Unreported(LimitError, RuntimeError):
    """The acquisition was released without a report that was due."""

    def __init__(self, message: str = "unreported", *, keys: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.keys = tuple(keys)


class QueueError(LimitError):
    """An operation on a work queue, or on one of its items, failed and changed nothing."""

    def __init__(self, message: str = "", *, reason: str = "") -> None:
        super().__init__(message)
        #: "no_queue", "empty", "full", "closed", "timed_out" or "too_long"; of an item "spent" (finished or returned
        #: before) or "not_held".
        self.reason = reason


class NoQueue(QueueError, AttributeError):
    """The set was opened without a work queue."""

    def __init__(self, message: str = "no queue", *, reason: str = "no_queue") -> None:
        super().__init__(message, reason=reason)


class QueueEmpty(QueueError, queue.Empty):
    """The queue has no item now; there may be one later."""

    def __init__(self, message: str = "empty", *, reason: str = "empty") -> None:
        super().__init__(message, reason=reason)


class QueueFull(QueueError, queue.Full):
    """The queue is full. Nothing was pushed."""

    def __init__(self, message: str = "full", *, reason: str = "full") -> None:
        super().__init__(message, reason=reason)


class QueueClosed(QueueError, ValueError):
    """The queue is closed. Nothing was pushed."""

    def __init__(self, message: str = "closed", *, reason: str = "closed") -> None:
        super().__init__(message, reason=reason)


class QueueTimeout(QueueError, TimeoutError):
    """The timeout of a wait at the queue has expired."""

    def __init__(self, message: str = "timed out", *, reason: str = "timed_out") -> None:
        super().__init__(message, reason=reason)


class ItemTooLong(QueueError, ValueError):
    """The bytes exceed the room of an item or a result. Nothing was changed."""

    def __init__(self, message: str = "too long", *, reason: str = "too_long", found: int = 0, most: int = 0) -> None:
        super().__init__(message, reason=reason)
        self.found = found
        #: The number of bytes that there is room for.
        self.most = most


class LimitUnavailable(LimitError):
    """The limits cannot be asked: a stopped process holds their lock, or their memory is damaged."""

    #: Service Unavailable.
    status_code = 503


class LimitSetRemoved(LimitError):
    """The set was removed: open it again."""


class NotShared(LimitError, RuntimeError):
    """The set or acquisition belongs to the process that forked this one."""


class BadLimit(LimitError, ValueError):
    """A limit, a name or an option is not valid."""


class SegmentError(LimitError, OSError):
    """The set cannot be created, or attached to."""


class SegmentNotFound(SegmentError, FileNotFoundError):
    """No set has this name."""


class LimitsDiffer(SegmentError):
    """The set exists and was declared differently."""
