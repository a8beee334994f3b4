"""Waiting in an event loop: one descriptor per loop for any number of waiters, and no thread for each."""

from __future__ import annotations

import asyncio
import os
import weakref
from types import TracebackType
from typing import Any, Generator, Optional

from limitset._limitset import Acquisition, Bell, Pending, WorkItem, WorkQueue


class _LoopBell:
    """The bell of a loop: rings when a waiter has to be polled, and finds the future of the waiter."""

    __slots__ = ("bell", "futures", "last", "pid")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.bell = Bell()
        self.futures: dict[int, asyncio.Future[None]] = {}
        self.last = 0
        self.pid = os.getpid()
        loop.add_reader(self.bell.fileno(), self.rung)

    def rung(self) -> None:
        for token in self.bell.take():
            future = self.futures.pop(token, None)
            if future is not None and not future.done():
                future.set_result(None)


_bells: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopBell] = weakref.WeakKeyDictionary()


def _bell_of(loop: asyncio.AbstractEventLoop) -> _LoopBell:
    bell = _bells.get(loop)
    # The parent's bell must not be used in a child: it would take the parent's wake-ups.
    if bell is None or bell.pid != os.getpid():
        bell = _bells[loop] = _LoopBell(loop)
    return bell


async def wait(pending: Pending) -> Any:
    """Waits for the answer. If it is cancelled, it leaves the wait queue and returns a grant that came meanwhile."""
    answer = pending.poll(None, 0)
    if answer is not None:
        return answer[0]
    loop = asyncio.get_running_loop()
    ours = _bell_of(loop)
    ours.last += 1
    token = ours.last
    try:
        while True:
            future = ours.futures[token] = loop.create_future()
            answer = pending.poll(ours.bell, token)
            if answer is not None:
                return answer[0]
            await future
    finally:
        ours.futures.pop(token, None)
        pending.close()


class AsyncAcquire:
    """A pending acquisition: await it, or use it in `async with`. The request is made only then."""

    __slots__ = ("_held", "_pending")

    def __init__(self, pending: Pending) -> None:
        self._pending = pending
        self._held: Optional[Acquisition] = None

    def __await__(self) -> Generator[Any, None, Acquisition]:
        return wait(self._pending).__await__()

    async def __aenter__(self) -> Acquisition:
        held: Acquisition = await wait(self._pending)
        self._held = held
        return held

    async def __aexit__(
        self,
        exc_type: Optional[type[BaseException]],
        exc_value: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        if self._held is not None:
            self._held.__exit__(exc_type, exc_value, traceback)


class AsyncItems:
    """Iterates over the items of a queue until it is closed and all items are finished."""

    __slots__ = ("_queue",)

    def __init__(self, queue: WorkQueue) -> None:
        self._queue = queue

    def __aiter__(self) -> AsyncItems:
        return self

    async def __anext__(self) -> WorkItem:
        item = await self._queue.async_take()
        if item is None:
            raise StopAsyncIteration
        return item
