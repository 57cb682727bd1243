"""What the figures rest on: receipts and what they prove, the keys that were used, and what was turned away."""

from __future__ import annotations

from collections import Counter

from eventd.audit.report.figures import counted, period
from eventd.audit.report.html.markup import Child, Markup, element, join
from eventd.audit.report.html.tables import Column, identifier, number, paragraph, section, sign, table, wide
from eventd.audit.report.report import Receipts, Report
from eventd.audit.report.standing import PROOFS

MOST_ROWS = 150
"""Rows of each table."""


def evidence(report: Report) -> Markup | None:
    """The section of receipts, keys and refusals; None where there is none of them."""
    if not (report.pairs or report.receipts or report.keys or report.refusals):
        return None
    return section("evidence", "What it rests on", _proofs(report), _receipts(report), _keys(report), _refusals(report))


def _proofs(report: Report) -> Markup | None:
    proofs = Counter(pair.proof for pair in report.pairs if pair.proof in PROOFS)
    if not proofs:
        return None
    parts = [f"{counted(proofs[name], 'pair')} on {words}" for name, words in PROOFS.items() if proofs[name]]
    return paragraph("What was delivered rests, for ", ", for ".join(parts), ".")


def _receipts(report: Report) -> Child:
    if not report.receipts:
        return join(element("h3", "Receipts"), paragraph("No receipt was found."))
    columns = (Column("Signed with"), number("Receipts"), Column("Proves it to others"), wide("What it proves"))
    rows = [
        (one.algorithm or "not signed", f"{one.count:,}", _proves(one), one.note)
        for one in sorted(report.receipts, key=lambda one: -one.count)
    ]
    return join(element("h3", "Receipts"), table("Receipts by the algorithm of their signature", columns, rows))


def _proves(receipts: Receipts) -> Markup:
    return sign("good", "yes") if receipts.proves_to_others else sign("none", "no")


def _keys(report: Report) -> Child:
    if not report.keys:
        return None
    columns = (
        Column("Node"),
        Column("Group"),
        wide("Key"),
        Column("Protocol"),
        number("Requests"),
        Column("First and last use"),
    )
    rows = [
        (
            one.node,
            one.group,
            identifier(one.key_id or "–"),
            one.protocol,
            f"{one.requests:,}",
            period(one.first, one.last),
        )
        for one in report.keys
    ]
    return join(element("h3", "Keys"), table("Which key signed how many requests", columns, rows, most=MOST_ROWS))


def _refusals(report: Report) -> Child:
    heading = element("h3", "Requests turned away")
    if not report.refusals:
        return join(heading, paragraph(sign("good", "None."), " No node turned a request away."))
    reasons: Counter[str] = Counter()
    for one in report.refusals:
        reasons[one.reason] += one.count
    summed = ", ".join(f"{reason} {count:,}" for reason, count in reasons.most_common(8))
    columns = (
        Column("Node"),
        Column("Reason"),
        number("Requests"),
        Column("Said to come from"),
        Column("Group"),
        Column("First and last"),
    )
    rows = [
        (
            one.node,
            one.reason,
            f"{one.count:,}",
            "nobody known" if one.peer in ("", "?") else one.peer,
            one.group,
            period(one.first, one.last),
        )
        for one in sorted(report.refusals, key=lambda one: -one.count)
    ]
    told = table("Requests turned away, by node and reason", columns, rows, most=MOST_ROWS)
    return join(heading, paragraph(f"By reason: {summed}."), told)
