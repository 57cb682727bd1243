"""The times that the node gives to events that arrive without a time. Pure.

Receivers keep, of events of one URL with equal times, only the first, and drop older ones. So each time that the node
gives is later than all times that it gave before for the same topic and URL, also within one millisecond and when the
clock was set back. The memory for this is bounded: no new time is before `base`, so only URLs whose last time is
`base` or later are remembered. When these are more than `REMEMBERED`, `base` moves beyond the last times of all of
them, and they are forgotten.
"""

from __future__ import annotations

import hashlib
from typing import Final, NamedTuple

import msgspec

REMEMBERED: Final = 64
"""Maximum number of URLs of a topic that are remembered."""
_MARK: Final = 8
"""Number of bytes of a URL's digest by which the URL is remembered. Two URLs with equal digests get times as if they
were one URL, which does no harm."""

_times = msgspec.json.Decoder(dict[str, int])


class EventTime(NamedTuple):
    """A time `t` in milliseconds since 1970, and what to remember of it."""

    t: int
    base: int
    recent: str


def give_time(base: int, recent: str, url: str, now: int) -> EventTime:
    """Return the time for the next event of a URL, later than its earlier ones, as far as `base` and `recent` of its
    topic show.

    `now` in milliseconds.
    """
    base = max(base, now)
    times = {mark: t for mark, t in _times.decode(recent or "{}").items() if t >= base}
    mark = hashlib.blake2b(url.encode(), digest_size=_MARK).hexdigest()
    t = times[mark] + 1 if mark in times else base
    times[mark] = t
    if len(times) > REMEMBERED:
        base, times = max(times.values()) + 1, {}
    return EventTime(t, base, msgspec.json.encode(times).decode())
