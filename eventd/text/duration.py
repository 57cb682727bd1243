"""Durations as people write them: `90s`, `15m`, `1h30m`, `168h`, `7d`. Inside the node they are microseconds.

The grammar is that of Go's `time.ParseDuration`, with days added.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

from eventd.errors import Invalid
from eventd.text.quoting import quoted

MICROSECOND = 1
MILLISECOND = 1_000
SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR

LONGEST = (2**63 - 1) // 1000
"""The longest duration in microseconds: 2^63 nanoseconds, about 292 years. Programs in Go have the same limit."""

_NUMBER = r"[0-9]+\.?[0-9]*|\.[0-9]+"
_UNIT = r"ns|us|µs|μs|ms|s|m|h|d"
PATTERN = rf"[-+]?(?:0|(?:(?:{_NUMBER})(?:{_UNIT}))+)"

_UNITS = {
    "ns": Fraction(1, 1000),
    "us": Fraction(MICROSECOND),
    "µs": Fraction(MICROSECOND),
    "μs": Fraction(MICROSECOND),
    "ms": Fraction(MILLISECOND),
    "s": Fraction(SECOND),
    "m": Fraction(MINUTE),
    "h": Fraction(HOUR),
    "d": Fraction(DAY),
}
_WHOLE = re.compile(PATTERN)
_PART = re.compile(rf"({_NUMBER})({_UNIT})")
_LONGEST_TEXT = 64


class BadDuration(Invalid):
    """The text is not a duration: badly written, shorter than a microsecond, or too long."""

    code = "bad_duration"


@lru_cache(maxsize=512)  # resources are read with each question about them, and most have the same few durations
def parse_duration(text: str) -> int:
    """Parse a duration to whole microseconds; what is finer is cut off. It may be negative or zero.

    Raises BadDuration, also for one shorter than a microsecond (but not zero) or longer than 292 years.
    """
    if len(text) > _LONGEST_TEXT or not _WHOLE.fullmatch(text):
        raise BadDuration(f"{quoted(text)} is not a duration; write 30s, 5m or 168h", hint=_hint(text))
    exact = sum((Fraction(number) * _UNITS[unit] for number, unit in _PART.findall(text)), Fraction(0))
    if exact and exact < 1:
        raise BadDuration(f"{quoted(text)} is shorter than a microsecond", hint="the shortest is 1us")
    if exact > LONGEST:
        raise BadDuration(f"{quoted(text)} is longer than 292 years")
    return -int(exact) if text.startswith("-") else int(exact)


def _hint(text: str) -> str:
    stripped = text.strip()
    if len(stripped) <= 20 and _WHOLE.fullmatch(f"{stripped}s") and not stripped[-1:].isalpha():
        return f"a unit is missing: {stripped}s?"
    if weeks := re.fullmatch(r"([0-9]{1,5})\s*(?:w|weeks?)", stripped):
        return f"weeks are not a unit; write {int(weeks[1]) * 7}d"
    return "units are ns, us, ms, s, m, h and d, without blanks"


def format_duration(microseconds: int) -> str:
    """Format microseconds as Go does: `5m0s`, `1h30m0s`, `200ms`, `1.5s`, `0s`."""
    if microseconds == 0:
        return "0s"
    sign, rest = ("-", -microseconds) if microseconds < 0 else ("", microseconds)
    if rest < MILLISECOND:
        return f"{sign}{rest}µs"
    if rest < SECOND:
        return f"{sign}{_decimal(rest, MILLISECOND)}ms"
    hours, rest = divmod(rest, HOUR)
    minutes, rest = divmod(rest, MINUTE)
    text = f"{hours}h{minutes}m" if hours else f"{minutes}m" if minutes else ""
    return f"{sign}{text}{_decimal(rest, SECOND)}s"


def brief_duration(microseconds: int) -> str:
    """Format microseconds in the largest unit from `d` to `ms` that leaves no remainder: `7d`, `90m`, `500ms`.

    0, and a duration with a fraction of a millisecond, are formatted by `format_duration`.
    """
    for unit, name in ((DAY, "d"), (HOUR, "h"), (MINUTE, "m"), (SECOND, "s"), (MILLISECOND, "ms")):
        if microseconds and microseconds % unit == 0:
            return f"{microseconds // unit}{name}"
    return format_duration(microseconds)


def _decimal(value: int, unit: int) -> str:
    whole, fraction = divmod(value, unit)
    if not fraction:
        return str(whole)
    return f"{whole}.{str(fraction).rjust(len(str(unit)) - 1, '0').rstrip('0')}"
