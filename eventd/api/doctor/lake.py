"""Checks the shipping to the lake, where there is one. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from eventd.api.doctor.report import Check, Status

_REMEDY = "fix the reported problem; nothing is lost meanwhile unless retention evicts ledger rows"


def check_shipping(books: Sequence[Mapping[str, Any]]) -> Iterator[Check]:
    """Yield one outcome of shipping as a whole: a failure affects all tables alike."""
    if not books:
        return
    held = [book for book in books if book["state"] != "running"]
    if not held:
        waiting = sum(book["waiting"] for book in books)
        detail = "all rows are in the lake" if not waiting else "rows are being shipped to the lake"
        yield Check("lake shipping", Status.PASS, "lake-shipping", detail)
        return
    worst = next((book for book in held if book["state"] != "backing-off"), held[0])
    detail = f"{worst['state']} ({worst['reason']}) since {worst['since']}: {worst['lastError']}"
    if worst["state"] == "backing-off":
        yield Check("lake shipping", Status.WARN, "lake-down", detail, _REMEDY)
    else:
        yield Check("lake shipping", Status.FAIL, "lake-blocked", detail, _REMEDY)
