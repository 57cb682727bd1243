"""Finds the links of which every receipt is proven to be the peer's: verified with a key that only the peer has."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from eventd.audit.receipts.receipt_checks import ReceiptCount
from eventd.audit.segments.ledger_summaries import LedgerSummary
from eventd.audit.segments.plan import NodeEpoch
from federation.keys import Algorithm


class LinkKey(NamedTuple):
    """The link of a group from a sender to a peer, whose receipts the sender keeps."""

    group: str
    sender: str
    peer: str


def receipt_counts(
    summaries: Mapping[NodeEpoch, Sequence[LedgerSummary]], *, of_copies: bool
) -> Iterator[ReceiptCount]:
    """Yield the counts of receipts from ledgers of senders, or those `of_copies`, from ledgers of receivers."""
    for each in summaries.values():
        for summary in each:
            if summary.receipts.of_copies == of_copies:
                yield from summary.receipts.counts


def verified_links(
    summaries: Mapping[NodeEpoch, Sequence[LedgerSummary]], damaged: Collection[str]
) -> frozenset[LinkKey]:
    """Return the links with receipts, all of them verified with public keys.

    A shared secret verifies a receipt that the sender could have written, which is no more than its claim.
    `damaged`: the nodes whose ledgers lack receipts that may have been on any of their links.
    """
    counts: dict[LinkKey, list[ReceiptCount]] = defaultdict(list)
    for one in receipt_counts(summaries, of_copies=False):
        counts[LinkKey(one.group, one.sender, one.peer)].append(one)
    return frozenset(
        link
        for link, each in counts.items()
        if link.sender not in damaged
        and all(one.verified == one.count and one.algorithm == Algorithm.ED25519 for one in each)
    )


def deliveries_without_receipt(
    rows: Iterable[Mapping[str, Any]], questioned: Iterable[Mapping[str, Any]]
) -> Counter[LinkKey]:
    """Return by link how many deliveries no receipt shows; at least 1 for a link on which some receipt must be false.

    `rows`: those of `without_receipt`; `questioned`: all rows of `questioned_receipts`.
    """
    found: Counter[LinkKey] = Counter()
    for row in rows:
        found[_link(row)] += row["n"]
    for row in questioned:
        if row["several"] or row["repeated"]:
            found[_link(row)] += max(row["n"], 1)
    return found


def deliveries_with_unkept_receipts(rows: Iterable[Mapping[str, Any]]) -> Counter[LinkKey]:
    """Return by link how many of these deliveries have no receipt only because the lake no longer keeps it: see
    `without_receipt`."""
    found: Counter[LinkKey] = Counter()
    for row in rows:
        found[_link(row)] += row["unkept"]
    return found


def _link(row: Mapping[str, Any]) -> LinkKey:
    return LinkKey(row["group"], row["source"], row["peer"])
