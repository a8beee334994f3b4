"""Waiting in an event loop: one descriptor per loop, however many wait, and no thread of their own."""

from __future__ import annotations

import asyncio
import os
import weakref
from types import TracebackType
from typing import Any, Generator, Optional

from limitset._limitset import Acquisition, Bell, Pending, WorkItem, WorkQueue


class _LoopBell:
    """Rung when it may be somebody's turn; knows whose future that is."""

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
    # One of the parent's would take the parent's wakes away from it.
    if bell is None or bell.pid != os.getpid():
        bell = _bells[loop] = _LoopBell(loop)
    return bell


async def wait(pending: Pending) -> Any:
    """Waits for what is to come. Cancelled, it leaves the queue and gives back what was granted meanwhile."""
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
    """An acquisition to come: await it, or use it in `async with`. Nothing is asked for before that."""

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
    """The items of a queue, one after the other, until it is closed and all is finished."""

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
