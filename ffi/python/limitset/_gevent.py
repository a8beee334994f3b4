"""Waiting in programs that gevent has patched: other greenlets run meanwhile."""

from __future__ import annotations

import os
import sys
import weakref

from limitset._limitset import Bell


def is_patched() -> bool:
    """Whether gevent has taken over waiting in this program."""
    monkey = sys.modules.get("gevent.monkey")
    return monkey is not None and (monkey.is_module_patched("time") or monkey.is_module_patched("threading"))


class _HubBell:
    """Rung when it may be somebody's turn; knows whose event that is."""

    def __init__(self, hub) -> None:
        self.bell = Bell()
        self.events: dict = {}
        self.last = 0
        self.watcher = hub.loop.io(self.bell.fileno(), 1)

    def add(self, event) -> int:
        self.last += 1
        # Only while somebody waits: else the hub would never find that there is nothing left to do.
        if not self.events:
            self.watcher.start(self.rung)
        self.events[self.last] = event
        return self.last

    def forget(self, token: int) -> None:
        if self.events.pop(token, None) is not None and not self.events:
            self.watcher.stop()

    def rung(self) -> None:
        for token in self.bell.take():
            event = self.events.get(token)
            if event is not None:
                event.set()

    def forked(self) -> None:
        """The bell is the parent's from now on; whoever waits asks anew."""
        self.watcher.stop()
        events, self.events = self.events, {}
        for event in events.values():
            event.set()


_bells: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


def _forked() -> None:
    bells = list(_bells.values())
    _bells.clear()
    for bell in bells:
        bell.forked()


os.register_at_fork(after_in_child=_forked)


def wait(pending):
    """Waits for what is to come. Killed, it leaves the queue and gives back what was granted meanwhile."""
    import gevent  # type: ignore[import-untyped]
    from gevent.event import Event  # type: ignore[import-untyped]

    hub = gevent.get_hub()
    try:
        while True:
            ours = _bells.get(hub)
            if ours is None:
                ours = _bells[hub] = _HubBell(hub)
            event = Event()
            token = ours.add(event)
            try:
                answer = pending.poll(ours.bell, token)
                if answer is not None:
                    return answer[0]
                event.wait()
            finally:
                ours.forget(token)
    finally:
        pending.close()
