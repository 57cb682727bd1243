"""The times that the node gives to events without one. Pure.

Receivers keep, of events of one URL with equal times, only the first, and drop older ones. So a time that the node
gives is later than every other that it gave for the same topic and URL, also within one millisecond and when the clock
was set back. What that takes is bounded: no later time is before `base`, so only URLs whose last time is not before it
are remembered, and when these are more than `REMEMBERED`, `base` moves behind all of them.
"""

from __future__ import annotations

import hashlib
from typing import Final, NamedTuple

import msgspec

REMEMBERED: Final = 64
"""Maximum number of URLs of a topic that are remembered."""
_MARK: Final = 8
"""Bytes of a URL's digest that stand for it: two URLs with equal ones only get times as if they were one."""

_times = msgspec.json.Decoder(dict[str, int])


class EventTime(NamedTuple):
    """A time `t` in milliseconds since 1970, and what to remember of it."""

    t: int
    base: int
    recent: str


def give_time(base: int, recent: str, url: str, now: int) -> EventTime:
    """Return the time for the next event of a URL, after what is remembered of its topic. `now` in milliseconds."""
    base = max(base, now)
    times = {mark: t for mark, t in _times.decode(recent or "{}").items() if t >= base}
    mark = hashlib.blake2b(url.encode(), digest_size=_MARK).hexdigest()
    t = times[mark] + 1 if mark in times else base
    times[mark] = t
    if len(times) > REMEMBERED:
        base, times = max(times.values()) + 1, {}
    return EventTime(t, base, msgspec.json.encode(times).decode())
