"""Damage: files of segments are deleted, cut, swapped or rewritten."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

from tests.support.campaign.damage import Damage, Scene
from tests.support.campaign.damages.absence import GONE_DELIVERIES, GONE_EVENTS
from tests.support.campaign.lake_files import SegmentFile


def _corrupt(*ledgers: tuple[str, str]) -> str:
    """Return the query for a corrupt finding of the middle segment of these ledgers, by (ledger, node)."""
    return " UNION ".join(f"SELECT 'corrupt', '{node}', '*'" for _, node in ledgers)


def _on_middle(ledger: str, node: str, act: Callable[[SegmentFile], None]) -> Callable[[Scene], None]:
    """Return a damage of the middle one of a node's three segments of a ledger."""

    def inflict(scene: Scene) -> None:
        act(scene.lake.segments(ledger, node)[1])

    return inflict


def _cut(segment: SegmentFile) -> None:
    segment.data.write_bytes(segment.data.read_bytes()[:-100])


def _flip(segment: SegmentFile) -> None:
    data = bytearray(segment.data.read_bytes())
    data[len(data) // 2] ^= 0x10
    segment.data.write_bytes(data)


def _garble(segment: SegmentFile) -> None:
    segment.manifest.write_text('{"schema": 1,')


def _miscount(segment: SegmentFile) -> None:
    segment.describe(rows=segment.facts["rows"] - 1)


def _move_slots(segment: SegmentFile) -> None:
    """Say that the events of a segment are of other hours: an audit of their hours would not read it."""
    segment.describe(slots=[slot - 600 for slot in segment.facts["slots"]])


def _move_position(segment: SegmentFile) -> None:
    """Give an event a position that no link has passed."""
    first, *others = segment.rows()
    segment.write([first | {"position": 1 << 49}, *others])


def _repeat(segment: SegmentFile) -> None:
    """Put the first row in the place of the second one."""
    first, _, *others = segment.rows()
    segment.write([first, first, *others])


def _inflate(segment: SegmentFile) -> None:
    """Give all events one long subject, which compresses to almost nothing, and to 300 MB in memory."""
    rows = segment.rows()
    subject = "x" * ((300 << 20) // len(rows))
    segment.write([row | {"subject": subject} for row in rows])


def _swapped(scene: Scene) -> None:
    """Exchange the last row of a segment and the first row of the next one."""
    one, other = scene.lake.segments("events", "a")[:2]
    rows, next_rows = one.rows(), other.rows()
    one.write([*rows[:-1], next_rows[0]])
    other.write([rows[-1], *next_rows[1:]])


def _stranger(scene: Scene) -> None:
    """Put the rows of another node into a segment, and make the manifest fit."""
    mine, theirs = scene.lake.segments("deliveries", "a")[1], scene.lake.segments("deliveries", "b")[1]
    shutil.copyfile(theirs.data, mine.data)
    mine.describe(rows=theirs.facts["rows"], **mine.sums())


def _last(ledger: str, node: str) -> Callable[[Scene], None]:
    """Return a damage: the last segment of a ledger is gone, and the state is lowered as if it had never been."""

    def inflict(scene: Scene) -> None:
        before, last = scene.lake.segments(ledger, node)[-2:]
        last.remove()
        upto = before.facts["upto"]

        def lower(state: dict[str, Any]) -> None:
            state["books"][ledger] = upto
            state["segments"][ledger] = {"after": 0, "upto": upto}
            if ledger == "events":
                state["head"] = upto
                for group in state["groups"]:
                    seqs = (row["seq"] for row in before.rows() if row["group"] == group["group"])
                    group["last_seq"] = max(seqs)

        scene.lake.set_state(node, lower)

    return inflict


def _last_file(scene: Scene) -> None:
    scene.lake.segments("events", "c")[-1].remove()


def _node_gone(scene: Scene) -> None:
    scene.lake.remove_node("c")


def _copied_folder(scene: Scene) -> None:
    """Copy all files of `a` into the folder of a node of another name; nothing in them is changed."""
    for folder in [*scene.lake.root.glob("landing/*/dt=*/node=a-*"), *scene.lake.root.glob("nodes/a-*")]:
        shutil.copytree(folder, folder.with_name(folder.name.replace("a-ca978112", "z-12345678")))


def _seq_edited(scene: Scene) -> None:
    segment = scene.lake.segments("deliveries", "a")[1]
    first, *others = segment.rows()
    segment.write([first | {"seq": first["seq"] + 1}, *others])


def _archived_edited(scene: Scene) -> None:
    """Edit a row, and archive all segments of its ledger as compaction does."""
    parts = scene.lake.segments("deliveries", "a")
    _seq_edited(scene)
    scene.lake.archive(parts)


def _taken_back(scene: Scene) -> None:
    scene.lake.take_back("b", scene.federation.early)


def _all_taken_back(scene: Scene) -> None:
    for node in ("a", "b", "c"):
        scene.lake.take_back(node, scene.federation.early)


_UNPROVEN = r"missing or corrupt"

SEGMENTS = (
    Damage(
        "events-file-gone",
        "the file of a segment is deleted, its manifest stays",
        "its manifest",
        _on_middle("events", "a", lambda segment: segment.data.unlink()),
        wanted=_corrupt(("events", "a")),
        unproven=_UNPROVEN,
    ),
    Damage(
        "events-segment-gone",
        "a segment is deleted with its manifest",
        "the numbers that no other segment contains",
        _on_middle("events", "b", SegmentFile.remove),
        wanted=_corrupt(("events", "b")),
        unproven=_UNPROVEN,
    ),
    Damage(
        "events-manifest-gone",
        "the manifest of a segment is deleted",
        "the numbers that no segment with a manifest contains",
        _on_middle("events", "c", lambda segment: segment.manifest.unlink()),
        wanted=_corrupt(("events", "c")),
        unproven=_UNPROVEN,
    ),
    Damage(
        "deliveries-segment-gone",
        "a segment of deliveries is deleted with its manifest",
        "the numbers that no other segment contains",
        _on_middle("deliveries", "a", SegmentFile.remove),
        wanted=_corrupt(("deliveries", "a")),
        unproven=_UNPROVEN,
    ),
    Damage(
        "receipts-segment-gone",
        "a segment of receipts is deleted with its manifest",
        "the numbers that no other segment contains",
        _on_middle("receipts", "c", SegmentFile.remove),
        wanted=_corrupt(("receipts", "c")),
    ),
    Damage(
        "inbound-segment-gone",
        "a segment of the receiver's batches is deleted with its manifest",
        "the numbers that no other segment contains",
        _on_middle("inbound", "a", SegmentFile.remove),
        wanted=_corrupt(("inbound", "a")),
    ),
    Damage(
        "segment-cut",
        "the end of a file is cut off",
        "its size in the manifest",
        _on_middle("deliveries", "b", _cut),
        wanted=_corrupt(("deliveries", "b")),
        unproven=_UNPROVEN,
    ),
    Damage(
        "bit-flipped",
        "one bit of a file is flipped",
        "its digest in the manifest",
        _on_middle("events", "b", _flip),
        wanted=_corrupt(("events", "b")),
        unproven=_UNPROVEN,
    ),
    Damage(
        "manifest-garbled",
        "a manifest is no longer JSON",
        "reading it",
        _on_middle("deliveries", "c", _garble),
        wanted=_corrupt(("deliveries", "c")),
        unproven=_UNPROVEN,
    ),
    Damage(
        "manifest-miscounts",
        "a manifest states fewer rows than its file has",
        "the number of rows in the file",
        _on_middle("events", "a", _miscount),
        wanted=_corrupt(("events", "a")),
        unproven=_UNPROVEN,
    ),
    Damage(
        "slots-moved",
        "a manifest states that the events of its segment are of other hours",
        "the times of the events in the file",
        _on_middle("events", "a", _move_slots),
        wanted=_corrupt(("events", "a")),
        unproven=_UNPROVEN,
    ),
    Damage(
        "times-gone",
        "a manifest states no times",
        "the manifest itself: a segment has rows, and rows have times",
        _on_middle("events", "a", lambda segment: segment.describe(times=None)),
        wanted=_corrupt(("events", "a")),
        unproven=_UNPROVEN,
    ),
    Damage(
        "position-moved",
        "an event is given a position that no link has passed, with a manifest that fits",
        "the number of its row, which is its position",
        _on_middle("events", "a", _move_position),
        wanted=_corrupt(("events", "a")),
        unproven=_UNPROVEN,
    ),
    Damage(
        "event-repeated",
        "an event is in the ledger twice, in place of another one, with a manifest that fits",
        "the number that two rows share",
        _on_middle("events", "a", _repeat),
        wanted=_corrupt(("events", "a")),
        unproven=_UNPROVEN,
    ),
    Damage(
        "texts-inflated",
        "the texts of a small file take hundreds of megabytes in memory, with a manifest that fits",
        "the sizes of its pages, before they are decompressed",
        _on_middle("events", "a", _inflate),
        wanted=_corrupt(("events", "a")),
        unproven=_UNPROVEN,
    ),
    Damage(
        "rows-swapped",
        "rows are exchanged between two segments, with manifests that fit",
        "the numbers of the rows, which are outside of the ranges of the segments",
        _swapped,
        wanted=_corrupt(("events", "a")),
        unproven=_UNPROVEN,
    ),
    Damage(
        "rows-of-another-node",
        "a segment is replaced by that of another node, with a manifest that fits",
        "the node in the rows",
        _stranger,
        wanted=_corrupt(("deliveries", "a")),
        unproven=_UNPROVEN,
    ),
    Damage(
        "last-segment-gone",
        "the last segment of a ledger is deleted, the state stays",
        "the state, which promises its numbers",
        _last_file,
        wanted=_corrupt(("events", "c")),
        unproven=_UNPROVEN,
    ),
    Damage(
        "last-events-dropped",
        "the last segment of events is deleted, and the state lowered to fit",
        "the receipts and batches of the other nodes, which name later positions",
        _last("events", "a"),
        wanted="SELECT 'rolled_back', 'a', '*'",
        allowed=f"""
            SELECT 'erased', node, id FROM ({GONE_EVENTS}) UNION SELECT 'disagreement', node, id FROM ({GONE_EVENTS})
        """,
    ),
    Damage(
        "last-deliveries-dropped",
        "the last segment of deliveries is deleted, and the state lowered to fit",
        "the sender's receipts of the batches, and the peers' ledgers, which have the events",
        _last("deliveries", "b"),
        wanted="SELECT 'rolled_back', 'b', '*'",
        allowed=f"""
            SELECT 'erased', node, batch_id FROM before.receipts WHERE node = 'b'
            UNION SELECT 'erased', node, id FROM ({GONE_DELIVERIES})
            UNION SELECT 'disagreement', peer, id FROM ({GONE_DELIVERIES})
        """,
    ),
    Damage(
        "node-taken-back",
        "all files of one node are replaced by those of an earlier hour, its state included",
        "the age of its state; the receipts and batches of the other nodes, which are later",
        _taken_back,
        unproven="silent since",
        shrinks=True,
        named=frozenset("b"),
    ),
    Damage(
        "node-taken-back-remembered",
        "the same, after an audit that has seen the later rows",
        "what the earlier audit keeps in its folder",
        _taken_back,
        wanted="SELECT 'rolled_back', 'b', '*'",
        remembers=True,
    ),
    Damage(
        "lake-taken-back",
        "the whole lake is replaced by that of an earlier hour",
        "the age of the states",
        _all_taken_back,
        unproven="silent since",
        shrinks=True,
    ),
    Damage(
        "lake-taken-back-remembered",
        "the same, after an audit that has seen the later rows",
        "what the earlier audit keeps in its folder",
        _all_taken_back,
        wanted="SELECT 'rolled_back', node, '*' FROM (VALUES ('a'), ('b'), ('c')) n(node)",
        remembers=True,
    ),
    Damage(
        "segment-rewritten-remembered",
        "a column that nothing is compared with is edited in one row, after an audit that has read it",
        "the digest of the segment, which the earlier audit keeps in its folder",
        _seq_edited,
        unproven="was rewritten after an audit had read it",
        remembers=True,
    ),
    Damage(
        "archive-rewritten-remembered",
        "the same while segments are archived, in the segment that replaces them",
        "the sums of their rows, which the earlier audit keeps in its folder",
        _archived_edited,
        unproven="was rewritten after an audit had read it",
        remembers=True,
    ),
    Damage(
        "node-gone",
        "all files of a node are deleted",
        "the events and batches that other nodes have from it",
        _node_gone,
        unproven="has no readable state",
        named=frozenset("c"),
        shrinks=True,
    ),
    Damage(
        "folder-copied",
        "the files of a node are copied into a folder for another name",
        "the node's name in manifests and states",
        _copied_folder,
        wanted="SELECT 'corrupt', 'z-12345678', '*'",
        allowed="SELECT 'corrupt', 'a', '*'",
    ),
)
