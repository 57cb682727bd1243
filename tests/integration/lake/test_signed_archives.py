"""What a node with a key signs of the archive: only rows that it shipped itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from eventd.audit.coverage.file_trees import judge_files
from eventd.egress.lake.archive_signer import ArchiveSigner
from eventd.egress.lake.coverage import LakeCoverage, read_coverage, read_states
from eventd.egress.lake.state_signer import StateSigner
from eventd.errors import Unavailable
from eventd.lake.compaction import compacting
from eventd.lake.file_tree import TREES, LineKind, lines_folder, read_line, read_lines
from eventd.lake.layout import ARCHIVE, LANDING, archived, landing
from eventd.lake.ledger_files import DAY
from eventd.lake.manifest import SegmentRange, encode
from eventd.lake.reader import survey
from eventd.lake.schema import Ledger
from eventd.lake.storage import Storage, connect
from eventd.lake.writer import Segment, write_state
from eventd.runtime.chance import SYSTEM
from eventd.witnessing.node_keys import KEY_FILE, load_history_keys
from tests.support.lakes import EPOCH, NOON, ship, ship_state

NODE = "site-a"
LATER = NOON + 3 * DAY


class SigningNode:
    """A node with a key, with the lake that it has shipped to."""

    def __init__(self, storage: Storage, keys: Path, *, older: int = 0) -> None:
        """`older`: the number of segments from the time before it had a key."""
        self.storage = storage
        self.segments = [ship(storage, number, number + 1) for number in range(older)]
        load_history_keys(keys, SYSTEM)
        ship_state(storage, older)
        self.known = read_coverage(storage, [NODE], EPOCH)
        self.signer = StateSigner(storage, keys, SYSTEM)
        self.verified = set[str]()
        self.write_state()

    def write_state(self) -> None:
        self.known.states[NODE] = self.signer.write(self.known.states[NODE], self.known)

    def ship(self) -> Segment:
        after = self.segments[-1].upto if self.segments else 0
        segment = ship(self.storage, after, after + 1)
        manifest = segment.place.manifest
        self.signer.shipped(segment.place.name, NODE, self.storage.read_many([manifest])[manifest], self.known)
        self.segments.append(segment)
        return segment

    def archives(self, known: LakeCoverage | None = None) -> ArchiveSigner:
        return ArchiveSigner(self.storage, self.signer, known or self.known, self.verified)

    def lines(self, kind: LineKind) -> list[str]:
        state = self.known.states[NODE]
        assert state.tree is not None
        folder = lines_folder(NODE, EPOCH, state.tree.note.split("\n")[0].rpartition("/")[2])
        return [line.name for line in map(read_line, read_lines(self.storage, folder)) if line and line.kind is kind]

    def files(self, tree: str) -> list[str]:
        """Return the names of all segments of a folder of the lake."""
        return [one.path.removesuffix(".json") for one in self.storage.list(tree) if one.path.endswith(".json")]


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    folder = tmp_path / "keys"
    folder.mkdir()
    return folder


@pytest.fixture
def lake(tmp_path: Path) -> Storage:
    return connect(str(tmp_path / "lake"))


def edit(storage: Storage, segment: Segment) -> None:
    """Change a segment as another program does, so that its manifest fits."""
    storage.put(segment.place.manifest, encode(replace(segment.manifest, written_at=segment.manifest.written_at + 1)))


def test_a_node_archives_no_segment_that_another_program_changed(lake: Storage, keys: Path) -> None:
    node = SigningNode(lake, keys)
    first, changed, last = (node.ship() for _ in range(3))
    edit(lake, changed)
    for later in (LATER, LATER + 3 * DAY):
        list(compacting(lake, [NODE], now=later, after=1, signing=node.archives()))
    assert node.files(LANDING) == [changed.place.name], "the rest is archived, and this stays for the audit"
    assert len(node.files(ARCHIVE)) == 2
    assert node.lines(LineKind.ARCHIVE) == node.files(ARCHIVE)
    assert [first.upto, last.after] == [changed.after, changed.upto]


def test_a_node_archives_what_is_older_than_its_key_without_signing_it(lake: Storage, keys: Path) -> None:
    node = SigningNode(lake, keys, older=2)
    node.ship()
    assert sum(one.compacted for one in compacting(lake, [NODE], now=LATER, after=1, signing=node.archives())) == 3
    older, own = node.files(ARCHIVE)
    assert node.lines(LineKind.ARCHIVE) == [own]
    assert [*node.archives().verify([NODE])] != []
    assert [*node.archives().verify([NODE])] == [], "each is compared once"
    assert node.lines(LineKind.ARCHIVE) == [own], older


def test_an_outage_leaves_no_archive_of_another_program_unsigned(
    lake: Storage, keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = SigningNode(lake, keys)
    for _ in range(2):
        node.ship()
    list(compacting(lake, [NODE], now=LATER, after=1, most=1))
    verifying = node.archives().verify([NODE])
    next(verifying)
    with monkeypatch.context() as patch:
        patch.setattr(type(lake), "read_many", _unavailable)
        with pytest.raises(Unavailable):
            next(verifying)
    assert len([*node.archives().verify([NODE])]) == 1, "that which was not compared"
    assert node.lines(LineKind.ARCHIVE) == node.files(ARCHIVE)


def _unavailable(*_: object) -> None:
    raise Unavailable("the lake cannot be reached")


def test_a_state_of_an_earlier_epoch_that_another_program_changed_is_not_signed_again(
    lake: Storage, keys: Path
) -> None:
    node = SigningNode(lake, keys)
    node.ship()
    node.write_state()
    later = LakeCoverage("b" * 16, {}, {})
    place = archived(Ledger.EVENTS, NODE, EPOCH, 0, 1, day="2026-11-20")
    manifest = encode(node.segments[0].manifest)
    node.archives(later).announce(place, NODE, manifest)
    signed = read_states(lake, [NODE], EPOCH)[NODE]
    assert signed.tree != node.known.states[NODE].tree
    changed = replace(signed, head=signed.head + 1)
    write_state(lake, changed)
    node.archives(later).announce(place, NODE, manifest)
    assert read_states(lake, [NODE], EPOCH)[NODE] == changed, "with the note about the one before"


@pytest.mark.parametrize("change", [{"head": 7}, {"tree": None}])
def test_a_state_that_another_program_changed_is_noticed(lake: Storage, keys: Path, change: dict[str, Any]) -> None:
    node = SigningNode(lake, keys)
    state = node.known.states[NODE]
    kept = {one.node: one for one in node.signer.files(node.known)}
    again = StateSigner(lake, keys, SYSTEM, kept=kept)
    assert not again.is_changed(state)
    changed = replace(state, **change)
    write_state(lake, changed)
    assert again.is_changed(changed)
    assert not StateSigner(lake, Path(), SYSTEM, kept=kept).is_changed(changed), "a node without a key signs nothing"


def test_a_node_whose_key_file_was_deleted_signs_on_what_it_ships(lake: Storage, keys: Path) -> None:
    node = SigningNode(lake, keys)
    (keys / KEY_FILE).unlink()
    segment = node.ship()
    node.write_state()
    assert node.lines(LineKind.SHIP) == [segment.place.name]


def test_a_node_that_is_killed_when_it_begins_its_tree_is_not_accused(lake: Storage, keys: Path) -> None:
    node = SigningNode(lake, keys)
    lake.delete([one.path for one in lake.list(TREES)])
    found = judge_files(lake, survey(lake))
    assert (found.findings, [one.kind for one in found.doubts]) == ([], ["not signed"])
    again = StateSigner(lake, keys, SYSTEM)
    again.write(node.known.states[NODE], node.known)
    found = judge_files(lake, survey(lake))
    assert (found.findings, found.doubts, found.signed) == ([], [], {NODE})


def test_a_state_is_written_after_the_lines_that_it_is_signed_with(
    lake: Storage, keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = SigningNode(lake, keys)
    with monkeypatch.context() as patch:
        patch.setattr(type(lake), "put", _unavailable)
        with pytest.raises(Unavailable):
            node.signer.shipped(landing(Ledger.EVENTS, NODE, EPOCH, 0, 1, at=NOON).name, NODE, b"{}", node.known)
    written: list[str] = []
    put = type(lake).put
    monkeypatch.setattr(type(lake), "put", lambda self, path, data: (written.append(path), put(self, path, data)))
    node.write_state()
    assert [path.partition("/")[0] for path in written] == ["trees", "nodes"]


def test_a_node_reports_only_trees_that_it_adds_to(lake: Storage, keys: Path) -> None:
    node = SigningNode(lake, keys)
    assert [one.size for one in node.signer.files(node.known)] == [len(Ledger)]
    after_failure = StateSigner(lake, keys, SYSTEM)
    assert after_failure.files(node.known) == (), "the state in the lake may be that of another program"
    node.known.states[NODE] = after_failure.write(node.known.states[NODE], node.known)
    assert after_failure.files(node.known) == node.signer.files(node.known)


def test_a_node_that_starts_again_signs_no_removal_twice(lake: Storage, keys: Path) -> None:
    node = SigningNode(lake, keys)
    node.ship()
    withdrawn = {Ledger.EVENTS: SegmentRange(after=1, upto=1)}
    for number in range(3):
        signer = StateSigner(lake, keys, SYSTEM, retention=DAY)
        state = replace(node.known.states[NODE], segments=withdrawn, as_of=LATER + number)
        node.known.states[NODE] = signer.write(state, node.known)
        assert node.lines(LineKind.DROP) == [Ledger.EVENTS]
