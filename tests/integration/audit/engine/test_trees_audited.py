"""The trees of real databases, audited: each kind of damage to the lake is found, each in a group of its own.

One audit is of all groups, because they do not concern each other.
"""

from __future__ import annotations

import re
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from eventd.audit.engine.request import AuditRequest
from eventd.audit.report.findings import Finding, Kind
from eventd.audit.report.report import Report
from eventd.lake.history_rows import write_hashes
from eventd.log.core.head import renew_epoch
from eventd.log.history.hints import keep_hints
from eventd.log.history.trees import find_open_tree
from eventd.runtime.clock import SECOND
from eventd.store.engine.statements import execute, insert_row
from eventd.testing import ManualClock, draft
from federation.history.checkpoints import Checkpoint, read_checkpoint, read_origin, sign_checkpoint
from federation.history.leaf_hints import LeafPlace
from federation.history.notes import LOG_KEY, NoteSigner, SignedNote, read_note
from tests.support.campaign.lake_files import LakeFiles, Row
from tests.support.lakes import NOON
from tests.support.local_spark import run_audit
from tests.support.sealed_nodes import KEY, open_sealed_node
from tests.support.stopped_nodes import ship

OTHER = Ed25519PrivateKey.from_private_bytes(b"2" * 32)
LATER = NOON + 600 * SECOND
GROUPS = ("sound", "text", "order", "gone", "hashes", "note", "fork", "late", "bare")
EVENTS = 520


@pytest.fixture
async def lake(migrated_sqlite_url: str, tmp_path: Path) -> LakeFiles:
    """The lake of a node with a sealed tree in each group; `late` has an unsealed event, `bare` one without a leaf."""
    node = await open_sealed_node(migrated_sqlite_url)
    for group in GROUPS:
        await node.declare(group=group)
        ids = [f"{group}-{number}" for number in range(1, EVENTS + 1)]
        await node.grow(group, *ids[:300])
        assert await node.seal(group)
        await node.grow(group, *ids[300:])
        assert await node.seal(group)
    await node.grow("late", "late-unsealed")
    topic = await node.log.topic("group:bare")
    await node.grow("bare", "bare-unsealed")
    sql = "UPDATE blocks SET tree = NULL, leaf = NULL WHERE topic_id = ? AND leaf > ?"
    await node.log.database.write(execute, sql, (topic, EVENTS))
    await node.close()
    ship(migrated_sqlite_url, tmp_path / "lake", now=LATER)
    return LakeFiles(tmp_path / "lake")


def audit(lake: LakeFiles, **more: Any) -> Report:
    return run_audit(
        AuditRequest(lake=str(lake.root), out=str(lake.root.parent / "out"), **more), clock=ManualClock(LATER)
    )


def findings(report: Report) -> list[tuple[str, str, int, int]]:
    return sorted((one.kind.value, one.group, one.first, one.last) for one in report.findings)


def of(group: str, **values: Any) -> Callable[[Row], bool]:
    return lambda row: row["group"] == group and all(row[name] == value for name, value in values.items())


def another_digest(row: Row) -> Row:
    return row | {"digest": b"x" * 32, "fingerprint": int.from_bytes(b"x" * 8)}


def close_seqs(lake: LakeFiles, group: str, leaf: int) -> None:
    """Remove an event, and number the later ones anew: no seq is missing."""
    (gone,) = [row for one in lake.segments("events", "a") for row in one.rows() if of(group, leaf=leaf)(row)]
    lake.remove("events", "a", of(group, leaf=leaf))

    def is_later(row: Row) -> bool:
        return bool(row["group"] == group and row["seq"] > gone["seq"])

    lake.change("events", "a", is_later, lambda row: row | {"seq": row["seq"] - 1})

    def lower(state: dict[str, Any]) -> None:
        for one in state["groups"]:
            one["last_seq"] -= one["group"] == group

    lake.set_state("a", lower)


def signed_again(row: Row, size: int) -> Row:
    """Return a checkpoint of the same tree with another root, signed with its key."""
    origin = read_checkpoint(read_note(row["content"].encode()).text).origin
    note = sign_checkpoint(Checkpoint(origin, size, b"r" * 32), NoteSigner(str(origin), LOG_KEY, KEY))
    return row | {"size": size, "position": 0, "content": note.encode().decode()}


def unsigned(row: Row) -> Row:
    """Return a checkpoint with another root, whose signature is that of the old one."""
    note = read_note(row["content"].encode())
    other = read_checkpoint(note.text)._replace(root=b"r" * 32)
    return row | {"content": SignedNote(other.text(), note.signatures).encode().decode()}


async def test_a_sound_lake_has_the_events_that_no_checkpoint_covers_and_nothing_else(lake: LakeFiles) -> None:
    report = audit(lake)
    assert findings(report) == [("unsealed", "bare", 521, 521), ("unsealed", "late", 521, 521)]
    assert {(one.group, one.size, one.proven, one.key) for one in report.trees} == {
        (group, EVENTS + 1, EVENTS + 1, "unverified") for group in GROUPS
    }
    again = audit(lake)
    assert (findings(again), again.work.segments_read) == (findings(report), 0), "verified tiles are remembered"


async def test_each_damage_is_found_where_it_is(lake: LakeFiles) -> None:
    lake.change("events", "a", of("text", leaf=300), another_digest)
    lake.change("events", "a", of("order", leaf=10), lambda row: row | {"leaf": 11_000})
    lake.change("events", "a", of("order", leaf=11), lambda row: row | {"leaf": 10})
    lake.change("events", "a", of("order", leaf=11_000), lambda row: row | {"leaf": 11})
    close_seqs(lake, "gone", 50)
    lake.change("history", "a", of("hashes", kind="hashes"), lambda row: row | {"content": write_hashes(bytes(64))})
    lake.change("history", "a", of("note", kind="checkpoint"), unsigned)
    (row,) = [row for one in lake.segments("history", "a") for row in one.rows() if of("fork", kind="checkpoint")(row)]
    lake.add("history", "a", [signed_again(row, 400)])
    assert findings(audit(lake)) == [
        ("erased", "gone", 50, 50),
        ("fork", "fork", 0, 399),
        ("rewritten", "hashes", 0, 255),
        ("rewritten", "hashes", 256, 511),
        ("rewritten", "note", 0, 520),
        ("rewritten", "order", 0, 255),
        ("rewritten", "text", 256, 511),
        ("unsealed", "bare", 521, 521),
        ("unsealed", "late", 521, 521),
    ]


async def test_a_database_that_was_taken_back_shows_in_its_next_tree(migrated_sqlite_url: str, tmp_path: Path) -> None:
    file, lake = Path(migrated_sqlite_url.removeprefix("sqlite:///")), tmp_path / "lake"
    node = await open_sealed_node(migrated_sqlite_url)
    await node.declare(group="g")
    await node.grow("g", "e1", "e2")
    await node.seal("g")
    await node.close()
    shutil.copyfile(file, tmp_path / "backup.db")
    node = await open_sealed_node(migrated_sqlite_url)
    await node.grow("g", "e3", "e4")
    await node.seal("g")
    await node.close()
    ship(migrated_sqlite_url, lake, now=LATER - 60 * SECOND)
    shutil.copyfile(tmp_path / "backup.db", file)
    node = await open_sealed_node(migrated_sqlite_url)
    await node.log.database.write(renew_epoch)
    await node.close()
    node = await open_sealed_node(migrated_sqlite_url)
    await node.grow("g", "e5")
    await node.seal("g")
    await node.close()
    ship(migrated_sqlite_url, lake, now=LATER)
    report = audit(LakeFiles(lake))
    assert ("rolled_back", "g", 3, 4) in findings(report)
    assert {one.kind.value for one in report.findings} == {"rolled_back", "epoch"}
    assert {(one.size, one.proven) for one in report.trees} == {(5, 5), (2, 2)}
    policy = (NoteSigner(f"eventd/g/a/{'z' * 16}", LOG_KEY, KEY).key,)
    assert {one.key for one in audit(LakeFiles(lake), policy=policy).trees} == {"pinned"}
    name = f"eventd/g/a/{report.trees[0].tree}"
    report = audit(LakeFiles(lake), policy=(NoteSigner(name, LOG_KEY, OTHER).key,))
    assert [one.key for one in report.trees].count("other") == 1
    assert "forged" in {one.kind.value for one in report.findings}


@pytest.mark.parametrize("key", [KEY, OTHER], ids=["signed", "claimed"])
async def test_a_tree_that_ends_before_a_size_that_its_node_signed_for_a_witness_was_taken_back(
    migrated_sqlite_url: str, tmp_path: Path, key: Ed25519PrivateKey
) -> None:
    lake = tmp_path / "lake"
    shutil.copyfile(migrated_sqlite_url.removeprefix("sqlite:///"), tmp_path / "b.db")
    node = await open_sealed_node(migrated_sqlite_url)
    await node.declare(group="g")
    await node.grow("g", "e1", "e2")
    await node.seal("g")
    topic = await node.log.topic("group:g")
    tree = await node.log.database.read(find_open_tree, topic)
    assert tree is not None
    await node.close()
    ship(migrated_sqlite_url, lake, now=LATER)
    origin = read_origin(tree.origin)
    note = sign_checkpoint(Checkpoint(origin, 9, b"r" * 32), NoteSigner(tree.origin, LOG_KEY, key)).encode().decode()
    witness = await open_sealed_node(f"sqlite:///{tmp_path / 'b.db'}")
    await witness.declare(group="g", node="b")
    await witness.publish(draft("b1", group="g", node="b"))
    row = {"topic_id": await witness.log.topic("group:g"), "origin": tree.origin, "node": "a", "log_key": tree.log_key}
    row |= {"size": 9, "root": b"r" * 32, "note": note, "opened_at": NOON, "witnessed_at": NOON - 600 * SECOND}
    await witness.log.database.write(insert_row, "witnessed", row)
    await witness.close()
    ship(f"sqlite:///{tmp_path / 'b.db'}", lake, now=LATER)
    report = audit(LakeFiles(lake))
    # Both databases are copies of one, which is the other finding.
    if key is KEY:
        assert findings(report) == [("epoch", "", 0, 0), ("rolled_back", "g", 3, 8)]
        assert "b has cosigned size 9" in report.findings[0].detail
    else:
        assert findings(report) == [("epoch", "", 0, 0)]
        (claim,) = [one for one in report.troubles if "claim" in one.message]
        assert (claim.where, "size 9 of the tree" in claim.message) == ("b", True)


async def test_an_id_that_two_sources_signed_is_found_where_a_peer_refused_one_of_the_events(
    migrated_sqlite_url: str, tmp_path: Path
) -> None:
    lake, other = tmp_path / "lake", f"sqlite:///{tmp_path / 'b.db'}"
    shutil.copyfile(migrated_sqlite_url.removeprefix("sqlite:///"), tmp_path / "b.db")
    node = await open_sealed_node(migrated_sqlite_url)
    await node.declare("b", group="g")
    await node.grow("g", "free", "taken")
    await node.seal("g")
    await node.settle("b", 0, 2, 1, group="g", exceptions=[(2, "id_conflict")])
    await node.close()
    ship(migrated_sqlite_url, lake, now=LATER)
    assert not squatted(audit(LakeFiles(lake))), "nothing shows that the peer has an event of another source"
    peer = await open_sealed_node(other)
    await peer.declare(group="g", node="b")
    await peer.grow("g", "taken", node="b")
    await peer.seal("g", node="b")
    await peer.close()
    ship(other, lake, now=LATER)
    (found,) = squatted(audit(LakeFiles(lake)))
    assert (found.group, found.source, found.first, found.ids) == ("g", "a", 2, ("taken",))
    assert "b refused the event of a " in found.detail
    assert re.search(r"the id was also used by b at .*, as leaf 1 of the tree", found.detail)


def squatted(report: Report) -> list[Finding]:
    return [one for one in report.findings if one.kind is Kind.SQUATTED]


@pytest.fixture
async def pair(migrated_sqlite_url: str, tmp_path: Path) -> LakeFiles:
    """The lake of a node with a sealed tree, and of a peer that has its events with hints at their leaves."""
    lake, other = tmp_path / "lake", f"sqlite:///{tmp_path / 'b.db'}"
    shutil.copyfile(migrated_sqlite_url.removeprefix("sqlite:///"), tmp_path / "b.db")
    with closing(sqlite3.connect(tmp_path / "b.db")) as connection, connection:
        connection.execute("UPDATE log_heads SET epoch = ?, instance = ?", ("b" * 16, "b" * 16))
    ids = [f"e{number}" for number in range(1, 6)]
    node = await open_sealed_node(migrated_sqlite_url)
    await node.declare(group="g")
    await node.grow("g", *ids)
    await node.seal("g")
    tree = await node.log.database.read(find_open_tree, await node.log.topic("group:g"))
    assert tree is not None
    await node.close()
    ship(migrated_sqlite_url, lake, now=LATER)
    peer = await open_sealed_node(other)
    await peer.declare(group="g", node="b")
    await peer.publish(*(draft(id, group="g", node="a", path="a") for id in ids), group="g")
    topic, places = await peer.log.topic("group:g"), [LeafPlace(1, 1, read_origin(tree.origin).tree)]
    await peer.log.database.write(keep_hints, topic, places, range(1, 6), range(1, 6))
    await peer.close()
    ship(other, lake, now=LATER)
    return LakeFiles(lake)


def other_end(row: Row) -> Row:
    """Return a row whose digest differs behind its fingerprint."""
    return row | {"digest": row["digest"][:8] + b"x" * 24}


def of_event(id: str) -> Callable[[Row], bool]:
    return lambda row: bool(row["id"] == id)


async def test_rows_of_other_nodes_are_compared_with_the_leaves_that_they_claim_to_be(pair: LakeFiles) -> None:
    assert audit(pair).findings == ()
    pair.change("events", "b", of_event("e2"), other_end)
    pair.change("events", "b", of_event("e3"), lambda row: row | {"leaf": 4})
    pair.change("events", "b", of_event("e4"), lambda row: row | {"leaf": 4_000})
    for _ in range(2):  # a row that differs is compared again each time
        report = audit(pair)
        altered, forged = report.findings
        assert (altered.kind, forged.kind) == (Kind.ALTERED, Kind.FORGED), "two contents, and which of them is proven"
        assert {(one.source, one.peer, one.ids) for one in (altered, forged)} == {("a", "b", ("e2",))}
        assert "is no leaf of its source" in forged.detail
    assert report.work.segments_read == 0


async def test_a_row_of_the_origin_that_was_changed_accuses_no_peer(pair: LakeFiles) -> None:
    pair.change("events", "a", of_event("e2"), other_end)
    assert {one.kind.value for one in audit(pair).findings} == {"altered", "rewritten"}


async def test_a_peer_is_not_accused_while_rows_of_the_source_are_missing(pair: LakeFiles) -> None:
    pair.change("events", "b", of_event("e2"), other_end)
    pair.remove("events", "a", of_event("e5"))
    assert "forged" not in {one.kind.value for one in audit(pair).findings}


async def test_an_erased_event_is_named_by_a_peer_that_has_it_if_the_tree_proves_it(pair: LakeFiles) -> None:
    close_seqs(pair, "g", 3)
    (found,) = audit(pair).findings
    assert (found.kind, found.source, found.first, found.last) == (Kind.ERASED, "a", 3, 3)
    assert found.detail.endswith("; the tree proves that leaf 3 is e3, which b has")
    pair.change("events", "b", of_event("e3"), other_end)
    erased, forged = audit(pair).findings
    assert (erased.kind, forged.kind, forged.ids) == (Kind.ERASED, Kind.FORGED, ("e3",)), "a claim that is not proven"
    assert "the tree proves" not in erased.detail
