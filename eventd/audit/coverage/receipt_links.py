"""Finds the links of which every receipt is proven: verified by its signature, or confirmed by the peer's ledger."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from eventd.audit.receipts.receipt_checks import ReceiptCount
from eventd.audit.segments.ledger_summaries import LedgerSummary
from eventd.audit.segments.plan import NodeEpoch


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
    """Return the links with receipts, all of them verified.

    `damaged`: the nodes whose ledgers lack receipts that may have been on any of their links.
    """
    counts: dict[LinkKey, list[ReceiptCount]] = defaultdict(list)
    for one in receipt_counts(summaries, of_copies=False):
        counts[LinkKey(one.group, one.sender, one.peer)].append(one)
    return frozenset(
        link
        for link, each in counts.items()
        if link.sender not in damaged and all(one.verified == one.count for one in each)
    )


def confirmed_links(
    summaries: Mapping[NodeEpoch, Sequence[LedgerSummary]], unknown: Iterable[Mapping[str, Any]]
) -> frozenset[LinkKey]:
    """Return the links whose peer has a copy of every receipt in its ledger, and none of whose receipts is invalid.

    `unknown`: rows of `unknown_batches`.
    """
    copied = {LinkKey(one.group, one.sender, one.peer) for one in receipt_counts(summaries, of_copies=True)}
    invalid = {
        LinkKey(one.group, one.sender, one.peer)
        for which in (False, True)
        for one in receipt_counts(summaries, of_copies=which)
        if one.invalid
    }
    return frozenset(copied - invalid - {LinkKey(row["group"], row["source"], row["peer"]) for row in unknown})
