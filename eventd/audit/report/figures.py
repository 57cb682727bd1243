"""Formats numbers, durations and times for readers. Shares are always rounded down."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo

from federation.event import FIRST_TIME, LAST_TIME, format_time

MINUTE = 60
HOUR = 60 * MINUTE
DAY = 24 * HOUR
NONE = "–"
"""Shown if there is no figure."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DIGITS = re.compile(r"([0-9]{1,18})")


def whole(value: int | None) -> str:
    """Format an integer: `9,999,997`; None as a dash."""
    return NONE if value is None else f"{value:,}"


def some(value: int) -> str:
    """Format a count that is usually zero: `0` is shown as a dash, so that other counts stand out."""
    return f"{value:,}" if value else NONE


def percent(part: int, total: int, *, exact: bool = False) -> str:
    """Format a share with two decimals, rounded down: 100 % is shown only if nothing is missing.

    `exact` adds decimals until the shortfall shows: `99.9999 %` for 999,999 of 1,000,000. A `total` of 0 gives a dash.
    """
    if total <= 0:
        return NONE
    if part == total:
        return "100 %"
    decimals = _decimals(part, total) if exact else 2
    digits = part * 100 * 10**decimals // total
    return f"{digits // 10**decimals:,}.{digits % 10**decimals:0{decimals}} %"


def _decimals(part: int, total: int) -> int:
    shortfall = total - part
    return next((n for n in range(2, 12) if shortfall * 100 * 10**n >= total), 12)


def span(seconds: float | None) -> str:
    """Format a duration: `850 µs`, `12.3 ms`, `1.24 s`, `2 min 5 s`, `3 h 12 min`, `2 d 4 h`; None as a dash."""
    if seconds is None:
        return NONE
    if seconds < 0:
        return f"−{span(-seconds)}"
    if seconds >= MINUTE - 0.05:
        return _long(round(seconds))
    if seconds >= 0.9995:
        return f"{_three(seconds)} s"
    if seconds >= 0.0009995:
        return f"{_three(seconds * 1e3)} ms"
    return f"{round(seconds * 1e6)} µs" if seconds else "0 s"


def short_span(seconds: float | None) -> str:
    """Format a duration in its largest unit alone, rounded down: `2 min`, `3 h`; below a minute, like `span`."""
    if seconds is None or seconds < MINUTE:
        return span(seconds)
    size, unit = next((size, unit) for size, unit in ((DAY, "d"), (HOUR, "h"), (MINUTE, "min")) if seconds >= size)
    return f"{int(seconds // size):,} {unit}"


def _long(seconds: int) -> str:
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return _pair(days, "d", hours, "h")
    return _pair(hours, "h", minutes, "min") if hours else _pair(minutes, "min", seconds, "s")


def _pair(large: int, unit: str, small: int, finer: str) -> str:
    return f"{large:,} {unit} {small} {finer}" if small else f"{large:,} {unit}"


def _three(value: float) -> str:
    decimals = 2 if value < 9.995 else 1 if value < 99.95 else 0
    text = f"{value:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def size(octets: int) -> str:
    """Format a number of bytes in powers of a thousand: `812 B`, `1.24 MB`."""
    value = float(octets)
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if value < 999.5:
            return f"{_three(value)} {unit}"
        value /= 1000
    return f"{value:,.1f} PB"


def micros(text: str | None) -> int | None:
    """Return an RFC 3339 time as microseconds since 1970; None for None or an invalid time."""
    try:
        time = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return ((time if time.tzinfo else time.replace(tzinfo=UTC)) - _EPOCH) // timedelta(microseconds=1)


def nearest_time(time: int) -> str:
    """Format a time (microseconds since 1970) as RFC 3339; one outside of the years 1 to 9999 as the nearest of them.

    Times of rows are inside, but not always what is computed from them: the end of the last minute, or a time that is
    corrected by a clock.
    """
    return format_time(min(max(time, FIRST_TIME), LAST_TIME))


def moment(text: str | None, zone: tzinfo = UTC) -> str:
    """Format an RFC 3339 time in a time zone, cut to the second: `2026-11-22 04:44:25 UTC`.

    None gives a dash; an invalid time is returned as it is.
    """
    if not text:
        return NONE
    at = local(text, zone)
    return text if at is None else f"{_clock(at)} {at.tzname()}"


def local(text: str | None, zone: tzinfo) -> datetime | None:
    """Return an RFC 3339 time in a time zone; None for None, or for a time that is invalid or out of the calendar."""
    at = micros(text)
    try:
        return None if at is None else (_EPOCH + timedelta(microseconds=at)).astimezone(zone)
    except OverflowError:
        return None


def _clock(at: datetime) -> str:
    return at.replace(tzinfo=None).isoformat(" ")[:19]


def period(first: str | None, last: str | None, zone: tzinfo = UTC) -> str:
    """Format a period: `2026-11-22 04:00:00 to 06:00:00 UTC`.

    The day is not repeated if both ends share it, nor the name of the zone, unless the clocks were changed in between.
    """
    if not first or not last:
        return NONE
    begin, end = local(first, zone), local(last, zone)
    if begin is None or end is None:
        return f"{first} to {last}"
    name = "" if begin.tzname() == end.tzname() else f" {begin.tzname()}"
    until = moment(last, zone)
    return f"{_clock(begin)}{name} to {until[11:] if begin.date() == end.date() else until}"


def natural(name: str) -> tuple[tuple[tuple[int, str], ...], str]:
    """Return a sort key for names: `node-2` comes before `node-10`."""
    return tuple((int(part), "") if part.isdecimal() else (-1, part) for part in _DIGITS.split(name)), name
