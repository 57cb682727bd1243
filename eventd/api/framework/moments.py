"""Times as requests and answers write them."""

from __future__ import annotations

from eventd.errors import Invalid
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
        raise Invalid(f"{name}: {text!r} is not a time", hint=hint) from None


def read_span(
    since: str, until: str, now: int, *, names: tuple[str, str] = ("since", "until")
) -> tuple[int | None, int | None]:
    """Both ends of a span of time, each as `read_moment` reads it. Raises Invalid when it ends before it begins.

    `names`: of the options or fields, for messages.
    """
    first, last = read_moment(names[0], since, now), read_moment(names[1], until, now)
    if first is not None and last is not None and last < first:
        raise Invalid(f"{names[1]} ({until}) lies before {names[0]} ({since})", hint="swap them")
    return first, last


def show_time(time: int | None) -> str | None:
    """RFC 3339 in UTC; None for none."""
    return None if time is None else from_micros(time).isoformat().replace("+00:00", "Z")


def show_seconds(duration: int) -> float:
    """Microseconds as seconds, to the millisecond."""
    return round(duration / 1e6, 3)
