"""Two sections of the page: by pair, the outcomes of deliveries, and the attempts and objectives."""

from __future__ import annotations

from collections import Counter
from typing import Any

from eventd.audit.report.figures import moment, span
from eventd.audit.report.pair_status import findings_by_pair, pair_name, status_of, worst_first
from eventd.audit.report.report import Pair, Report

_WORDS = {"good": "delivered", "open": "pending", "none": "unproven"}
_COUNTS = {
    "claimed": "Claimed",
    "missing": "Missing",
    "disputed": "Disputed",
    "unproven": "Unproven",
    "duplicates": "Twice",
    "pending": "Pending",
    "expired": "Expired",
    "dead_lettered": "Refused",
    "in_path": "In path",
}
"""Columns that are shown only if any pair has a count in them."""


def balance(report: Report) -> dict[str, Any] | None:
    """Return the template's data for the section of deliveries by pair; None without pairs."""
    if not report.pairs:
        return None
    found = findings_by_pair(report.findings)
    counts = [field for field in _COUNTS if any(getattr(pair, field) for pair in report.pairs)]
    columns = [("From → to", ""), ("State", ""), ("Due", "n"), ("Delivered", "n"), ("Share", "n")]
    rows = []
    for pair in worst_first(report):
        state, _, wrong = status_of(pair, found[pair_name(pair)])
        counted = [getattr(pair, field) for field in counts]
        words = _WORDS.get(state, wrong)
        rows.append({"pair": pair, "state": state, "words": words, "counts": counted, "proof": _proof(pair)})
    return {
        "several": len({pair.group for pair in report.pairs}) > 1,
        "absent": [name.lower() for field, name in _COUNTS.items() if field not in counts],
        "columns": [*columns, *((_COUNTS[field], "n") for field in counts), ("Evidence", "")],
        "rows": rows,
    }


def _proof(pair: Pair) -> str:
    """Return the evidence of a pair's deliveries in a few words: with an end, if it is the peer's ledger."""
    if pair.proof == "books":
        return f"ledger until {moment(pair.proven_until)}" if pair.proven_until else "ledger"
    return pair.proof or "nothing"


def objectives(report: Report) -> dict[str, Any] | None:
    """Return the template's data for the section of attempts and objectives; None without pairs."""
    if not report.pairs:
        return None
    order = {"missed": 0, "unproven": 1, "met": 2}
    pairs = sorted(worst_first(report), key=lambda pair: (order[pair.slo.verdict], -pair.slo.late))
    verdicts = Counter(pair.slo.verdict for pair in pairs)
    return {
        "several": len({pair.group for pair in report.pairs}) > 1,
        "bounds": bounds_of(report),
        "pairs": pairs,
        "met": verdicts["met"],
        "missed": verdicts["missed"],
        "unproven": verdicts["unproven"],
    }


def bounds_of(report: Report) -> list[str]:
    """Return a text per group with the bounds of its objective; the group '' stands for all groups without one."""
    named = sorted(report.settings.slo.items(), key=lambda item: (not item[0], item[0]))
    others = "every other group" if len(named) > 1 else "every group"
    return [
        f"{f'group {group}' if group else others}: "
        + (", ".join(f"{name} {span(seconds)}" for name, seconds in bounds.items()) or "none")
        for group, bounds in named
    ]
