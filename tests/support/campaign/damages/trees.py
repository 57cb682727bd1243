"""Damage: databases and lakes of nodes that sign their histories, and all that they write to the lake.

All of it is done to one lake, each damage in a group of its own, so that one audit is enough.
"""

from __future__ import annotations

import shutil
import sqlite3
from base64 import b64decode, b64encode
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from tests.support.campaign.lake_files import LakeFiles, Row
from tests.support.plain_history import root

HALF = 300
"""Events of a group before its first checkpoint; the last one of them is in a block of its own."""
EVENTS = 340
"""Events of a group with those of its second checkpoint, which is the only one in the lake."""
SIZE = EVENTS + 1
_TILE = 256


class Moment(Enum):
    """When a damage is done: before the last events have a checkpoint, before they are shipped, or in the lake."""

    BEFORE_SEALING = "before sealing"
    BEFORE_SHIPPING = "before shipping"
    IN_LAKE = "in the lake"


@dataclass(frozen=True)
class SignedScene:
    """What a damage is done to: the group of its name at node `a`, in its database before the lake has it."""

    group: str
    database: Path
    lake: LakeFiles

    def sql(self, statement: str, **values: Any) -> list[Any]:
        """Run a statement in the database, where `:topic` is the topic of the group; return its rows."""
        with closing(sqlite3.connect(self.database)) as connection, connection:
            ((topic,),) = connection.execute("SELECT id FROM topics WHERE name = ?", (f"group:{self.group}",))
            return connection.execute(statement, {"topic": topic} | values).fetchall()

    def change(self, ledger: str, where: Callable[[Row], bool], change: Callable[[Row], Row | None]) -> None:
        """Change the rows of the group in a ledger that meet a condition."""
        self.lake.change(ledger, "a", lambda row: row["group"] == self.group and where(row), change)


@dataclass(frozen=True)
class SignedDamage:
    """One damage; `does` and `found_by` as of `Damage`.

    `wanted` are the kind, the first and the last leaf or seq of each finding in its group: all of them, and no other.
    """

    name: str
    does: str
    found_by: str
    moment: Moment
    inflict: Callable[[SignedScene], None]
    wanted: tuple[tuple[str, int, int], ...]


def _edit_row(scene: SignedScene) -> None:
    digest = b"x" * 32
    values = {"digest": digest, "fingerprint": int.from_bytes(digest[:8])}
    scene.change("events", lambda row: row["leaf"] == 100, lambda row: row | values)


def _edit_tile(scene: SignedScene) -> None:
    scene.change("history", lambda row: row["kind"] == "hashes", _with_another_hash)


def _with_another_hash(row: Row) -> Row:
    hashes = bytearray(b64decode(row["content"]))
    hashes[0] ^= 1
    return row | {"content": b64encode(bytes(hashes)).decode()}


def _edit_row_and_tile(scene: SignedScene) -> None:
    """Edit a row, and compute the hash above its tile again, as only the checkpoint contradicts."""
    _edit_row(scene)
    rows = [row for one in scene.lake.segments("events", "a") for row in one.rows() if row["group"] == scene.group]
    entries = [b"\1" + row["digest"] for row in sorted(rows, key=lambda row: row["leaf"]) if row["leaf"] < _TILE]
    (opening,) = [
        row["content"]
        for one in scene.lake.segments("history", "a")
        for row in one.rows()
        if (row["group"], row["kind"]) == (scene.group, "opening")
    ]
    tile = root([b"\0" + opening.encode(), *entries])
    scene.change("history", lambda row: row["kind"] == "hashes", lambda row: row | {"content": _with(row, tile)})


def _with(row: Row, tile: bytes) -> str:
    return b64encode(tile + b64decode(row["content"])[32:]).decode()


def _renumber(scene: SignedScene) -> None:
    """Exchange the leaves of two rows."""
    scene.change("events", lambda row: row["leaf"] == 10, lambda row: row | {"leaf": 11_000})
    scene.change("events", lambda row: row["leaf"] == 11, lambda row: row | {"leaf": 10})
    scene.change("events", lambda row: row["leaf"] == 11_000, lambda row: row | {"leaf": 11})


def _delete_block(scene: SignedScene) -> None:
    """Delete the event after the first checkpoint, which is in a block of its own."""
    scene.sql("DELETE FROM blocks WHERE topic_id = :topic AND leaf = :leaf", leaf=HALF + 1)


def _delete_block_and_close_seqs(scene: SignedScene) -> None:
    """Delete the same event, and number all later ones anew, so that no seq is missing."""
    _delete_block(scene)
    scene.sql("UPDATE blocks SET seq = seq - 1 WHERE topic_id = :topic AND leaf > :leaf", leaf=HALF + 1)
    scene.sql("UPDATE topics SET next_seq = next_seq - 1 WHERE id = :topic")


def _remove_row_and_close_seqs(scene: SignedScene) -> None:
    """Remove a row from the lake, and number all later ones anew, also in the state of the node."""
    scene.change("events", lambda row: row["leaf"] == 50, lambda row: None)
    scene.change("events", lambda row: row["leaf"] > 50, lambda row: row | {"seq": row["seq"] - 1})

    def lower(state: dict[str, Any]) -> None:
        for one in state["groups"]:
            one["last_seq"] -= one["group"] == scene.group

    scene.lake.set_state("a", lower)


SIGNED = (
    SignedDamage(
        "leaf-edited",
        "the digest of a row is edited, with its fingerprint",
        "the hash of its tile, which the checkpoint proves",
        Moment.IN_LAKE,
        _edit_row,
        (("rewritten", 0, _TILE - 1),),
    ),
    SignedDamage(
        "tile-edited",
        "a hash in the ledger `history` is edited",
        "the rows of its leaves, which the checkpoint proves",
        Moment.IN_LAKE,
        _edit_tile,
        (("rewritten", 0, _TILE - 1),),
    ),
    SignedDamage(
        "leaf-and-tile-edited",
        "the digest of a row is edited, and the hash above its tile is computed again",
        "the root in the checkpoint",
        Moment.IN_LAKE,
        _edit_row_and_tile,
        (("rewritten", 0, SIZE - 1),),
    ),
    SignedDamage(
        "leaves-exchanged",
        "two rows exchange their leaves",
        "the hash of their tile, which the checkpoint proves",
        Moment.IN_LAKE,
        _renumber,
        (("rewritten", 0, _TILE - 1),),
    ),
    SignedDamage(
        "event-deleted-before-sealing",
        "`DELETE FROM blocks` before a checkpoint covers the event",
        "the hole in the seqs; the tree ends there, and the next one begins with the later events",
        Moment.BEFORE_SEALING,
        _delete_block,
        (("erased", HALF + 1, HALF + 1),),
    ),
    SignedDamage(
        "event-deleted-before-shipping",
        "`DELETE FROM blocks` before the event is shipped, and all later seqs are numbered anew",
        "the leaf without a row, of which no other node has an event",
        Moment.BEFORE_SHIPPING,
        _delete_block_and_close_seqs,
        (("erased", HALF + 1, HALF + 1),),
    ),
    SignedDamage(
        "row-removed-and-renumbered",
        "a row is removed from the lake, and all later seqs are numbered anew, in rows and in the state",
        "the leaf without a row",
        Moment.IN_LAKE,
        _remove_row_and_close_seqs,
        (("erased", 50, 50),),
    ),
)
"""Damage of trees, each in the group of its name."""


def edit_manifest(lake: LakeFiles) -> str:
    """Let a manifest of `b` say that its rows were written later; return the name of its segment."""
    (segment,) = lake.segments("events", "b")
    segment.describe(written_at=segment.facts["written_at"] + 1)
    return segment.name


def put_back(lake: LakeFiles, earlier: Path) -> None:
    """Put all files of `c` back to those of an earlier hour, also those that it signed."""
    lake.take_back("c", earlier)
    for folder in lake.root.glob("trees/c-*"):
        shutil.rmtree(folder)
        shutil.copytree(earlier / folder.relative_to(lake.root), folder)


OF_FILES = (
    ("a manifest is edited, without its segment", "lake_rewritten", "the line of the manifest, which the node signed"),
    (
        "the segments, the state and the tree of files of a node are put back to those of an earlier hour",
        "lake_rewritten",
        "what an earlier audit saw of the tree; besides, the ledgers are `rolled_back`",
    ),
)
"""Damage of files, as the page lists it: what is done, the verdict, and what shows it."""
