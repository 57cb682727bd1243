"""What a report says about receipts: how many there are, and which of them were checked and verified."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from eventd.audit.coverage.receipt_links import receipt_counts
from eventd.audit.receipts.receipt_checks import ANSWER, COPY, ReceiptCount
from eventd.audit.receipts.receipt_terms import ReceiptTerms
from eventd.audit.report.findings import Discrepancy, DiscrepancyKey, Kind
from eventd.audit.report.report import ReceiptCheck, Receipts
from eventd.audit.segments.ledger_summaries import CALLBACK, LedgerSummary
from eventd.audit.segments.plan import NodeEpoch
from eventd.text.plural import counted
from federation.keys import Algorithm

Summaries = Mapping[NodeEpoch, Sequence[LedgerSummary]]

_NOTES: Final = {
    Algorithm.ED25519.value: "Anyone with the public key can check it.",
    Algorithm.HMAC_SHA256.value: (
        "Proves to the two nodes that share the key, but not to third parties, that the peer received the batch: "
        "either could have made it."
    ),
    "": "The older protocol has no receipts: the only evidence is the peer's status code.",
    CALLBACK: (
        "The endpoint of a callback signs no receipt: that it answered 2xx, as the sender recorded, is all the proof "
        "there is."
    ),
}
INVALID: Final = "{what} contradicts its digest, its row or its signature"
_UNKNOWN: Final = "An unknown algorithm."


def faults(summaries: Summaries) -> Iterator[Discrepancy]:
    """Yield a discrepancy for each receipt that a segment names as wrong. `unnamed_faults` counts the others."""
    for each in summaries.values():
        yield from (fault.discrepancy for summary in each for fault in summary.receipts.faults)


def unnamed_faults(summaries: Summaries, others: Iterable[Discrepancy] = ()) -> Counter[DiscrepancyKey]:
    """Return how many faulty receipts are only counted and not named, because their segments have too many.

    `others`: discrepancies of receipts that `faults` does not name. It is not known which receipts were only counted,
    so for each link, as many of them as `others` names are taken to be the same ones.
    """
    found: Counter[DiscrepancyKey] = Counter()
    for results in (summary.receipts for each in summaries.values() for summary in each):
        detail = INVALID.format(what=COPY if results.of_copies else ANSWER)
        for count in results.counts:
            found[DiscrepancyKey(Kind.FORGED, count.group, count.sender, count.peer, detail)] += count.invalid
        for fault in results.faults:
            found[DiscrepancyKey(Kind.FORGED, fault.group, fault.sender, fault.peer, detail)] -= 1
    same = Counter((one.group, one.source, one.peer) for one in others)
    for key in sorted(+found):
        link = (key.group, key.source, key.peer)
        known = min(found[key], same[link])
        found[key] -= known
        same[link] -= known
    return +found


def without_repeats(found: Iterable[Discrepancy], forged: Iterable[Discrepancy]) -> Iterator[Discrepancy]:
    """Yield the discrepancies of batches, except of batches that `forged` names already: each fault becomes one
    finding."""
    known = {(one.group, one.source, one.peer, one.id) for one in forged}
    return (one for one in found if (one.group, one.source, one.peer, one.id) not in known)


def make_receipts(summaries: Summaries) -> list[Receipts]:
    """Return the receipts by the algorithm of their signature, and whether they prove deliveries to third parties.

    They do if anyone can verify the signatures, and this audit has verified all of them.
    """
    algorithms: Counter[str] = Counter()
    for each in summaries.values():
        for summary in each:
            algorithms.update(summary.algorithms)
    received = [*receipt_counts(summaries, of_copies=False)]
    counts = {name: _sum(one for one in received if one.algorithm == name) for name in algorithms}
    return [
        Receipts(
            algorithm=name,
            count=count,
            checked=counts[name].checked,
            verified=counts[name].verified,
            invalid=counts[name].invalid,
            unverifiable=_unverifiable(counts[name]),
            proves_to_others=name == Algorithm.ED25519 and counts[name].verified == count,
            note=_NOTES.get(name, _UNKNOWN),
        )
        for name, count in sorted(algorithms.items(), reverse=True)
    ]


def make_check(summaries: Summaries, terms: ReceiptTerms) -> ReceiptCheck:
    """Return how many of all receipts, and of the copies that peers keep, the audit has checked, and with which
    result."""
    received, copies = (_sum(receipt_counts(summaries, of_copies=which)) for which in (False, True))
    shared = sum(
        one.verified for one in receipt_counts(summaries, of_copies=False) if one.algorithm != Algorithm.ED25519
    )
    return ReceiptCheck(
        percent=terms.percent,
        keys=terms.names,
        count=received.count,
        checked=received.checked,
        verified=received.verified,
        shared=shared,
        invalid=received.invalid,
        unverifiable=_unverifiable(received),
        copies=copies.count,
        copies_checked=copies.checked,
        copies_invalid=copies.invalid,
        statement=_statement(received, shared, terms),
    )


def _statement(found: ReceiptCount, shared: int, terms: ReceiptTerms) -> str:
    if not found.count:
        return ""
    if not found.checked:
        return "Receipts not verified: none was checked."
    if not terms.keys:
        return "Receipts not verified: no keys were given."
    others = {
        "not checked": found.count - found.checked,
        "signed with keys that were not given": _unverifiable(found),
        "invalid": found.invalid,
    }
    words = ", ".join(f"{number:,} {words}" for words, number in others.items() if number)
    whose = f", {shared:,} of them with a shared secret: the sender could have written these, too" if shared else ""
    return f"{found.verified:,} of {counted(found.count, 'receipt')} verified{whose}{f'; {words}' if words else ''}."


def _unverifiable(found: ReceiptCount) -> int:
    return found.checked - found.verified - found.invalid


def _sum(counts: Iterable[ReceiptCount]) -> ReceiptCount:
    total = ReceiptCount("", "", "", "")
    for one in counts:
        total.count += one.count
        total.checked += one.checked
        total.verified += one.verified
        total.invalid += one.invalid
    return total
