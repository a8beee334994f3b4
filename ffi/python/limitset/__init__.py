"""One budget over all processes.

Rates, calls and resources are acquired together, all or none, by every process that opens the same name. There is no
daemon and no server; a process may be killed at any time, and the others go on.

    from limitset import CallLimit, LimitSet, RateLimit, ResourceLimit

    limits = LimitSet(
        [
            CallLimit(window="minute", capacity=500),
            RateLimit("tokens", window="minute", capacity=200_000),
            ResourceLimit("connections", capacity=8),
        ],
        name="openai",                                       # every process that opens "openai" shares it
    )

    with limits.acquire({"tokens": 1_500}) as held:          # waits its turn; a call and a connection come along
        held.update(usage={"tokens": 900})                   # 600 back

    held = limits.try_acquire({"tokens": 1_500})             # never waits, never raises on denial
    if not held:
        print(held.denial, held.retry_after)

    async with limits.async_acquire({"tokens": 1_500}, timeout=10) as held:
        held.settle("tokens", 1_700)                         # more than requested: debt

    limits.try_charge({"tokens": 100})                       # charges and holds nothing, or raises LimitDenied
    limits.charge({"tokens": 100}, timeout=10)               # waits its turn

Contents:

    LimitSet, LimitPool                      limits that are acquired together; several sets behind a balancer
    RateLimit, CallLimit, ResourceLimit      the kinds of limits; Algorithm says how a rate counts
    Acquisition                              a granted request: report its use, release it, cancel it
    Cooldown                                 how a set pauses after "too many requests", and resumes
    WorkQueue, WorkItem, Finished            work that goes to another worker if its worker dies; QueueOptions
    LimitDenied, LimitTimeout, LimitError    errors; the first two have the status of every limit
    QueueError                               errors of a work queue
"""

from limitset._errors import (
    AboveCapacity,
    BadLimit,
    BadRequest,
    Holder,
    ItemTooLong,
    LimitDenied,
    LimitError,
    LimitSetRemoved,
    LimitsDiffer,
    LimitStatus,
    LimitTimeout,
    LimitUnavailable,
    NoQueue,
    NotShared,
    QueueClosed,
    QueueEmpty,
    QueueError,
    QueueFull,
    QueueTimeout,
    SegmentError,
    SegmentNotFound,
    Unreported,
    UsageError,
    rate_limit_headers,
)
from limitset._http import Pause
from limitset._limits import (
    Algorithm,
    CallLimit,
    Cooldown,
    Limit,
    LoadBalancing,
    QueueOptions,
    RateLimit,
    ResourceLimit,
)
from limitset._limitset import Acquisition, Finished, LimitPool, LimitSet, WorkItem, WorkQueue, remove

__all__ = [
    "AboveCapacity",
    "Acquisition",
    "Algorithm",
    "BadLimit",
    "BadRequest",
    "CallLimit",
    "Cooldown",
    "Finished",
    "Holder",
    "ItemTooLong",
    "Limit",
    "LimitDenied",
    "LimitError",
    "LimitPool",
    "LimitSet",
    "LimitSetRemoved",
    "LimitStatus",
    "LimitTimeout",
    "LimitUnavailable",
    "LimitsDiffer",
    "LoadBalancing",
    "NoQueue",
    "NotShared",
    "Pause",
    "QueueClosed",
    "QueueEmpty",
    "QueueError",
    "QueueFull",
    "QueueOptions",
    "QueueTimeout",
    "RateLimit",
    "ResourceLimit",
    "SegmentError",
    "SegmentNotFound",
    "Unreported",
    "UsageError",
    "WorkItem",
    "WorkQueue",
    "rate_limit_headers",
    "remove",
]

# Public names have this module in messages, in help and in pickles.
for _name in __all__:
    _it = globals()[_name]
    if getattr(_it, "__module__", "").startswith("limitset._"):
        _it.__module__ = "limitset"
del _name, _it
