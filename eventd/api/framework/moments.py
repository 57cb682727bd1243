"""Times and places in the log, as they are written in requests and answers."""

from __future__ import annotations

from dataclasses import dataclass

from eventd.errors import Invalid
from eventd.log.core.topic_row import TopicRow
from eventd.log.core.values import Head
from eventd.text.duration import BadDuration, parse_duration
from federation.errors import BadEvent
from federation.event import from_micros, micros
from federation.lenient import parse_time


def read_moment(name: str, text: str, now: int) -> int | None:
    """Microseconds of an RFC 3339 time, or of a duration back from `now`; None for a blank text. Raises Invalid."""
    if not text:
        return None
    try:
        return now - abs(parse_duration(text))
    except BadDuration:
        pass
    try:
        return micros(parse_time(text))
    except BadEvent:
        hint = "write a time such as 2026-05-30T10:13:20Z, or how long ago, such as 15m"
        raise Invalid(f"{name}: {text!r} is no time", hint=hint) from None


def read_span(
    since: str, until: str, now: int, *, names: tuple[str, str] = ("since", "until")
) -> tuple[int | None, int | None]:
    """Both ends of a span of time, each as `read_moment` reads it. Raises Invalid when it ends before it begins.

    `names` are what whoever asks calls them.
    """
    first, last = read_moment(names[0], since, now), read_moment(names[1], until, now)
    if first is not None and last is not None and last < first:
        raise Invalid(f"{names[1]} ({until}) lies before {names[0]} ({since}): nothing can be in between")
    return first, last


def show_time(time: int | None) -> str | None:
    """RFC 3339 in UTC; None for a time that has not come."""
    return None if time is None else from_micros(time).isoformat().replace("+00:00", "Z")


def show_seconds(duration: int) -> float:
    """Microseconds as seconds, to the millisecond."""
    return round(duration / 1e6, 3)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a reader goes on. `gap` says what it cannot see: {"reason", "message"}."""

    position: int
    gap: dict[str, str] | None = None


def write_token(head: Head, position: int) -> str:
    """A place in the log for the outside: it names the history it belongs to."""
    return f"{head.epoch}:{position}"


def read_token(text: str, head: Head, topic: TopicRow) -> Place:
    """The place a token names. One of another history begins at the start, and says so. Raises Invalid."""
    if not text:
        return Place(0)
    epoch, _, number = text.partition(":")
    if not (epoch and number.isascii() and number.isdigit() and len(number) <= 18):
        raise Invalid(f"{text[:60]!r} is not a token of this list", hint="take next or upto of an answer")
    if epoch != head.epoch or int(number) > head.last:
        return Place(0, {"reason": "another_history", "message": "the token is of another history of this log"})
    if int(number) < topic.evicted_position:
        message = f"retention has removed records after it, up to number {topic.evicted_seq} of the group"
        return Place(int(number), {"reason": "evicted", "message": message})
    return Place(int(number))
