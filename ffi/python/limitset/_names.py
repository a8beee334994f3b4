"""Generated names of sets, and sets that were pickled."""

from __future__ import annotations

import collections
import os
import secrets

#: Sets from pickles, the most recent last: successive tasks bring the same set.
_MOST_KEPT = 16
_kept: collections.OrderedDict = collections.OrderedDict()


def new_name() -> str:
    """Returns a generated name. `limitset gc` knows generated names by their prefix."""
    return f"auto-{os.getpid()}-{secrets.token_hex(8)}"


def remove_at_exit(name: str) -> None:
    """Removes a set when this process ends (not when a child ends), after multiprocessing has joined its children."""
    # Workers of multiprocessing do not run `atexit`, but they run finalizers.
    from multiprocessing import util

    util.Finalize(None, _remove, args=(name,), exitpriority=-100)


def _remove(name: str) -> None:
    from limitset import _limitset
    from limitset._errors import SegmentError

    try:
        _limitset.remove(name)
    except SegmentError:
        pass  # Another process has removed it.


def reattach(name: str, instance: bytes, options: dict):
    """Unpickles a set: attaches to the same set."""
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
    """Unpickles a pool: the same sets, with a balancer of its own."""
    from limitset._limitset import LimitPool

    return LimitPool(limit_sets, load_balancing=load_balancing, worker_index=worker_index)
