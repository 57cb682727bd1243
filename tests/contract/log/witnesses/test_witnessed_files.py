"""What a witness stores and answers for offered checkpoints of the files that a node has written to a lake."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from eventd.lake.file_tree import FileTree, LineKind, TreeLine
from eventd.lake.manifest import NodeState
from eventd.lake.schema import Ledger
from eventd.lake.storage import connect
from eventd.log.core.eventlog import EventLog
from eventd.log.witnesses.findings import read_findings
from eventd.log.witnesses.keys import LOG, Pins
from eventd.log.witnesses.offers import OfferFrom
from eventd.log.witnesses.witnessed import forget_trees, read_news, read_of, read_witnessed, read_witnessed_files
from eventd.log.witnesses.witnessed_files import MOST_FILES, decide_files, find_files
from eventd.testing import NOW
from federation.history.lake_checkpoints import LakeOrigin, read_lake_checkpoint
from federation.history.notes import read_note
from federation.history.witnessing import KeySource, Offer

KEY, OTHER = (Ed25519PrivateKey.from_private_bytes(letter * 32) for letter in (b"1", b"2"))
STATE = NodeState(node="a", epoch="e", instance="i", began_at=1, as_of=2, head=0, complete_until=2)
BEGINS = len(Ledger)


class Files:
    """A tree of files in a lake of its own, and its offers."""

    def __init__(self, folder: Path, node: str = "a", tree: str = "0123456789abcdef") -> None:
        self.origin = LakeOrigin(node, "e", tree)
        self.tree = FileTree.begin(connect(str(folder)), self.origin, {})
        self.tree.flush()

    def drop(self, *numbers: int) -> None:
        self.tree.add(TreeLine(LineKind.DROP, "events", (str(number),)) for number in numbers)

    def offer(self, old: int = 0, key: Ed25519PrivateKey = KEY) -> Offer:
        signed = self.tree.sign(STATE, key).tree
        assert signed is not None
        note = read_note(signed.note.encode())
        size = read_lake_checkpoint(note.text).size
        return Offer(note, old, tuple(self.tree.prove(old, size)) if 0 < old < size else ())


class FilesWitnessLog:
    """The database of a witness that knows the key of a."""

    def __init__(self, log: EventLog, topic: int) -> None:
        self.log, self.topic = log, topic
        self.pins: Pins = {("a", LOG): KEY.public_key().public_bytes_raw()}
        self.now = NOW

    async def decide(self, offer: Offer, source: KeySource = KeySource.OWNED, node: str = "a", peers: str = "a") -> str:
        """Return the code of the answer; empty: the offer is cosigned."""
        self.now += 1
        offered = OfferFrom(self.topic, "g", node, source, self.pins, {peers}, offer)
        error = (await self.log.database.write(decide_files, offered, self.now)).error
        return "" if error is None else error.code

    async def held(self, files: Files) -> int:
        found = await self.log.database.read(find_files, self.topic, str(files.origin))
        return 0 if found is None else found.size

    async def found(self) -> list[tuple[str, str, int, int]]:
        rows = await self.log.database.read(read_findings, self.topic)
        return [(one.kind, one.origin, one.size, one.other_size) for one in reversed(rows)]


@pytest.fixture
async def witness(log: EventLog) -> FilesWitnessLog:
    return FilesWitnessLog(log, await log.topic("group:g"))


async def test_files_are_cosigned_as_their_tree_grows(witness: FilesWitnessLog, tmp_path: Path) -> None:
    files = Files(tmp_path)
    assert await witness.decide(files.offer()) == ""
    files.drop(1, 2)
    assert await witness.decide(files.offer()) == "conflict", "its proof begins at what is held"
    assert await witness.decide(files.offer(BEGINS)) == ""
    assert await witness.decide(files.offer(BEGINS + 2)) == "", "the same size is cosigned again"
    assert (await witness.held(files), await witness.found()) == (BEGINS + 2, [])


async def test_files_are_no_tree_of_the_group(witness: FilesWitnessLog, tmp_path: Path) -> None:
    await witness.decide(Files(tmp_path).offer())
    read, topic = witness.log.database.read, witness.topic
    assert (await read(read_of, topic, "a"), await read(read_witnessed, topic)) == ([], [])
    assert await read(read_news, topic, 0, "", 9) == []
    assert [(one.node, one.size) for one in await read(read_witnessed_files, topic)] == [("a", BEGINS)]
    assert await witness.log.database.write(forget_trees, topic, "a", NOW) == 1
    assert await witness.held(Files(tmp_path)) == 0
    assert await witness.found() == [("reset", str(Files(tmp_path).origin), BEGINS, 0)]


@pytest.mark.parametrize("source", [KeySource.OWNED, KeySource.SHARED])
async def test_files_that_do_not_continue_what_is_held_are_a_fork(
    witness: FilesWitnessLog, tmp_path: Path, source: KeySource
) -> None:
    honest, forked = Files(tmp_path / "honest"), Files(tmp_path / "forked")
    honest.drop(1)
    forked.drop(2)
    assert await witness.decide(honest.offer()) == ""
    assert await witness.decide(forked.offer(), source) == "forked"
    same = ("fork", str(honest.origin), BEGINS + 1, BEGINS + 1)
    assert await witness.found() == [same]
    forked.drop(3)
    assert await witness.decide(forked.offer(BEGINS + 1), source) == "forked"
    larger = ("fork", str(honest.origin), BEGINS + 1, BEGINS + 2)
    expected = [same, larger] if source is KeySource.OWNED else [same]
    assert await witness.found() == expected, "with a shared secret, anyone can put a wrong proof beside a true note"
    assert await witness.held(honest) == BEGINS + 1


async def test_an_older_copy_is_answered_with_the_note_that_is_held(witness: FilesWitnessLog, tmp_path: Path) -> None:
    files = Files(tmp_path)
    older = files.offer()
    files.drop(1)
    await witness.decide(files.offer())
    assert await witness.decide(older) == "conflict"
    assert (await witness.held(files), await witness.found()) == (BEGINS + 1, [])


async def test_files_of_another_node_or_with_another_key_are_refused(witness: FilesWitnessLog, tmp_path: Path) -> None:
    files = Files(tmp_path)
    assert await witness.decide(files.offer(), node="b", peers="b") == "wrong_sender"
    assert await witness.decide(files.offer(key=OTHER)) == "malformed"
    assert await witness.decide(files.offer(), peers="b") == "malformed", "and not 429: it is refused for good"
    assert await witness.decide(Offer(files.offer().note, 3)) == "conflict"
    witness.pins = {}
    assert await witness.decide(files.offer()) == "malformed", "the key is known from the trees of the group"
    assert await witness.held(files) == 0


async def test_the_trees_of_one_node_are_few(witness: FilesWitnessLog, tmp_path: Path) -> None:
    trees = [Files(tmp_path / f"{number}", tree=f"{number:016d}") for number in range(MOST_FILES + 1)]
    for one in trees:
        assert await witness.decide(one.offer()) == ""
    assert [await witness.held(one) > 0 for one in trees] == [False] + [True] * MOST_FILES
    assert await witness.decide(trees[0].offer()) == "malformed", "it could be another one than was cosigned"
