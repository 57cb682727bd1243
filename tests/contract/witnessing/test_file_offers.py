"""The files that a node has written to its lake are offered to a peer, which cosigns them or shows what it holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from eventd.lake.file_tree import FileTree, LineKind, TreeLine, lines_folder
from eventd.lake.manifest import NodeState
from eventd.lake.schema import Ledger
from eventd.lake.storage import connect
from eventd.log.core.eventlog import EventLog
from eventd.log.witnesses.findings import read_findings
from eventd.log.witnesses.keys import LOG
from eventd.log.witnesses.offers import OfferFrom
from eventd.log.witnesses.witnessed import forget_trees
from eventd.log.witnesses.witnessed_files import decide_files
from eventd.testing import NOW
from eventd.witnessing.asking import REFUSED, HistoryUntold
from eventd.witnessing.file_offers import FileOffering
from eventd.witnessing.group_witness import GroupKeys, GroupWitness
from eventd.witnessing.own_files import FilesWitness, OwnFiles
from eventd.witnessing.signing_gate import SigningGate
from federation.errors import OtherCheckpoint
from federation.history.cosignatures import cosign, cosignature_times
from federation.history.exchange import WitnessAnswer, WitnessQuestion, read_offer
from federation.history.lake_checkpoints import LakeOrigin, read_lake_checkpoint
from federation.history.notes import WITNESS_KEY, NoteSigner, read_note
from federation.history.witnessing import KeySource, witness_name
from federation.wire import ErrorAnswer
from tests.contract.witnessing.test_offering import Counted, Peer, config
from tests.support.fresh import on_sqlite
from tests.support.histories import OWNER, start

WITNESS = NoteSigner(witness_name("g", "b"), WITNESS_KEY, Ed25519PrivateKey.from_private_bytes(b"7" * 32))
STATE = NodeState(node="site-a", epoch="e", instance="i", began_at=1, as_of=2, head=0, complete_until=2)
ORIGIN = LakeOrigin("site-a", "e", "0123456789abcdef")
BEGINS = len(Ledger)


class HonestPeer:
    """A peer that decides as a node does: it stands for `HistoryAsker`. It holds its trees in a topic of its own."""

    def __init__(self, log: EventLog, topic: int) -> None:
        self.log, self.topic = log, topic
        self.refuses: ErrorAnswer | None = None
        self.asked: list[tuple[int, str]] = []
        """The old sizes that were offered, and how each offer was answered."""

    async def ask(self, _group: Any, _peer: Any, question: WitnessQuestion, _kind: Any) -> tuple[Any, KeySource]:
        if self.refuses is not None:
            raise HistoryUntold(REFUSED, self.refuses)
        pins, offer = {("site-a", LOG): OWNER.private.public_key().public_bytes_raw()}, read_offer(question)
        offered = OfferFrom(self.topic, "g", "site-a", KeySource.OWNED, pins, {"site-a"}, offer)
        error = (await self.log.database.write(decide_files, offered, NOW)).error
        self.asked.append((offer.old, "" if error is None else error.code))
        if error is not None:
            note = error.note if isinstance(error, OtherCheckpoint) else ""
            raise HistoryUntold(REFUSED, ErrorAnswer(code=error.code, message=error.message, note=note))
        line = cosign(offer.note.text, WITNESS, 1000).line()
        return WitnessAnswer(cosignature=line), KeySource.OWNED


class Shipping:
    """A node that ships to a lake, and offers its files to the peer b."""

    def __init__(self, log: EventLog, topic: int, peer: HonestPeer, folder: Path) -> None:
        self.log, self.topic, self.peer = log, topic, peer
        self.tree = FileTree.begin(connect(str(folder)), ORIGIN, {})
        self.metrics = Counted()
        self.restart()

    def restart(self) -> None:
        """Forget what witnesses hold, as at the start of a node."""
        self.files = OwnFiles()
        witness = GroupWitness(config, self.topic, self.log, self.keys, self.metrics, SigningGate(), files=self.files)
        self.offering = FileOffering(witness, Peer(), self.peer)  # type: ignore[arg-type]

    async def keys(self) -> GroupKeys:
        return GroupKeys(OWNER, WITNESS)

    def ship(self, *numbers: int) -> None:
        """Add lines, and sign a state, as the shipping process does."""
        self.tree.add(TreeLine(LineKind.DROP, "events", (str(number),)) for number in numbers)
        signed = self.tree.sign(STATE, OWNER.private).tree
        assert signed is not None
        last = read_lake_checkpoint(read_note(signed.note.encode()).text).size
        sizes = [one for one in self.files.held_sizes().get("site-a", ()) if one < last]
        self.files.note_signed("site-a", signed.note, {one: tuple(self.tree.prove(one, last)) for one in sizes})

    async def offer(self) -> list[tuple[int, str]]:
        """Offer what is due; return what the peer was asked, and how it answered."""
        begin = len(self.peer.asked)
        while await self.offering.offer(WITNESS.key):
            pass
        return self.peer.asked[begin:]

    def cosigned(self) -> int:
        """Return the size of the last checkpoint that the peer cosigned."""
        note = read_note(self.files.cosigned()["site-a"].encode())
        assert cosignature_times(note, [WITNESS.key]) == {WITNESS.key: 1000}
        return read_lake_checkpoint(note.text).size

    async def found(self) -> list[tuple[str, int]]:
        return [(one.kind, one.other_size) for one in await self.log.database.read(read_findings, self.topic)]


@pytest.fixture
async def shipping(log: EventLog, tmp_path: Path) -> Shipping:
    topic, _ = await start(log)
    return Shipping(log, topic, HonestPeer(log, await log.topic("group:other")), tmp_path)


@on_sqlite
async def test_each_size_is_offered_once_from_what_the_peer_holds(shipping: Shipping) -> None:
    assert await shipping.offer() == [], "nothing is shipped yet"
    shipping.ship()
    assert await shipping.offer() == [(0, "")]
    shipping.ship()
    assert await shipping.offer() == [], "the files are the same"
    shipping.ship(1, 2)
    assert await shipping.offer() == [(BEGINS, "")]
    assert (shipping.cosigned(), await shipping.found()) == (BEGINS + 2, [])


@on_sqlite
async def test_after_a_restart_the_peer_shows_what_it_holds_and_gets_a_proof_from_there(shipping: Shipping) -> None:
    shipping.ship(1)
    await shipping.offer()
    shipping.restart()
    shipping.ship(2)
    assert await shipping.offer() == [(0, "conflict")], "the proof from there comes with the next state"
    shipping.ship(2, 3)
    assert await shipping.offer() == [(BEGINS + 1, "")]
    shipping.restart()
    shipping.ship()
    assert await shipping.offer() == [(0, "conflict"), (BEGINS + 4, "")], "the same size needs no proof"
    assert (shipping.cosigned(), await shipping.found()) == (BEGINS + 4, [])


async def test_an_older_copy_of_the_files_in_the_lake_is_found(shipping: Shipping, tmp_path: Path) -> None:
    shipping.ship(1, 2, 3)
    await shipping.offer()
    older = FileTree.begin(connect(str(tmp_path / "older")), ORIGIN, {})
    shipping.tree = older
    shipping.restart()
    shipping.ship(1)
    assert await shipping.offer() == [(0, "conflict")]
    assert await shipping.found() == [("older_copy", BEGINS + 3)]
    shipping.ship(4, 5)
    assert await shipping.offer() == [], "what it would offer looks like a fork"
    assert await shipping.found() == [("older_copy", BEGINS + 3)], "it is found once"
    shipping.ship(6)
    assert await shipping.offer() == [], "no proof leads there from what the peer holds"


@on_sqlite
async def test_lines_that_another_program_has_changed_are_not_offered(shipping: Shipping, tmp_path: Path) -> None:
    shipping.ship(1, 2)
    await shipping.offer()
    shipping.ship(4)
    lake, path = connect(str(tmp_path)), f"{lines_folder(*ORIGIN)}/000000000.txt"
    changed = lake.read_many([path])[path].replace(b"drop events 2", b"drop events 3")
    lake.put(path, changed)
    shipping.ship()
    assert await shipping.offer() == [], "it would look like a fork of the node"
    assert await shipping.found() == [("older_copy", BEGINS + 2)]


@pytest.mark.parametrize("code", ["forked", "conflict"])
async def test_an_earlier_note_in_a_refusal_does_not_show_an_older_copy(shipping: Shipping, code: str) -> None:
    """A refusal is not signed: each program on the way to the peer can send one, with a note that the node signed."""
    shipping.ship(1)
    await shipping.offer()
    earlier = shipping.files.cosigned()["site-a"]
    for number in range(2, 4):
        shipping.ship(number)
        shipping.peer.refuses = ErrorAnswer(code=code, message="", note=earlier)
        assert await shipping.offer() == []
        assert await shipping.found() == []
    shipping.peer.refuses = None
    shipping.ship(4)
    assert await shipping.offer() == [(BEGINS + 1, "")]


async def test_a_refusal_with_another_root_of_the_size_shows_an_older_copy(shipping: Shipping, tmp_path: Path) -> None:
    shipping.ship(1)
    await shipping.offer()
    shipping.tree = FileTree.begin(connect(str(tmp_path / "older")), ORIGIN, {})
    shipping.restart()
    shipping.ship(2)
    assert await shipping.offer() == [(0, "forked")]
    assert await shipping.found() == [("older_copy", BEGINS + 1)]


@on_sqlite
async def test_a_peer_that_has_forgotten_the_files_is_offered_all_of_them(shipping: Shipping) -> None:
    shipping.ship(1)
    await shipping.offer()
    await shipping.log.database.write(forget_trees, shipping.peer.topic, "site-a", NOW)
    shipping.ship(2)
    assert await shipping.offer() == [(BEGINS + 1, "conflict"), (0, "")]
    shipping.peer.refuses = ErrorAnswer(code="conflict", message="", note="")
    shipping.ship(3)
    assert await shipping.offer() == [], "it is offered once"


@on_sqlite
async def test_a_peer_that_refuses_is_asked_again_when_the_files_have_changed(shipping: Shipping) -> None:
    shipping.ship(1)
    shipping.files.give_up(FilesWitness("g", "site-a", "b"))
    assert await shipping.offer() == []
    shipping.ship(2)
    assert await shipping.offer() == [(0, "")]
