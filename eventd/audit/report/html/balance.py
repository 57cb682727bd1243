"""The balance of every pair: expected deliveries and their outcomes, attempts, and whether it kept to its objective."""

from __future__ import annotations

from collections import Counter
from typing import Any

from eventd.audit.report.figures import span
from eventd.audit.report.report import Report
from eventd.audit.report.standing import by_trouble, faults, name_of, stand

_WORDS = {"good": "proven", "open": "waiting", "none": "unproven"}
_COUNTS = {
    "missing": "Missing",
    "disputed": "Disputed",
    "unproven": "Not proven",
    "duplicates": "Twice",
    "pending": "Still to come",
    "expired": "Expired",
    "dead_lettered": "Refused",
    "in_path": "In path",
}
"""Columns that are shown where a pair has something in them."""


def balance(report: Report) -> dict[str, Any] | None:
    """The section with the balance of every pair; None where there is none."""
    if not report.pairs:
        return None
    found = faults(report.findings)
    counts = [field for field in _COUNTS if any(getattr(pair, field) for pair in report.pairs)]
    columns = [("From → to", ""), ("State", ""), ("Due", "n"), ("Proven", "n"), ("Share", "n")]
    rows = []
    for pair in by_trouble(report):
        state, _, wrong = stand(pair, found[name_of(pair)])
        counted = [getattr(pair, field) for field in counts]
        rows.append({"pair": pair, "state": state, "words": _WORDS.get(state, wrong), "counts": counted})
    return {
        "several": len({pair.group for pair in report.pairs}) > 1,
        "absent": [name.lower() for field, name in _COUNTS.items() if field not in counts],
        "columns": [*columns, *((_COUNTS[field], "n") for field in counts), ("Rests on", "")],
        "rows": rows,
    }


def objectives(report: Report) -> dict[str, Any] | None:
    """The section with attempts and objectives; None where there is no pair."""
    if not report.pairs:
        return None
    order = {"missed": 0, "unproven": 1, "met": 2}
    pairs = sorted(by_trouble(report), key=lambda pair: (order[pair.slo.verdict], -pair.slo.late))
    verdicts = Counter(pair.slo.verdict for pair in pairs)
    return {
        "several": len({pair.group for pair in report.pairs}) > 1,
        "bounds": _bounds(report),
        "pairs": pairs,
        "met": verdicts["met"],
        "missed": verdicts["missed"],
        "unproven": verdicts["unproven"],
    }


def _bounds(report: Report) -> list[str]:
    """The bounds that were used, by group; the group '' stands for all that have none of their own."""
    named = sorted(report.settings.slo.items(), key=lambda item: (not item[0], item[0]))
    others = "every other group" if len(named) > 1 else "every group"
    return [
        f"{f'group {group}' if group else others}: "
        + (", ".join(f"{name} {span(seconds)}" for name, seconds in bounds.items()) or "none")
        for group, bounds in named
    ]
