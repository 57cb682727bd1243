"""What was found out about the events of a row of hints, and how it is stored: refuted events, and the row itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from eventd.log.core.head import lock_head
from eventd.log.history.refuted import RefutedRecord, keep_refuted
from eventd.log.history.trees import Tree
from eventd.log.witnesses.findings import FindingKind, NewFinding, keep_finding
from eventd.log.witnesses.witnessed import find_witnessed
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import execute


class LeafVerdict(StrEnum):
    """What the tree of its node says of an event."""

    VERIFIED = "verified"
    """The tree has the event."""
    REFUTED = "refuted"
    """The tree covers the stated leaf, and the event is not among the leaves of its node."""
    UNPROVEN = "unproven"
    """Nothing can be said: no leaf was stated, or nothing proves the tree here."""


class RefutedEvent(NamedTuple):
    """An event that a tree refutes: `leaf` is where it was said to be, `hash` its own leaf's, `other` the one there.

    `sender`: the node that brought it. `refreshed`: the positions of the records that it refreshed.
    """

    position: int
    event_id: str
    digest: str
    tree: Tree
    leaf: int
    hash: bytes
    other: bytes
    sender: str
    refreshed: Sequence[int]


@dataclass
class CheckedRow:
    """What was found out about a row of hints: up to position `checked`, with `before` and `upto` as the row had them.

    `due`: when the next event is to be compared. `places`: hints that were corrected.
    """

    position: int
    upto: int
    before: int
    checked: int
    due: int
    verified: int = 0
    unproven: int = 0
    refuted: list[RefutedEvent] = field(default_factory=list)
    places: str | None = None


class CheckCounts(NamedTuple):
    """How many events had which verdict, and how many of the refutations are findings that were not known before."""

    verdicts: dict[LeafVerdict, int]
    findings: int


def keep_checked(conn: Connection, topic_id: int, rows: Sequence[CheckedRow], now: int) -> CheckCounts:
    """Store what was found out about rows that have not been checked by another process meanwhile."""
    if any(row.refuted for row in rows):
        lock_head(conn)  # before the rows, as an append does
    counts, findings = dict.fromkeys(LeafVerdict, 0), 0
    sql = (
        "UPDATE leaf_hints SET checked = ?, due = CASE WHEN upto > ? THEN ? END"
        " WHERE topic_id = ? AND position = ? AND checked = ?"
    )
    for row in rows:
        of = topic_id, row.position
        if not execute(conn, sql, (row.checked, row.checked, row.due, *of, row.before)):
            continue
        if row.places is not None:  # unless the row has grown meanwhile: then the hint stays wrong
            changed = "UPDATE leaf_hints SET places = ? WHERE topic_id = ? AND position = ? AND upto = ?"
            execute(conn, changed, (row.places, *of, row.upto))
        gone = "DELETE FROM leaf_hints WHERE topic_id = ? AND position = ? AND places = '' AND due IS NULL"
        execute(conn, gone, of)
        counts[LeafVerdict.VERIFIED] += row.verified
        counts[LeafVerdict.UNPROVEN] += row.unproven
        counts[LeafVerdict.REFUTED] += len(row.refuted)
        findings += sum(_keep_refuted(conn, topic_id, event, now) for event in row.refuted)
    return CheckCounts(counts, findings)


def _keep_refuted(conn: Connection, topic_id: int, event: RefutedEvent, now: int) -> bool:
    record = RefutedRecord(event.position, event.event_id, event.tree.origin, event.leaf, now)
    is_free = keep_refuted(conn, topic_id, record, event.refreshed)
    held = find_witnessed(conn, topic_id, event.tree.origin)
    detail = (
        f"{event.sender} sent the event {event.event_id} (position {event.position}, digest {event.digest}) as leaf"
        f" {event.leaf} of {event.tree.origin}: the hash there is {event.other.hex()}, that of the event is"
        f" {event.hash.hex()}, and none of {event.tree.size} leaves has it."
        + (" Its id is free again: have the true event sent again" if is_free else " Another record has its id")
    )
    found = NewFinding(
        origin=event.tree.origin,
        node=event.sender,
        kind=FindingKind.REFUTED,
        size=event.tree.size,
        other_size=event.leaf,
        note="" if held is None else held.note,
        other_note=f"refuted {event.position} {event.digest}",
        detail=detail,
    )
    return keep_finding(conn, topic_id, found, now)
