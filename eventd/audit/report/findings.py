"""The findings of an audit: of runs of adjacent events, of batches, of segments, and of the histories of nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from itertools import groupby
from typing import NamedTuple

import msgspec

from federation.event import format_time

MOST_IDS = 10_000
"""Maximum number of ids per finding in report.json; the table `findings` has all that are named."""
MOST_EVIDENCE = 100
"""Maximum number of entries of evidence per finding in report.json; the table `findings` has all of them."""


MOST_NAMED = 10_000
"""Maximum number of discrepancies of one kind, pair and detail that a task names; it counts the others. A lake may be
damaged in each of its rows, and the findings of all tasks are in memory at once."""


class Kind(StrEnum):
    """The kinds of findings, in the order in which a report lists them."""

    MISSING = "missing"  # due at the peer, which does not hold it; no ledger records a delivery
    ERASED = "erased"  # a node recorded the row, and no segment holds it
    # one id with two contents, a row that is not what its digest says, deliveries under the number of another batch, or
    # a version of a selection with two texts
    ALTERED = "altered"
    REWRITTEN = "rewritten"  # rows or hashes of a tree are not those that its node signed
    FORK = "fork"  # a node signed two trees that do not continue each other
    DUPLICATE = "duplicate"  # delivered more than once by one sender to one peer
    # held by the peer but never recorded by its source; or a receipt that the peer never gave, or that was edited
    FORGED = "forged"
    SQUATTED = "squatted"  # two sources signed an event with one id, and a peer refused that of one of them
    LOOP = "loop"  # delivered to its own source, or to one peer by two senders
    # the ledger of one side has the delivery, the other's does not; two receipts of a batch, or one that counts fewer
    # events than the sender has deliveries; a reason for not sending an event that other rows contradict; or a delivery
    # that its selection contradicts
    DISAGREEMENT = "disagreement"
    CORRUPT = "corrupt"  # a corrupt segment
    # the ledgers of a node end before a place that they had reached already, or a tree succeeds another one at a size
    # below the last one that was signed
    ROLLED_BACK = "rolled_back"
    UNSEALED = "unsealed"  # own events without a leaf, or without a checkpoint after a minute
    LAKE_REWRITTEN = "lake_rewritten"  # a manifest or a state is not in the tree of the files that its node signed
    EPOCH = "epoch"  # the ledgers of a node have a second epoch


NOT_HELD = "the sender's ledger says delivered; the peer's ledger does not hold it"
NOT_SENT = "the peer's ledger holds it; the sender's ledger has no delivery of it"
NOT_EXPIRED = "the sender's ledger says expired; the event never expires"
EXPIRED_LATER = "the sender's ledger says expired; the event expired only later"
NOT_IN_PATH = "the sender's ledger says that the event came through the peer; the peer's ledger does not hold it"
OWN_IN_PATH = "the sender's ledger says that the event came through the peer; it is the sender's own"
NOT_REFUSED = "the sender's ledger says that the peer refused it; the answer to the batch counts fewer refused events"
NOT_SELECTED = "the sender's ledger says delivered; the selection that its delivery names does not match the event"
OTHER_RECEIPT = "sender and peer have different receipts of the batch, or different ranges"
NO_ORIGIN = "the peer's ledger holds it; the ledger of its source does not"
NOT_IN_TREE = "the peer's ledger holds it with a digest that is no leaf of its source, whose rows are all in the lake"
NO_ROW = "a delivery or a peer shows that it was recorded; the ledger of its source does not hold it"
NO_ROW_AT_PEER = "the sender's ledger says delivered; the peer's ledger has lost the row"
NO_BATCH = "the sender holds a receipt of a batch that is not in the peer's ledger"
TWO_RECEIPTS = "the sender's ledger has several receipts of the batch that differ; a peer gives one"
REPEATED_RECEIPT = "the sender's ledger has the receipt of the batch more than once"
SAME_NUMBER = "the sender's ledger has several receipts under the number of the batch"
SHARED_KEY = (
    "the sender holds a receipt of a batch that is not in the peer's ledger; it verifies, with a key that both share"
)
NO_DELIVERIES = "the sender's receipt counts more events than its ledger has deliveries of the batch"
MORE_DELIVERIES = "the sender's ledger has more deliveries of the batch than its receipt counts"
OTHER_BATCH = "the sender's deliveries say something else of their batch than the receipt under their number"
NO_RECEIPT = "the sender's ledger has deliveries of the batch, and not its receipt"
NO_INBOUND = "the peer holds events of the batch of the sender's receipt; its ledger of batches has lost the row"
UNKEPT_BATCH = "the sender holds a verified receipt of the batch; the peer's ledger of batches has lost the row"
UNCLAIMED_BATCH = "the peer's ledger has a batch with events; the sender's ledger has no row of its positions"
TO_SOURCE = "delivered to its own source"
TWO_SENDERS = "delivered to one peer by several senders"
UNDECLARED_SELECTION = "the sender's receipts have a version of the selection that its later state does not know"
TWO_SELECTIONS = "the sender's state and its receipts have several texts of one version of the selection"
OTHER_CONTENT = "the rows of source and peer differ in {columns}"
OTHER_DIGEST = "the digest of the row is not that of its content"
OTHER_FINGERPRINT = "the fingerprint of the row is not the beginning of its digest"
OTHER_DELIVERY = "the sender's row of the delivery differs from its event in {columns}"


class Evidence(NamedTuple):
    """The rows that a discrepancy rests on. Unknown texts are empty, an unknown time is 0.

    `sender` and `batch`: the node that delivered the event, and in which batch. `at`: when the event was observed; of a
    batch, when its receipt was recorded (microseconds). `key_id`: the key with which the sender signed the batch; of a
    receipt, the key that signed it. `fingerprints`: 16 hex digits each, of the event at its source and at the peer.
    `values`: of an altered event, each column that differs, with the value at the source and the one at the peer.
    """

    sender: str = ""
    at: int = 0
    batch: str = ""
    receipt_digest: str = ""
    key_id: str = ""
    fingerprints: tuple[str, ...] = ()
    values: tuple[str, ...] = ()


class Discrepancy(NamedTuple):
    """One thing wrong with an event at one peer, or with a batch. `seq`: the event's seq at its source, 0 if unknown.

    `id` is the id of the event or batch, or EPOCH/selection/VERSION; empty for none. Discrepancies with different
    `detail` never share a finding.
    """

    kind: Kind
    group: str
    source: str
    peer: str
    seq: int = 0
    id: str = ""
    detail: str = ""
    evidence: Evidence = Evidence()


class DiscrepancyKey(NamedTuple):
    """The common properties of discrepancies that are only counted and not named: see `MOST_NAMED`."""

    kind: Kind
    group: str
    source: str
    peer: str
    detail: str

    @classmethod
    def of(cls, one: Discrepancy) -> DiscrepancyKey:
        """Return the key under which the discrepancy is counted."""
        return cls(*one[:4], one.detail)


class EventEvidence(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The evidence of one id of a finding: see `Evidence`. `at` is RFC 3339 in UTC; empty if unknown."""

    id: str = ""
    sender: str = ""
    at: str = ""
    batch: str = ""
    receipt_digest: str = ""
    key_id: str = ""
    fingerprints: tuple[str, ...] = ()
    values: tuple[str, ...] = ()


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """Discrepancies of one kind, group, source, peer and detail with adjacent seqs, `first` to `last` inclusive.

    Of a CORRUPT finding, `first` and `last` are row numbers of the ledger; 0: unknown. Of a finding of a tree they are
    leaves, and `ids` is `TREE/FIRST-LAST`. `source` is the node in CORRUPT
    and EPOCH findings, and the node that lost the rows in ERASED findings without a peer. `ids` are distinct, in the
    order of `seq`; `count` is the number of events if `ids` does not name all of them, or 0. `evidence` has one entry
    for each discrepancy with evidence, in the same order. `new` and `acknowledged` count also erased rows without an
    id.
    """

    kind: Kind
    group: str
    source: str
    peer: str
    first: int
    last: int
    ids: tuple[str, ...]
    detail: str = ""
    count: int = 0
    evidence: tuple[EventEvidence, ...] = ()
    new: int | None = None
    """The number of the finding's events that the baseline does not have; None without a baseline."""
    new_ids: tuple[str, ...] = ()
    """The ids of the new events, if only a part of the finding's events is new."""
    acknowledged: int = 0
    """The number of the finding's events that operators have acknowledged."""
    acknowledged_ids: tuple[str, ...] = ()
    """The ids of the acknowledged events, if only a part of the finding's events is acknowledged."""

    @property
    def events(self) -> int:
        """Return the number of events: of ids before `ids` was shortened, or of erased rows; at least 1."""
        return max(1, self.count, len(self.ids))

    def shortened(self, most: int = MOST_IDS) -> Finding:
        """Return the finding with its first `most` ids, with `count` set if that leaves out any, and less evidence."""
        short = msgspec.structs.replace(
            self,
            evidence=self.evidence[:MOST_EVIDENCE],
            new_ids=self.new_ids[:most],
            acknowledged_ids=self.acknowledged_ids[:most],
        )
        if len(self.ids) <= most:
            return short
        return msgspec.structs.replace(short, ids=self.ids[:most], count=self.events)


def is_of_tree(one: Finding) -> bool:
    """Return whether a finding is of the leaves of a tree."""
    return one.ids == (f"{one.ids[0].partition('/')[0]}/{one.first}-{one.last}",) if one.ids else False


_ORDER = {kind: place for place, kind in enumerate(Kind)}


def corrupt_segment(node: str, name: str, after: int, upto: int, detail: str) -> Finding:
    """Return the finding for a node's corrupt or missing segment, rows (after, upto], or corrupt or missing state."""
    first = after + 1 if upto else 0
    return Finding(Kind.CORRUPT, "", node, "", first, upto, (name,) if name else (), detail)


def erased_rows(
    node: str, group: str, seqs: tuple[int, int], count: int, known: Sequence[Discrepancy], detail: str
) -> Finding:
    """Return the finding for `count` rows with seqs from the first to the last of `seqs` that a node's ledger lost.

    `known` are the events of these rows that other rows name, in the order of their seqs.
    """
    made = _finding([*known]) if known else Finding(Kind.ERASED, group, node, "", 0, 0, ())
    return msgspec.structs.replace(
        made,
        source=node,
        peer="",
        first=seqs[0],
        last=seqs[1],
        detail=detail,
        count=0 if len(made.ids) == count else count,
    )


def rolled_back(node: str, after: int, upto: int, detail: str) -> Finding:
    """Return the finding for a node's ledgers that lost the numbers in (after, upto] at their end."""
    return Finding(Kind.ROLLED_BACK, "", node, "", after + 1, upto, (), detail)


def epoch_change(node: str, epoch: str, detail: str) -> Finding:
    """Return the finding for a node that began a new epoch, or for two nodes with one name."""
    return Finding(Kind.EPOCH, "", node, "", 0, 0, (epoch,), detail)


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings sorted as in a report: by kind as in `Kind`, group, source, peer, first seq and detail."""
    return sorted(findings, key=lambda one: (_ORDER[one.kind], one.group, one.source, one.peer, one.first, one.detail))


def group_findings(discrepancies: Iterable[Discrepancy]) -> list[Finding]:
    """Return the findings, `in_order`, that these discrepancies form; equal discrepancies count once.

    Discrepancies without a seq form one finding per (kind, group, source, peer, detail), with sorted ids.
    """
    ordered = sorted(set(discrepancies), key=lambda one: (_ORDER[one.kind], *one[1:4], one.detail, one.seq, one.id))
    return in_order(
        _finding(run)
        for _, same in groupby(ordered, key=lambda one: (one.kind, *one[1:4], one.detail))
        for run in _runs(same)
    )


def unnamed_findings(counts: Mapping[DiscrepancyKey, int]) -> list[Finding]:
    """Return a finding without ids for the discrepancies of each key, of which only the number is known."""
    known = ((key, f"{key.detail}; more than are listed", n) for key, n in counts.items() if n > 0)
    return [Finding(*key[:4], 0, 0, (), detail, count=n) for key, detail, n in known]


def _runs(discrepancies: Iterable[Discrepancy]) -> Iterable[list[Discrepancy]]:
    """Yield runs of equal or adjacent seqs from discrepancies sorted by seq; those without a seq form one run."""
    run: list[Discrepancy] = []
    for one in discrepancies:
        if run and one.seq > run[-1].seq + 1:
            yield run
            run = []
        # A discrepancy without a seq is adjacent to none.
        if run and not run[-1].seq and one.seq:
            yield run
            run = []
        run.append(one)
    if run:
        yield run


def _finding(run: list[Discrepancy]) -> Finding:
    head = run[0]
    ids = tuple(dict.fromkeys(one.id for one in run if one.id))
    evidence = tuple(_entry(one) for one in run if one.evidence != Evidence())
    return Finding(
        *(head.kind, head.group, head.source, head.peer, head.seq, run[-1].seq, ids, head.detail), evidence=evidence
    )


def _entry(discrepancy: Discrepancy) -> EventEvidence:
    known = discrepancy.evidence._asdict()
    at = format_time(discrepancy.evidence.at) if discrepancy.evidence.at else ""
    return EventEvidence(id=discrepancy.id, **known | {"at": at})
