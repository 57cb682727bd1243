"""The section on evidence: the proofs of deliveries, receipts, the use of keys, and refused requests."""

from __future__ import annotations

from collections import Counter
from typing import Any

from eventd.audit.report.pair_status import PROOFS, State
from eventd.audit.report.report import ReceiptCheck, Report


def evidence(report: Report) -> dict[str, Any] | None:
    """Return the template's data for the section of evidence; None if it would be empty."""
    if not (report.pairs or report.receipts or report.keys or report.refusals):
        return None
    proofs = Counter(pair.receiver if pair.receiver == "callback" else pair.proof for pair in report.pairs)
    reasons: Counter[str] = Counter()
    for one in report.refusals:
        reasons[one.reason] += one.count
    receipts, claims = (
        sum(getattr(pair, name) for pair in report.pairs) for name in ("receipts_after", "claims_after")
    )
    return {
        "signed": sum(node.signed_at is not None for node in report.nodes),
        "later": receipts + claims,
        "receipts_after": receipts,
        "claims_after": claims,
        "check": _check(report.receipt_check),
        "proofs": [(proofs[name], words) for name, words in PROOFS.items() if proofs[name]],
        "reasons": reasons.most_common(8),
    }


def _check(check: ReceiptCheck) -> State:
    """Return the state of the check of receipts: good only if every receipt was verified."""
    if check.invalid or check.copies_invalid:
        return "bad"
    return "good" if check.count and check.verified == check.count else "none"
