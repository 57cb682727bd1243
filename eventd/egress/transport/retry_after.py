"""The pause that an answer asks for."""

from __future__ import annotations

from datetime import UTC
from email.utils import parsedate_to_datetime

from eventd.net.exchange import Answer
from eventd.runtime.clock import SECOND
from federation.event import micros


def retry_after(answer: Answer, now: int) -> float | None:
    """Return the seconds in `Retry-After`, in either form (RFC 9110, 10.2.3); None without a valid header.

    `now`: microseconds since 1970.
    """
    text = answer.headers.get("retry-after", "").strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        when = parsedate_to_datetime(text)
    except (ValueError, OverflowError):  # the latter for a year or an offset beyond the system's integers
        return None
    when = when.replace(tzinfo=UTC) if when.tzinfo is None else when  # "-0000": a time in an unspecified zone
    return max(0.0, (micros(when) - now) / SECOND)
