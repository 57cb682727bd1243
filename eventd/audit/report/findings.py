"""What an audit finds: one finding stands for one run of neighbouring events of one link, with their ids."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from itertools import groupby
from typing import NamedTuple

import msgspec

MOST_IDS = 10_000
"""Ids one finding of report.json names; the table `findings` names all of them."""


class Kind(StrEnum):
    """What is wrong."""

    MISSING = "missing"  # recorded at its source, meant for the peer, and not there; nobody claims that it is
    DUPLICATE = "duplicate"  # delivered more than once by one sender to one peer
    FORGED = "forged"  # at the peer, and its source never recorded it; or a receipt the peer never gave
    LOOP = "loop"  # delivered to its own source, or to one peer by two senders
    DISAGREEMENT = "disagreement"  # one side's books say it was delivered, the other's say it was not
    CORRUPT = "corrupt"  # a segment that cannot be trusted
    EPOCH = "epoch"  # a node's books have a second epoch


NOT_HELD = "the sender's books say delivered; the peer's books do not hold it"
NOT_SENT = "the peer's books hold it; the sender's books have no delivery of it"
OTHER_RECEIPT = "the receipt the sender keeps is not the one the peer gave"
NO_ORIGIN = "the peer's books hold it; the books of its source do not"
NO_BATCH = "the sender holds a receipt of a batch that the peer's books do not know"
TO_SOURCE = "delivered to its own source"
TWO_SENDERS = "delivered to one peer by several senders"


class Fact(NamedTuple):
    """One thing that is wrong. `seq` is the event's number at its source, 0 where none is known.

    `id` is the event's, or what else the kind names (a batch, a segment); '' for none. `detail` parts findings: facts
    with different words never share one.
    """

    kind: Kind
    group: str
    source: str
    peer: str
    seq: int = 0
    id: str = ""
    detail: str = ""


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """Facts of one (kind, group, source, peer) whose `seq` are adjacent: `first` to `last`, both ends in it.

    `ids` are in the order of `seq`, each once. `count` is given only where `ids` was cut short: how many there are.
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

    @property
    def events(self) -> int:
        """How many things it stands for."""
        return self.count or max(1, len(self.ids))

    def shortened(self, most: int = MOST_IDS) -> Finding:
        """The finding with at most `most` ids."""
        if len(self.ids) <= most:
            return self
        return msgspec.structs.replace(self, ids=self.ids[:most], count=self.events)


_ORDER = {kind: place for place, kind in enumerate(Kind)}


def corrupt_segment(node: str, name: str, after: int, upto: int, detail: str) -> Finding:
    """The finding for a segment `(after, upto]` of a node's books that cannot be trusted."""
    return Finding(Kind.CORRUPT, "", node, "", after + 1, upto, (name,) if name else (), detail)


def epoch_change(node: str, detail: str) -> Finding:
    """The finding for a node whose books have another epoch, or for two nodes under one name."""
    return Finding(Kind.EPOCH, "", node, "", 0, 0, (), detail)


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    """The findings as a report lists them: by kind as `Kind` does, then by group, source, peer, place and words."""
    return sorted(findings, key=lambda one: (_ORDER[one.kind], one.group, one.source, one.peer, one.first, one.detail))


def group_findings(facts: Iterable[Fact]) -> list[Finding]:
    """Join facts to findings, listed `in_order`. The same facts make the same findings, whatever their order.

    Facts without a seq make one finding per (kind, group, source, peer, detail), their ids sorted.
    """
    ordered = sorted(set(facts), key=lambda fact: (_ORDER[fact.kind], *fact[1:4], fact.detail, fact.seq, fact.id))
    return in_order(
        _finding(run)
        for _, same in groupby(ordered, key=lambda fact: (fact.kind, *fact[1:4], fact.detail))
        for run in _runs(same)
    )


def _runs(facts: Iterable[Fact]) -> Iterable[list[Fact]]:
    """Cut facts in order of seq wherever the next one is not the neighbour of the last."""
    run: list[Fact] = []
    for fact in facts:
        if run and fact.seq > run[-1].seq + 1:
            yield run
            run = []
        # A fact without a number is nobody's neighbour, not even of the number 1.
        if run and not run[-1].seq and fact.seq:
            yield run
            run = []
        run.append(fact)
    if run:
        yield run


def _finding(run: list[Fact]) -> Finding:
    head = run[0]
    ids = tuple(dict.fromkeys(fact.id for fact in run if fact.id))
    return Finding(head.kind, head.group, head.source, head.peer, head.seq, run[-1].seq, ids, head.detail)
