"""Sets without a given name, and sets that travel by pickle."""

from __future__ import annotations

import collections
import os
import secrets

#: Sets that came by pickle, the most recent last: a task after the other brings the same one.
_MOST_KEPT = 16
_kept: collections.OrderedDict = collections.OrderedDict()


def new_name() -> str:
    """A name for a set that was given none. `limitset gc` knows these by their beginning."""
    return f"auto-{os.getpid()}-{secrets.token_hex(8)}"


def remove_at_exit(name: str) -> None:
    """Removes a set when this process ends: not its children, and after those that multiprocessing joins."""
    # Workers of multiprocessing end without `atexit`, but not without this.
    from multiprocessing import util

    util.Finalize(None, _remove, args=(name,), exitpriority=-100)


def _remove(name: str) -> None:
    from limitset import _limitset
    from limitset._errors import SegmentError

    try:
        _limitset.remove(name)
    except SegmentError:
        pass  # Somebody else has done it.


def reattach(name: str, instance: bytes, options: dict):
    """What a pickled set becomes in the process that gets it: the same set."""
    from limitset._limitset import LimitSet

    key = (name, instance, tuple(sorted(options.items())))
    found = _kept.pop(key, None)
    if found is None:
        found = LimitSet.attach(name, **options)
    _kept[key] = found
    while len(_kept) > _MOST_KEPT:
        _kept.popitem(last=False)
    return found


def remake_pool(limit_sets, load_balancing: str, worker_index: int):
    """What a pickled pool becomes in the process that gets it: the same sets, and a balancer of its own."""
    from limitset._limitset import LimitPool

    return LimitPool(limit_sets, load_balancing=load_balancing, worker_index=worker_index)
