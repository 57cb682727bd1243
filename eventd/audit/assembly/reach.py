"""Up to when ledgers prove the deliveries of each pair, and what proves later deliveries.

A delivery that was acknowledged after the ledger of the peer ends cannot be in it. Its proof is a receipt of the peer,
or else the claim of the sender.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from eventd.audit.assembly.assemble import StageResults
from eventd.audit.coverage.receipt_links import LinkKey
from eventd.audit.report.figures import moment, nearest_time, span
from eventd.audit.report.report import Pair
from eventd.audit.segments.row_marks import PairKey
from eventd.audit.verdicts.pair_figures import CLAIMED_LATER, UNSEEN, VERIFIED_LATER
from eventd.runtime.clock import SECOND
from eventd.text.plural import counted

BOOKS: Final = "books"
"""The value of `proof` for the ledger of the peer."""
RECEIPTS: Final = "receipts"
"""The value of `proof` for receipts of the peer."""
CLAIMS: Final = "claims"
"""The value of `proof` for the ledger of the sender alone."""


def add_reach(results: StageResults, pairs: Sequence[Pair]) -> None:
    """Set how many deliveries of each pair only the sender claims.

    Of pairs whose proof is the peer's ledger, also set how far it reaches, and what proves later deliveries.
    """
    for pair in pairs:
        if pair.proof == CLAIMS:
            pair.claimed = pair.delivered
        if pair.proof == RECEIPTS:
            links = (LinkKey(pair.group, sender, pair.peer) for sender in pair.senders)
            pair.claimed = min(sum(results.coverage.unkept_receipts[link] for link in links), pair.delivered)
        if pair.proof != BOOKS:
            continue
        until = results.coverage.proven_until((pair.source, *pair.senders, pair.peer))
        pair.proven_until = nearest_time(until) if until else None
        later = _later(results, pair)
        pair.receipts_after = min(later["receipts"], pair.delivered)
        pair.claims_after = min(later["claims"], pair.delivered - pair.receipts_after)
        earlier = _beside(results, pair)[UNSEEN]
        pair.claimed = min(pair.claims_after + earlier, pair.delivered - pair.receipts_after)


def _later(results: StageResults, pair: Pair) -> Counter[str]:
    """Return how many deliveries that the peer's ledger does not show came after its end, at most, by their proof.

    A ledger may show events that are later than the time up to which it is complete.
    """
    compared = _beside(results, pair)
    later = Counter(receipts=compared[VERIFIED_LATER], claims=compared[CLAIMED_LATER])
    key = PairKey(pair.group, pair.source, pair.peer)
    for sender in pair.senders:
        link, beyond = LinkKey(pair.group, sender, pair.peer), results.mentions.beyond[key, sender]
        is_verified = link in results.coverage.verified
        claims = min(beyond, results.coverage.without_receipt[link]) if is_verified else beyond
        later.update(receipts=beyond - claims, claims=claims)
    return later


def _beside(results: StageResults, pair: Pair) -> Counter[str]:
    """Return how the comparison of rows counts the events that the ledger of the peer does not show."""
    return results.changes.get(PairKey(pair.group, pair.source, pair.peer), Counter())


def words_of_reach(results: StageResults, pairs: Sequence[Pair], now: int) -> Iterator[str]:
    """Yield sentences that say up to when the ledgers of all nodes are complete, and what else proves deliveries.

    `now` is in microseconds.
    """
    if until := results.coverage.proven_until():
        # Once all nodes are closed, nothing can become older.
        in_service = not results.coverage.closed.issuperset(results.coverage.until)
        age = now - until
        before = f", {span(age / SECOND)} before this report" if in_service and age > 0 else ""
        yield f"The ledgers of all nodes are complete until {moment(nearest_time(until))}{before}."
    receipts, claims = sum(pair.receipts_after for pair in pairs), sum(pair.claims_after for pair in pairs)
    proofs = [
        f"{counted(number, 'delivery', 'deliveries')} by {proof}"
        for number, proof in ((receipts, "verified receipts"), (claims, "the sender's claim alone"))
        if number
    ]
    if proofs:
        yield f"After the end of the peer's ledger: {', '.join(proofs)}."
