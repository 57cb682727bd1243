"""How pages write times, durations, sizes and numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime, tzinfo
from typing import Final, Literal, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from markupsafe import Markup, escape

from eventd.text.invisible import printable

Times = Literal["relative", "utc", "local"]
TIMES: Final[tuple[Times, ...]] = ("relative", "utc", "local")
NONE: Final = "–"
_MINUTE, _HOUR, _DAY = 60, 3600, 86_400


class TimeStyle(NamedTuple):
    """How times are written: relative to `now`, in UTC, or in the time `zone` of the browser."""

    times: Times
    zone: tzinfo
    now: datetime


def zone_named(name: str) -> tzinfo:
    """Return the time zone of this name; UTC for an unknown one."""
    try:
        return ZoneInfo(name) if name else UTC
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return UTC


def parse(text: str) -> datetime:
    """Parse a time in an answer of the API. Raises ValueError."""
    return datetime.fromisoformat(text)


def moment(text: str | None, style: TimeStyle) -> Markup | str:
    """Return a time as an element with the full UTC in its title; a dash for None."""
    if not text:
        return NONE
    try:
        at = parse(text)
        at = at if at.tzinfo else at.replace(tzinfo=UTC)  # other programs may leave it out
        full = at.astimezone(UTC)
    except (ValueError, OverflowError):
        return printable(text)
    title = full.replace(tzinfo=None).isoformat(" ", "milliseconds") + " UTC"
    return Markup(f'<time datetime="{escape(text)}" title="{title}">{_shown(at, style)}</time>')


def milliseconds(count: int | None) -> str | None:
    """Return a time in milliseconds since 1970, as /v0 has them, as a text for `moment`; None for None."""
    return None if count is None else datetime.fromtimestamp(count / 1000, UTC).isoformat()


def _shown(at: datetime, style: TimeStyle) -> str:
    if style.times == "relative":
        seconds = (style.now - at).total_seconds()
        return "now" if abs(seconds) < 1 else f"{duration(seconds)} ago" if seconds > 0 else f"in {duration(-seconds)}"
    zone = UTC if style.times == "utc" else style.zone
    try:
        own, today = at.astimezone(zone), style.now.astimezone(zone)
    except OverflowError:  # the first or the last day of the calendar has no time in this zone
        own, today = at.astimezone(UTC), style.now.astimezone(UTC)
    return own.strftime("%H:%M:%S") if own.date() == today.date() else own.isoformat(" ")[: len("2026-01-02 03:04")]


def duration(seconds: float | None) -> str:
    """Return a duration as a whole number of one unit, such as `250 ms`, `100 s`, `90 min` or `4 d`; a dash for None.

    A unit is used up to twice the next larger one.
    """
    if seconds is None:
        return NONE
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    for unit, length, most in (("s", 1, 2 * _MINUTE), ("min", _MINUTE, 2 * _HOUR), ("h", _HOUR, 2 * _DAY)):
        if seconds < most:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds / _DAY:.0f} d"


def whole(number: int | None) -> str:
    """Return a whole number with commas between thousands; a dash for None."""
    return NONE if number is None else f"{number:,}"


def share(part: int, total: int) -> str:
    """Return a part of a total in percent, such as `6.1 %`: 0 and 100 only if it is nothing, or all."""
    if part in (0, total):
        return "0 %" if part == 0 else "100 %"
    return f"{min(max(100 * part / total, 0.1), 99.9):.1f} %"


def size(count: int | None) -> str:
    """Return a number of bytes in its largest fitting unit, such as `1.4 MB`; a dash for None."""
    if count is None:
        return NONE
    value = float(count)
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if value < 1000 or unit == "TB":
            return f"{count:,} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    raise AssertionError


def rate(per_second: float | None) -> str:
    """Return a rate, such as `12/s`, `0.4/s` or `3/min`; a dash for None."""
    if per_second is None:
        return NONE
    if per_second == 0:
        return "0/s"
    if per_second >= 10:
        return f"{per_second:,.0f}/s"
    return f"{per_second:.1f}/s" if per_second >= 0.1 else f"{per_second * 60:.1f}/min"


def lines(text: str) -> Markup:
    """Return a text of several lines, such as what a program wrote, with its line breaks; a dash for none."""
    found = [escape(printable(line)) for line in text.strip().splitlines()]
    return Markup("<br>").join(found) if found else Markup(NONE)


def last_line(text: str) -> str:
    """Return the last line of a text that is not blank, where a program's traceback names the error."""
    return text.strip().rpartition("\n")[2].strip()


class LinkedCommand(NamedTuple):
    """A command in a text: where it begins and ends, and the page that does the same, with the text of its link."""

    begin: int
    end: int
    url: str
    label: str


def prose(text: str, commands: Iterable[LinkedCommand] = ()) -> Markup:
    """Return a sentence of the program as HTML.

    Text in backquotes is shown as text to be typed. Each of the commands is followed by a link to its page.
    """
    shown, at = Markup(""), 0
    for one in commands:
        quoted = text[one.begin - 1 : one.begin] == "`" == text[one.end : one.end + 1]
        shown += _typed(text[at : one.begin - quoted])
        shown += _COMMAND.format(printable(text[one.begin : one.end]), one.url, one.label)
        at = one.end + quoted
    return shown + _typed(text[at:])


_COMMAND: Final = Markup('<code class="command">{}</code> <a href="{}">{}</a>')


def _typed(text: str) -> Markup:
    parts = re.split("`([^`]+)`", printable(text))
    return Markup("").join(_code(part) if at % 2 else escape(part) for at, part in enumerate(parts))


def _code(text: str) -> Markup:
    """Return a text to be typed; a command, which can be copied, has a mark of its own."""
    is_command = text.startswith(("routerctl ", "routerd-eventd "))
    return Markup('<code class="command">{}</code>' if is_command else "<code>{}</code>").format(text)
