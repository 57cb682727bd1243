"""The time zone in which the page and the summary show times. report.json has all times in UTC."""

from __future__ import annotations

import re
from datetime import UTC, tzinfo
from typing import Final
from zoneinfo import ZoneInfo

from eventd.audit.report.figures import moment, period
from eventd.audit.report.report import Report
from eventd.errors import Invalid
from eventd.text.quoting import quoted

_TIME: Final = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"
_SHOWN: Final = re.compile(rf"({_TIME})(?: to ((?:\d{{4}}-\d\d-\d\d )?\d\d:\d\d:\d\d))? UTC")
"""Matches a time in a sentence, as `moment` formats it, and a period, as `period` does."""
_EXACT: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z")
"""Matches a time in a sentence, in RFC 3339, as details of findings have it."""


def read_zone(name: str) -> tzinfo:
    """Return the time zone with this name, such as `Europe/Berlin`. Raises Invalid for an unknown name."""
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # an unknown name, one that is not a path within the data, or a folder
        raise Invalid(
            f"{quoted(name)} is not a time zone of this machine",
            hint="write a name such as Europe/Berlin; the package tzdata has the data of all zones",
        ) from None


def zone_of(report: Report) -> tzinfo:
    """Return the time zone of a report; UTC if this machine does not know it."""
    try:
        return read_zone(report.settings.time_zone)
    except Invalid:
        return UTC


def in_zone(text: str, zone: tzinfo) -> str:
    """Return a sentence with its times, which are in UTC, converted to a time zone."""
    if zone is UTC:
        return text
    shown = _SHOWN.sub(lambda found: _converted(found, zone), text)
    return _EXACT.sub(lambda found: moment(found[0], zone), shown)


def _converted(found: re.Match[str], zone: tzinfo) -> str:
    first, last = found[1], found[2]
    if last is None:
        return moment(f"{first}Z", zone)
    return period(f"{first}Z", f"{last if len(last) > len('00:00:00') else f'{first[:11]}{last}'}Z", zone)
