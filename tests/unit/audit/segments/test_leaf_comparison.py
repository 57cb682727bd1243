"""Rows of other nodes are compared with those rows of a tree's node that the tree has proven."""

from __future__ import annotations

from pathlib import Path

import pytest

from eventd.audit.segments import leaf_comparison
from eventd.audit.segments.leaf_comparison import ComparedSegment, CutRange, LeafTask, compare_leaves, decode_comparison
from eventd.lake.layout import landing
from eventd.lake.schema import Ledger
from eventd.lake.storage import Storage, connect
from eventd.lake.writer import write_segment
from tests.support.lakes import NOON
from tests.support.ledger_rows import event_row, ledger_table

TREE = "t" * 16


def written(storage: Storage, node: str, digest: bytes) -> ComparedSegment:
    """Write a segment of a node with the events of the leaves 1 to 600, all with this digest."""
    place = landing(Ledger.EVENTS, node, node * 16, 0, 600, at=NOON)
    values = {"node": node, "epoch": node * 16, "own": node == "a", "tree": TREE, "digest": digest}
    values |= {"event_at": NOON, "recorded_at": NOON + ord(node)}
    rows = [event_row(number, leaf=number, **values) for number in range(1, 601)]
    segment = write_segment(storage, place, ledger_table(Ledger.EVENTS, rows), node=node, now=NOON, leaves=True)
    return ComparedSegment(segment.place.name, segment.manifest)


def test_rows_of_skipped_tiles_are_not_compared(tmp_path: Path) -> None:
    storage = connect(str(tmp_path / "lake"))
    origin, other = written(storage, "a", b"a" * 32), written(storage, "b", b"b" * 32)
    task = LeafTask("g", "a", TREE, 0, 600, [origin], [other], (1,))
    found = decode_comparison(compare_leaves(task, storage)).rows
    assert [one.leaf for one in found] == [*range(1, 256), *range(512, 600)]
    assert (found[0].peer, found[0].event_at, found[0].recorded_at) == ("b", NOON, NOON + ord("b"))


def test_each_range_of_a_task_has_a_quota_of_its_own_and_what_is_cut_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leaf_comparison, "LEAVES", 256)
    monkeypatch.setattr(leaf_comparison, "MOST_OTHERS", 100)
    storage = connect(str(tmp_path / "lake"))
    origin, *others = (written(storage, node, node.encode() * 32) for node in "abc")
    task = LeafTask("g", "a", TREE, 0, 530, [origin], others)
    found = decode_comparison(compare_leaves(task, storage))
    assert [(one.leaf, one.peer) for one in found.rows] == [
        *((leaf, "b") for first in (1, 256) for leaf in range(first, first + 100)),
        *((leaf, peer) for peer in "bc" for leaf in range(512, 530)),
    ]
    assert found.cut == [CutRange("g", "a", TREE, 0), CutRange("g", "a", TREE, 256)]
