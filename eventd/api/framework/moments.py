"""Times in requests and responses."""

from __future__ import annotations

import re
from typing import Final

from eventd.errors import Invalid
from eventd.text.duration import BadDuration, parse_duration
from eventd.text.quoting import quoted
from federation.errors import BadEvent
from federation.event import from_micros, micros
from federation.lenient import parse_time

_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)


def read_moment(name: str, text: str, now: int) -> int | None:
    """Return a time in microseconds, given in RFC 3339, as a date, or as an age before `now`; None for an empty text.

    A date means its beginning in UTC, and an age is written as 15m. `name`: of the option or field, for the message.
    Raises `Invalid`.
    """
    if not text:
        return None
    try:
        return parse_moment(text, now)
    except Invalid as error:
        raise Invalid(f"{name}: {error.message}", hint=error.hint) from None


def parse_moment(text: str, now: int) -> int:
    """Return a time like `read_moment`. Raises `Invalid`, whose message does not name an option or field."""
    try:
        return now - abs(parse_duration(text))
    except BadDuration:
        pass
    try:
        return micros(parse_time(f"{text}T00:00:00Z" if _DATE.fullmatch(text) else text))
    except BadEvent:
        hint = "write a time such as 2026-05-30T10:13:20Z, a date such as 2026-05-30, or an age such as 15m"
        raise Invalid(f"{quoted(text)} is not a time", hint=hint) from None


def read_span(
    since: str, until: str, now: int, *, names: tuple[str, str] = ("since", "until")
) -> tuple[int | None, int | None]:
    """Return both ends of a span of time, each as `read_moment` does. Raises Invalid if it ends before it begins.

    `names`: of the two options or fields, for messages.
    """
    first, last = read_moment(names[0], since, now), read_moment(names[1], until, now)
    if first is not None and last is not None and last < first:
        raise Invalid(f"{names[1]} ({until}) is before {names[0]} ({since})", hint="swap them")
    return first, last


def show_time(time: int | None) -> str | None:
    """Return a time in microseconds in RFC 3339, UTC; None for None."""
    return None if time is None else from_micros(time).isoformat().replace("+00:00", "Z")


def show_seconds(duration: int) -> float:
    """Return a duration in microseconds as seconds, rounded to the millisecond."""
    return round(duration / 1e6, 3)
