"""Findings about histories: forks, rollbacks and what could not be proven, with the notes that show them.

They stay until their group is deleted; a finding that an operator has confirmed is not shown as open any more.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum
from typing import Final, NamedTuple

from eventd.store.engine.database import Connection
from eventd.store.engine.statements import execute, fetch, insert_row

MOST_FINDINGS: Final = 100
"""Maximum number of findings about one tree."""
MOST_OF_NODE: Final = 100
"""Maximum number of findings of one kind about the trees of one node: it could open one tree after the other."""
_COLUMNS: Final = "id, origin, node, kind, size, other_size, note, other_note, detail, found_at, confirmed_at"


class FindingKind(StrEnum):
    """What a finding says of a tree."""

    FORK = "fork"
    """Its key signed two states that cannot both be true."""
    ROLLED_BACK = "rolled_back"
    """Its node continues from fewer leaves than it had signed: a restore from a backup, which it states."""
    OLDER_COPY = "older_copy"
    """It is a tree of this node, of which another node holds a later state: this database is a copy."""
    PENDING = "pending"
    """Two sizes of it were seen by different nodes, and its node has not proven yet that they fit together."""
    UNPROVEN = "unproven"
    """The same, for a day; or it names a tree before it that is not known here."""
    REFUTED = "refuted"
    """It does not have an event that its node is said to have admitted; `node` is the node that sent the event."""
    RESET = "reset"
    """An operator had this node forget what it held of it."""


OPEN_KINDS: Final = (
    FindingKind.FORK,
    FindingKind.REFUTED,
    FindingKind.ROLLED_BACK,
    FindingKind.OLDER_COPY,
    FindingKind.UNPROVEN,
)
"""The kinds that an operator should look at, the worst first."""


class HistoryFinding(NamedTuple):
    """A finding about a tree: `note` of size `size` is what this node held or signed, `other_note` does not fit to it.

    Times are microseconds since 1970; `confirmed_at` is None until an operator has confirmed it.
    """

    id: int
    origin: str
    node: str
    kind: str
    size: int
    other_size: int
    note: str
    other_note: str
    detail: str
    found_at: int
    confirmed_at: int | None


HOLDS: Final = " holds "
"""What follows the name of the peer in the detail of a finding `OLDER_COPY`."""


def read_holder(finding: HistoryFinding) -> str:
    """Return the peer that holds more of this node's tree than this database, for a finding `OLDER_COPY`."""
    return finding.detail.partition(HOLDS)[0]


class NewFinding(NamedTuple):
    """What is to be kept as a finding."""

    origin: str
    node: str
    kind: FindingKind
    size: int
    other_size: int
    note: str
    other_note: str
    detail: str


def keep_finding(conn: Connection, topic_id: int, found: NewFinding, now: int) -> bool:
    """Keep a finding, unless it is known, or its tree or its node has as many as are kept; return whether it is new.

    Those that an operator has confirmed do not count: a node that forks again must be shown again.
    """
    same = "SELECT 1 FROM history_findings WHERE topic_id = ? AND origin = ? AND kind = ? AND other_note = ?"
    if fetch(conn, same, (topic_id, found.origin, found.kind.value, found.other_note)):
        return False
    count = "SELECT count(*) FROM history_findings WHERE topic_id = ? AND confirmed_at IS NULL"
    # A relay that invents events must not use up the findings about what the tree's own node does.
    alike = "=" if found.kind is FindingKind.REFUTED else "<>"
    of_tree = topic_id, found.origin, FindingKind.REFUTED.value
    if fetch(conn, f"{count} AND origin = ? AND kind {alike} ?", of_tree)[0][0] >= MOST_FINDINGS:
        return False
    of_node = topic_id, found.node, found.kind.value
    if fetch(conn, f"{count} AND node = ? AND kind = ?", of_node)[0][0] >= MOST_OF_NODE:
        return False
    values = found._asdict() | {"kind": found.kind.value, "topic_id": topic_id, "found_at": now}
    insert_row(conn, "history_findings", values)
    return True


def read_findings(
    conn: Connection, topic_id: int, *, before: int | None = None, limit: int = 100
) -> list[HistoryFinding]:
    """Return findings of a group with ids below `before`, newest first; those that are pending are not among them."""
    sql = f"SELECT {_COLUMNS} FROM history_findings WHERE topic_id = ? AND kind <> ?"
    values: list[object] = [topic_id, FindingKind.PENDING.value]
    if before is not None:
        sql += " AND id < ?"
        values.append(before)
    rows = fetch(conn, f"{sql} ORDER BY id DESC LIMIT {int(limit)}", values)
    return [HistoryFinding(*row) for row in rows]


def read_open(conn: Connection, topic_id: int, *, limit: int) -> list[HistoryFinding]:
    """Return the findings that no operator has confirmed, up to `limit` of each of `OPEN_KINDS`, the newest first.

    Each kind has its own limit: many refuted events must not hide a fork.
    """
    sql = (
        f"SELECT {_COLUMNS} FROM history_findings WHERE topic_id = ? AND kind = ? AND confirmed_at IS NULL"
        f" ORDER BY id DESC LIMIT {int(limit)}"
    )
    return [HistoryFinding(*row) for kind in OPEN_KINDS for row in fetch(conn, sql, (topic_id, kind.value))]


def read_forks(conn: Connection, topic_id: int, since: int) -> list[HistoryFinding]:
    """Return all forks that were found from this time on, oldest first."""
    sql = f"SELECT {_COLUMNS} FROM history_findings WHERE topic_id = ? AND kind = ? AND found_at >= ? ORDER BY id"
    return [HistoryFinding(*row) for row in fetch(conn, sql, (topic_id, FindingKind.FORK.value, since))]


def find_finding(conn: Connection, topic_id: int, finding_id: int) -> HistoryFinding | None:
    """Return a finding of a group by its id."""
    rows = fetch(conn, f"SELECT {_COLUMNS} FROM history_findings WHERE topic_id = ? AND id = ?", (topic_id, finding_id))
    return HistoryFinding(*rows[0]) if rows else None


def count_open(conn: Connection, topic_id: int) -> dict[str, int]:
    """Return for each of `OPEN_KINDS` how many findings no operator has confirmed; kinds without any are left out."""
    kinds = ", ".join("?" * len(OPEN_KINDS))
    sql = (
        f"SELECT kind, count(*) FROM history_findings WHERE topic_id = ? AND kind IN ({kinds})"
        " AND confirmed_at IS NULL GROUP BY kind"
    )
    return dict(fetch(conn, sql, (topic_id, *(kind.value for kind in OPEN_KINDS))))


def read_worst(conn: Connection, topic_id: int) -> dict[str, str]:
    """Return for each node the worst kind of the findings about its trees that no operator has confirmed."""
    sql = "SELECT DISTINCT node, kind FROM history_findings WHERE topic_id = ? AND confirmed_at IS NULL"
    order = [kind.value for kind in OPEN_KINDS]
    found = [(node, kind) for node, kind in fetch(conn, sql, (topic_id,)) if kind in order]
    return dict(sorted(found, key=lambda one: order.index(one[1]), reverse=True))


def is_forked(conn: Connection, topic_id: int, node: str) -> bool:
    """Return whether a fork of a node's trees was found that no operator has confirmed."""
    sql = "SELECT 1 FROM history_findings WHERE topic_id = ? AND node = ? AND kind = ? AND confirmed_at IS NULL LIMIT 1"
    return bool(fetch(conn, sql, (topic_id, node, FindingKind.FORK.value)))


def confirm_findings(conn: Connection, topic_id: int, node: str, now: int) -> int:
    """Confirm all open findings about the trees of a node; return how many there were."""
    sql = "UPDATE history_findings SET confirmed_at = ? WHERE topic_id = ? AND node = ? AND confirmed_at IS NULL"
    return execute(conn, sql, (now, topic_id, node))


# --- pending ones -------------------------------------------------------------------------------------------------


def has_pending(conn: Connection, topic_id: int, origin: str) -> bool:
    """Return whether two sizes of a tree wait for their proof."""
    sql = "SELECT 1 FROM history_findings WHERE topic_id = ? AND origin = ? AND kind = ? LIMIT 1"
    return bool(fetch(conn, sql, (topic_id, origin, FindingKind.PENDING.value)))


def read_pending(
    conn: Connection, topic_id: int, node: str, peers: Collection[str] | None = None
) -> list[HistoryFinding]:
    """Return the pairs of sizes that wait for a proof of their node; with `peers`, also of nodes not among them."""
    sql = f"SELECT {_COLUMNS} FROM history_findings WHERE topic_id = ? AND kind = ? ORDER BY id"
    found = [HistoryFinding(*row) for row in fetch(conn, sql, (topic_id, FindingKind.PENDING.value))]
    return [one for one in found if one.node == node or (peers is not None and one.node not in peers)]


def settle_pending(conn: Connection, finding_id: int, kind: FindingKind | None, detail: str = "") -> None:
    """Turn a pending pair into a finding of another kind, or delete it if its node has proven that both fit."""
    if kind is None:
        execute(conn, "DELETE FROM history_findings WHERE id = ?", (finding_id,))
    else:
        sql = "UPDATE history_findings SET kind = ?, detail = ? WHERE id = ?"
        execute(conn, sql, (kind.value, detail, finding_id))


def has_expired(conn: Connection, topic_id: int, before: int) -> bool:
    """Return whether there are pairs for `expire_pending`."""
    sql = "SELECT 1 FROM history_findings WHERE topic_id = ? AND kind = ? AND found_at < ? LIMIT 1"
    return bool(fetch(conn, sql, (topic_id, FindingKind.PENDING.value, before)))


def expire_pending(conn: Connection, topic_id: int, before: int) -> int:
    """Turn pairs that were found before this time into findings without a proof; return how many."""
    sql = "UPDATE history_findings SET kind = ?, detail = ? WHERE topic_id = ? AND kind = ? AND found_at < ?"
    detail = "its node has not proven in 24 h that the two sizes belong to one tree"
    values = (FindingKind.UNPROVEN.value, detail, topic_id, FindingKind.PENDING.value, before)
    return execute(conn, sql, values)
