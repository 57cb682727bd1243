"""Checks the shipping of ledger rows to the lake, if the node has one. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from eventd.api.doctor.report import Check, CheckStatus
from eventd.text.plural import counted

_SLOW_REMEDY = (
    "wait a minute; on a machine that is always busy, give the shipping process CPU time with EVENTD_LAKE_NICE=10"
)
_REMEDY = "fix the reported problem; nothing is lost meanwhile unless retention evicts ledger rows"


def check_shipping(tables: Sequence[Mapping[str, Any]], *, expected: bool = False) -> Iterator[Check]:
    """Yield one check for all ledger tables, which a failure affects alike; none without a lake.

    `expected`: the running node ships to a lake, so it has tables as soon as its shipping process has reported.
    """
    if not tables:
        if expected:
            detail = "nothing shipped yet: the shipping process has not reported"
            yield Check("lake shipping", CheckStatus.WARN, "lake-not-begun", detail, _SLOW_REMEDY)
        return
    held = [table for table in tables if table["state"] != "running"]
    if not held:
        waiting = sum(table["waiting"] for table in tables)
        if waiting and not any(table["lastSuccessAt"] for table in tables):
            detail = f"{counted(waiting, 'row')} waiting, and no row has been shipped yet"
            yield Check("lake shipping", CheckStatus.WARN, "lake-not-begun", detail, _SLOW_REMEDY)
            return
        detail = "all rows are in the lake" if not waiting else "rows are being shipped to the lake"
        yield Check("lake shipping", CheckStatus.PASS, "lake-shipping", detail)
        return
    worst = next((table for table in held if table["state"] != "backing-off"), held[0])
    detail = f"{worst['state']} ({worst['reason']}) since {worst['since']}: {worst['lastError']}"
    if worst["state"] == "backing-off":
        yield Check("lake shipping", CheckStatus.WARN, "lake-down", detail, _REMEDY)
    else:
        yield Check("lake shipping", CheckStatus.FAIL, "lake-blocked", detail, _REMEDY)
