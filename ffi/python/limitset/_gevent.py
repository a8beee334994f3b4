"""Waiting in programs that gevent has patched: other greenlets run during a wait."""

from __future__ import annotations

import os
import sys
import weakref

from limitset._limitset import Bell


def is_patched() -> bool:
    """Returns whether gevent has patched waiting in this program."""
    monkey = sys.modules.get("gevent.monkey")
    return monkey is not None and (monkey.is_module_patched("time") or monkey.is_module_patched("threading"))


class _HubBell:
    """The bell of a hub: rings when a waiter has to be polled, and finds the event of the waiter."""

    def __init__(self, hub) -> None:
        self.bell = Bell()
        self.events: dict = {}
        self.last = 0
        self.watcher = hub.loop.io(self.bell.fileno(), 1)

    def add(self, event) -> int:
        self.last += 1
        # Watch only while there are waiters: an active watcher would keep the hub from ending.
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
        """Gives up the bell in a forked child, because it belongs to the parent; all waiters poll again."""
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
    """Waits for the answer. If its greenlet is killed, it leaves the wait queue and returns a grant."""
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
