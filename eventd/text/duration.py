"""Durations as people write them, in Go's syntax: `5m`, `1.5h`, `200ms`. Inside the node they are microseconds."""

from __future__ import annotations

import re
from fractions import Fraction

from eventd.errors import Invalid
from eventd.text.quoting import quoted

MICROSECOND = 1
MILLISECOND = 1_000
SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE

LONGEST = (2**63 - 1) // 1000
"""What fits 64 bits of nanoseconds, about 292 years: other programs that read the same text stop there too."""

PATTERN = r"[-+]?(?:0|(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:ns|us|µs|μs|ms|s|m|h))+)"

_UNITS = {
    "ns": Fraction(1, 1000),
    "us": Fraction(MICROSECOND),
    "µs": Fraction(MICROSECOND),
    "μs": Fraction(MICROSECOND),
    "ms": Fraction(MILLISECOND),
    "s": Fraction(SECOND),
    "m": Fraction(MINUTE),
    "h": Fraction(HOUR),
}
_WHOLE = re.compile(PATTERN)
_PART = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")
_LONGEST_TEXT = 64


class BadDuration(Invalid):
    """The text is not a duration. The message is a clause that reads on after a field's name."""

    code = "bad_duration"


def parse_duration(text: str) -> int:
    """Microseconds; negative and zero are allowed. Raises BadDuration."""
    if len(text) > _LONGEST_TEXT or not _WHOLE.fullmatch(text):
        raise BadDuration(f"{quoted(text)} is not a duration; write 30s, 5m or 168h", hint=_hint(text))
    exact = sum((Fraction(number) * _UNITS[unit] for number, unit in _PART.findall(text)), Fraction(0))
    if exact and exact < 1:
        raise BadDuration(f"{quoted(text)} is finer than a microsecond", hint="the shortest duration is 1us")
    if exact > LONGEST:
        raise BadDuration(f"{quoted(text)} is longer than 292 years")
    return -int(exact) if text.startswith("-") else int(exact)


def _hint(text: str) -> str:
    stripped = text.strip()
    if re.fullmatch(r"[-+]?[0-9.]{1,20}", stripped):
        return f"a unit is missing: {stripped}s?"
    if days := re.fullmatch(r"([0-9]{1,6})\s*(?:d|days?)", stripped):
        return f"there is no unit for days: {int(days[1]) * 24}h"
    if weeks := re.fullmatch(r"([0-9]{1,5})\s*(?:w|weeks?)", stripped):
        return f"there is no unit for weeks: {int(weeks[1]) * 168}h"
    return "units are ns, us, ms, s, m and h, without blanks"


def format_duration(microseconds: int) -> str:
    """The one canonical text of a duration: `5m0s`, `1h30m0s`, `200ms`, `1.5s`, `0s`."""
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


def _decimal(value: int, unit: int) -> str:
    whole, fraction = divmod(value, unit)
    if not fraction:
        return str(whole)
    return f"{whole}.{str(fraction).rjust(len(str(unit)) - 1, '0').rstrip('0')}"
