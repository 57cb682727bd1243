"""A reference implementation of the audit for small lakes: it compares every row with every other, slowly and
simply."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

from eventd.audit.report.findings import (
    NO_BATCH,
    NO_ORIGIN,
    NOT_HELD,
    NOT_SENT,
    OTHER_RECEIPT,
    TO_SOURCE,
    TWO_SENDERS,
    Discrepancy,
    Finding,
    Kind,
    corrupt_segment,
    epoch_change,
    group_findings,
    in_order,
)
from eventd.lake.manifest import SelectionConditions
from eventd.lake.reader import Survey, TroubleKind, survey
from eventd.lake.schema import Ledger
from eventd.lake.segment_file import BadSegment
from eventd.lake.segment_reader import read_segment
from eventd.lake.storage import connect

Row = dict[str, Any]
Rows = dict[Ledger, list[Row]]


class LakeRows(NamedTuple):
    """All rows of a lake by ledger table, the survey of the lake, and the segments that could not be read."""

    rows: Rows
    seen: Survey
    bad: list[Finding]


def read_books(url: str) -> LakeRows:
    """Read everything in a lake as Python values."""
    storage = connect(url)
    seen = survey(storage)
    rows: Rows = {book: [] for book in Ledger}
    bad = [
        corrupt_segment(trouble.node, trouble.name, trouble.after, trouble.upto, "")
        for trouble in seen.troubles
        if trouble.kind is TroubleKind.CORRUPT
    ]
    for segment in seen.segments:
        try:
            rows[segment.place.book] += read_segment(storage, segment).to_pylist()
        except BadSegment:
            place = segment.place
            bad.append(corrupt_segment(segment.manifest.node, place.name, place.after, place.upto, ""))
    return LakeRows(rows, seen, bad)


def balance(url: str) -> list[Finding]:
    """Return the findings in a lake. A node with a damaged segment in one of its larger tables proves nothing."""
    books = read_books(url)
    blind = {one.source for one in books.bad if not any("/refusals/" in name for name in one.ids)}
    facts = [
        fact
        for fact in (*_one_sided(books), *_forged(books), *_repeated(books), *_looped(books))
        if not blind & {fact.source, fact.peer}
    ]
    epochs = [
        epoch_change(one.node, one.epoch, "") for one in books.seen.troubles if one.kind is not TroubleKind.CORRUPT
    ]
    return in_order([*group_findings(facts), *books.bad, *epochs])


def _own(books: LakeRows) -> dict[tuple[str, str], dict[str, Row]]:
    """Return the events that each node emitted in a group, by id."""
    found: defaultdict[tuple[str, str], dict[str, Row]] = defaultdict(dict)
    for row in books.rows[Ledger.EVENTS]:
        if row["own"]:
            found[row["group"], row["node"]][row["id"]] = row
    return found


def _held(books: LakeRows) -> dict[tuple[str, str], dict[str, Row]]:
    """Return the events that each node holds in a group, by id."""
    found: defaultdict[tuple[str, str], dict[str, Row]] = defaultdict(dict)
    for row in books.rows[Ledger.EVENTS]:
        found[row["group"], row["node"]][row["id"]] = row
    return found


def _outcomes(books: LakeRows) -> dict[tuple[str, str, str, str], list[str]]:
    """Return the outcomes of each event on each link: (group, sender, peer, id)."""
    found: defaultdict[tuple[str, str, str, str], list[str]] = defaultdict(list)
    for row in books.rows[Ledger.DELIVERIES]:
        found[row["group"], row["node"], row["peer"], row["id"]].append(row["outcome"])
    return found


def _links(books: LakeRows) -> Iterator[tuple[str, str, Any]]:
    """Yield each link in its latest state: (group, sender, state)."""
    latest = {state.node: state for state in sorted(books.seen.nodes, key=lambda state: state.as_of)}
    for node, state in latest.items():
        for group in state.groups:
            for peer in group.peers:
                yield group.group, node, peer


def _seqs(books: LakeRows) -> dict[tuple[str, str], int]:
    return {(row["group"], row["id"]): row["seq"] for row in books.rows[Ledger.EVENTS] if row["own"]}


def _one_sided(books: LakeRows) -> Iterator[Discrepancy]:
    """Yield events that were selected for a peer and are missing there, or are there although no node sent them."""
    held, outcomes, shipping = _held(books), _outcomes(books), _shipping(books)
    versions = _reached(books)
    for group, sender, peer in _links(books):
        there = held.get((group, peer.peer), {})
        for name, row in held.get((group, sender), {}).items():
            outcome = outcomes.get((group, sender, peer.peer, name), [])
            meant = (row["own"] or peer.relay) and _wanted(row, peer, versions.get((group, sender, peer.peer), 0))
            fact = (group, row["source"], peer.peer, row["seq"], name)
            if "delivered" in outcome and name not in there and peer.peer in shipping:
                yield Discrepancy(Kind.DISAGREEMENT, *fact, NOT_HELD)
            elif not outcome and meant and row["position"] <= peer.cursor and name not in there:
                yield Discrepancy(Kind.MISSING, *fact)
            elif not outcome and name in there and there[name]["path"] == sender and row["own"]:
                yield Discrepancy(Kind.DISAGREEMENT, *fact, NOT_SENT)


def _reached(books: LakeRows) -> dict[tuple[str, str, str], int]:
    """Return the position up to which each link went by the first version of its selection."""
    found: dict[tuple[str, str, str], int] = {}
    for row in books.rows[Ledger.RECEIPTS]:
        if row["selector_version"] == 1 and not row["repair"]:
            link = (row["group"], row["node"], row["peer"])
            found[link] = max(found.get(link, 0), row["upto"])
    return found


def _wanted(row: Row, peer: Any, reached: int) -> bool:
    """Return whether a link ever had to carry an event."""

    def takes(selection: SelectionConditions) -> bool:
        return selection.selector.takes_type(row["type"])

    first, last = peer.selections[0], peer.selections[-1]
    if row["position"] <= reached and takes(first.selection):
        return True
    alive = row["expires_at"] is None or row["expires_at"].timestamp() * 1e6 >= last.declared_at
    return takes(last.selection) and (row["position"] > reached or alive)


def _shipping(books: LakeRows) -> set[str]:
    """Return the nodes whose ledgers are in the lake."""
    return {state.node for state in books.seen.nodes}


def _forged(books: LakeRows) -> Iterator[Discrepancy]:
    own, shipping = _own(books), _shipping(books)
    for row in books.rows[Ledger.EVENTS]:
        there = row["source"] in shipping
        if there and not row["own"] and row["id"] not in own[row["group"], row["source"]]:
            yield Discrepancy(Kind.FORGED, row["group"], row["source"], row["node"], 0, row["id"], NO_ORIGIN)
    known = {(row["group"], row["node"], row["batch_id"]): row["receipt_digest"] for row in books.rows[Ledger.INBOUND]}
    for row in books.rows[Ledger.RECEIPTS]:
        if not row["receipt_digest"] or row["peer"] not in shipping:
            continue
        fact = (row["group"], row["node"], row["peer"], 0, row["batch_id"])
        given = known.get((row["group"], row["peer"], row["batch_id"]))
        if given is None:
            yield Discrepancy(Kind.FORGED, *fact, NO_BATCH)
        elif given != row["receipt_digest"]:
            yield Discrepancy(Kind.DISAGREEMENT, *fact, OTHER_RECEIPT)


def _repeated(books: LakeRows) -> Iterator[Discrepancy]:
    seqs = _seqs(books)
    delivered = (row for row in books.rows[Ledger.DELIVERIES] if row["outcome"] == "delivered")
    counts = Counter((row["group"], row["source"], row["node"], row["peer"], row["id"]) for row in delivered)
    for (group, source, _, peer, name), count in counts.items():
        if count > 1:
            yield Discrepancy(Kind.DUPLICATE, group, source, peer, seqs.get((group, name), 0), name)


def _looped(books: LakeRows) -> Iterator[Discrepancy]:
    seqs = _seqs(books)
    senders: defaultdict[tuple[str, str, str, str], set[str]] = defaultdict(set)
    for row in books.rows[Ledger.DELIVERIES]:
        if row["outcome"] == "delivered":
            senders[row["group"], row["source"], row["peer"], row["id"]].add(row["node"])
    for (group, source, peer, name), nodes in senders.items():
        if source == peer:
            yield Discrepancy(Kind.LOOP, group, source, peer, seqs.get((group, name), 0), name, TO_SOURCE)
        elif len(nodes) > 1:
            yield Discrepancy(Kind.LOOP, group, source, peer, seqs.get((group, name), 0), name, TWO_SENDERS)
