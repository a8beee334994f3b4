"""`@limits.limit(...)`: functions that acquire before they run."""

from __future__ import annotations

import functools
import inspect


def limited(limits, requested, timeout, amounts):
    """Returns a decorator. The requested amounts count as used; if the function raises, they are refunded."""
    if callable(requested):  # @limits.limit without parentheses
        return limited(limits, None, timeout, amounts)(requested)
    if requested is not None and amounts:
        raise TypeError("amounts given twice: pass them in a dict or as keywords")
    asked = dict(requested) if requested is not None else dict(amounts)
    wanted = asked or None

    def decorate(function):
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def acquire_and_await(*args, **kwargs):
                async with limits.async_acquire(wanted, timeout) as held:
                    result = await function(*args, **kwargs)
                    held.use_all()
                    return result

            return acquire_and_await

        @functools.wraps(function)
        def acquire_and_call(*args, **kwargs):
            with limits.acquire(wanted, timeout) as held:
                result = function(*args, **kwargs)
                held.use_all()
                return result

        return acquire_and_call

    return decorate
