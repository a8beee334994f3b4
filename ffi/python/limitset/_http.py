"""What the other side of an HTTP request says about limits."""

from __future__ import annotations

import datetime
import email.utils
from typing import NamedTuple, Optional


class Pause(NamedTuple):
    """A pause of a set, as of the report or the wish that began it or met it."""

    #: How long it lasts from now, in seconds; None if it is over.
    remaining: Optional[float]
    #: Its number: how many pauses there have been.
    generation: int
    #: Whether the report began no pause: it was about a request from before this one.
    absorbed: bool


def retry_after(text: str) -> Optional[float]:
    """Seconds, of the text of a Retry-After field: a number or a date. None if it is neither."""
    try:
        seconds = float(text)
    except ValueError:
        try:
            date = email.utils.parsedate_to_datetime(text)
        except ValueError:
            return None
        if date.tzinfo is None:
            date = date.replace(tzinfo=datetime.timezone.utc)
        seconds = (date - datetime.datetime.now(datetime.timezone.utc)).total_seconds()
    return seconds if 0 <= seconds < 1e9 else (0.0 if seconds < 0 else None)
