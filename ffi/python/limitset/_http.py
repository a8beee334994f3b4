"""Retry-After, and pauses."""

from __future__ import annotations

import datetime
import email.utils
from typing import NamedTuple, Optional


class Pause(NamedTuple):
    """A pause of a set, at the time of the report or call that returned it."""

    #: How long the pause lasts from now, in seconds; None if it is over.
    remaining: Optional[float]
    #: The number of the pause: how many pauses there have been.
    generation: int
    #: Whether the report began no pause, because its request was granted before the present pause.
    absorbed: bool


def retry_after(text: str) -> Optional[float]:
    """Returns the seconds of a Retry-After field: a number or a date. None if it is neither."""
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
