"""Offers to a peer that answers honestly, wrongly, or not at all: what is kept, counted, and asked next."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any
from zlib import crc32

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from eventd.egress.cursors import link_name
from eventd.log.core.eventlog import EventLog
from eventd.log.cursors.cursors import create_cursor
from eventd.log.history.open_tree import open_tree
from eventd.log.history.trees import read_checkpoint_of, read_tree
from eventd.log.witnesses.cosignatures import Witness, find_witness, read_held_sizes
from eventd.log.witnesses.decisions import DecideOffer, decide
from eventd.log.witnesses.findings import read_findings, read_pending
from eventd.log.witnesses.keys import read_keys
from eventd.log.witnesses.offers import OfferFrom
from eventd.resources.group_configuration import GroupConfig, group_of
from eventd.resources.kinds.event_group import EventGroupSpec
from eventd.runtime.clock import SECOND
from eventd.runtime.log_pause import MOST_REASONS
from eventd.store.engine.statements import execute
from eventd.testing import NOW, ManualClock
from eventd.witnessing.answering import HistoryAnswers
from eventd.witnessing.asking import BUSY, OLDER, REFUSED, UNREACHABLE, HistoryUntold
from eventd.witnessing.group_witness import GroupKeys, GroupWitness
from eventd.witnessing.offering import BUSY_SECONDS, OFFER_SECONDS, OLDER_SECONDS, V1_SECONDS, Offering, Offers
from eventd.witnessing.signing_gate import SigningGate
from federation.errors import KeyChanged, LeavesNotHeld
from federation.history.checkpoints import Checkpoint, read_origin, sign_checkpoint
from federation.history.cosignatures import cosign
from federation.history.exchange import (
    ConsistencyAnswer,
    ConsistencyQuestion,
    HistoryQuestion,
    KeysAnswer,
    KeysQuestion,
    TilesQuestion,
    WitnessAnswer,
    WitnessQuestion,
    ask_witness,
    encode_history,
    write_hashes,
)
from federation.history.lake_checkpoints import LakeCheckpoint, LakeOrigin, sign_lake_checkpoint
from federation.history.lake_witnessing import is_of_files
from federation.history.notes import LOG_KEY, WITNESS_KEY, NoteSigner, SignedNote, read_note
from federation.history.witnessing import KeySource, Offer, witness_name
from federation.keys import Key
from federation.signing import VerifiedRequest
from federation.wire import ErrorAnswer, HistoryQuery
from tests.support import plain_history as plain
from tests.support.fresh import on_sqlite
from tests.support.growing_tree import GrowingTree
from tests.support.histories import OWNER, emit, signed, start

PRIVATE, OTHER = (Ed25519PrivateKey.from_private_bytes(letter * 32) for letter in (b"7", b"8"))
TREE = GrowingTree(node="b").grow("x", "y", "z")
WITNESS = NoteSigner(witness_name("g", "b"), WITNESS_KEY, PRIVATE)
NEIGHBOUR = next(name for name in map(str, range(999)) if not (crc32(name.encode()) ^ crc32(b"b")) % MOST_REASONS)
"""A node whose log lines would share a pause with those of node `b`."""
KEYS = KeysAnswer(witness_key=WITNESS.key.text())


class Counted:
    """The metrics of a witness."""

    def __init__(self) -> None:
        self.results: Counter[str] = Counter()
        self.found: Counter[str] = Counter()

    def history_cosigned(self, group: str, peer: str, result: str) -> None:
        self.results[result] += 1

    def history_pulled(self, group: str, peer: str, result: str) -> None: ...

    def refused(self, group: str, reason: str) -> None: ...

    def history_found(self, group: str, kind: str) -> None:
        self.found[kind] += 1


@dataclass
class ScriptedPeer:
    """A peer whose answers are given: it stands for `HistoryAsker`."""

    keys: KeysAnswer | HistoryUntold = KEYS
    witness: Callable[[WitnessQuestion], WitnessAnswer | HistoryUntold] = lambda asked: cosigned(asked)
    proof: list[bytes] | HistoryUntold = field(default_factory=list)
    asked: list[HistoryQuestion] = field(default_factory=list)

    async def ask(self, _group: Any, _peer: Any, question: HistoryQuestion, _kind: Any) -> tuple[Any, KeySource]:
        self.asked.append(question)
        answer = self.keys if isinstance(question, KeysQuestion) else None
        if isinstance(question, WitnessQuestion):
            answer = self.witness(question)  # type: ignore[assignment]
        if isinstance(question, ConsistencyQuestion):
            answer = self.proof  # type: ignore[assignment]
        if isinstance(answer, HistoryUntold):
            raise answer
        if isinstance(answer, list):
            return ConsistencyAnswer(write_hashes(tuple(answer))), KeySource.SHARED
        return answer, KeySource.SHARED


def cosigned(asked: WitnessQuestion, signer: NoteSigner = WITNESS, text: str = "") -> WitnessAnswer:
    return WitnessAnswer(cosignature=cosign(text or read_note(asked.note.encode()).text, signer, 1000).line())


def files_note() -> str:
    """The note of a tree of files of the node."""
    stated = LakeCheckpoint(LakeOrigin("site-a", "e", "0123456789abcdef"), 1, b"r" * 32, b"s" * 32)
    signer = NoteSigner(str(stated.origin), LOG_KEY, OWNER.private)
    return sign_lake_checkpoint(stated, signer).encode().decode()


def tree_of(node: str) -> Offer:
    return GrowingTree(node=node).offer()


class Peer:
    """The part of a declared peer that offers use."""

    node_name = "b"
    protocol = "v2"
    relay = False


def config() -> GroupConfig:
    declared = group_of("g", EventGroupSpec.model_validate({"nodeName": "site-a", "history": {"mode": "record"}}))
    return replace(declared, peers={"b": Peer()})  # type: ignore[dict-item]


class Offered:
    """A node with a sealed tree, and its offers to the peer b."""

    def __init__(
        self, log: EventLog, topic: int, tree: int, peer: ScriptedPeer, gate: SigningGate | None = None
    ) -> None:
        self.log, self.topic, self.tree, self.peer = log, topic, tree, peer
        self.metrics, self.gate = Counted(), gate or SigningGate()
        witness = GroupWitness(config, topic, log, self.keys, self.metrics, self.gate)
        self.files = witness.files
        self.offering = Offering(witness, Peer(), peer)  # type: ignore[arg-type]

    async def keys(self) -> GroupKeys:
        return GroupKeys(OWNER, NoteSigner(witness_name("g", "site-a"), WITNESS_KEY, OTHER))

    async def step(self) -> float | None:
        return await self.offering._step()

    async def signers(self) -> list[str]:
        last = await self.log.database.read(read_checkpoint_of, self.tree)
        assert last is not None
        return [one.name for one in read_note(last.note.encode()).signatures]

    async def origin(self) -> str:
        return (await self.log.database.read(read_tree, self.tree)).origin

    async def witness(self) -> Witness | None:
        return await self.log.database.read(find_witness, self.tree, "b")


@pytest.fixture
def peer() -> ScriptedPeer:
    return ScriptedPeer()


@pytest.fixture
async def offered(log: EventLog, peer: ScriptedPeer) -> Offered:
    topic, tree = await start(log)
    await emit(log, topic, "x")
    await signed(log, topic)
    return Offered(log, topic, tree.id, peer)


@on_sqlite
async def test_a_cosignature_is_kept_and_the_tree_is_not_offered_again_before_it_grows(
    offered: Offered, peer: ScriptedPeer, log: EventLog
) -> None:
    assert await offered.step() is None
    assert (await offered.signers())[1:] == [WITNESS.name]
    assert await offered.step() is None
    assert [type(one).__name__ for one in peer.asked] == ["KeysQuestion", "WitnessQuestion"]
    await emit(log, offered.topic, "y")
    await signed(log, offered.topic)
    await offered.step()
    last = peer.asked[-1]
    assert isinstance(last, WitnessQuestion)
    assert (last.old, last.opening) == (2, None)
    assert offered.metrics.results == {"cosigned": 2}


@on_sqlite
async def test_the_first_offer_of_a_tree_has_the_last_note_of_the_one_before(
    offered: Offered, peer: ScriptedPeer, log: EventLog
) -> None:
    before = await log.database.read(read_checkpoint_of, offered.tree)
    assert before is not None
    rotated = OWNER._replace(private=OTHER)
    await log.database.write(open_tree, offered.topic, rotated, NOW)
    for number in "yz":
        await emit(log, offered.topic, number)
        await signed(log, offered.topic, rotated)
        await offered.step()
    first, second = (one for one in peer.asked if isinstance(one, WitnessQuestion))
    assert (first.notes, second.notes) == ((before.note,), ())


@on_sqlite
async def test_trees_of_others_that_are_witnessed_after_the_clock_was_ahead_are_shown_once_it_is_right(
    offered: Offered, peer: ScriptedPeer, log: EventLog, clock: ManualClock
) -> None:
    right = clock.now()
    for node, wall in (("c", right + 2 * 86_400 * SECOND), ("d", right)):
        clock.set_wall(wall)
        offer = OfferFrom(offered.topic, "g", node, KeySource.SHARED, {}, ("b",), tree_of(node))
        await log.database.write(decide, offer, clock.now())
        await emit(log, offered.topic, f"y{node}")
        await signed(log, offered.topic)
        await offered.step()
        asked = peer.asked[-1]
        assert isinstance(asked, WitnessQuestion)
        assert GrowingTree(node=node).note().encode().decode() in asked.notes


@on_sqlite
async def test_no_transaction_is_made_where_nothing_changes_and_offers_share_those_of_the_log(
    offered: Offered, peer: ScriptedPeer, log: EventLog, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await offered.step()
    shared, apart = Counter[str](), Counter[str]()
    start, write = log.database.start_write, log.database.write

    def start_write(*args: Any, **more: Any) -> Any:
        shared["transactions"] += 1
        return start(*args, **more)

    async def write_apart(fn: Callable[..., Any], *args: Any) -> Any:
        apart[fn.__name__] += 1
        return await write(fn, *args)

    await emit(log, offered.topic, "y")
    await signed(log, offered.topic)
    monkeypatch.setattr(log.database, "start_write", start_write)
    monkeypatch.setattr(log.database, "write", write_apart)
    clock.advance(3600)
    await offered.step()
    assert (shared["transactions"], apart) == (1, {}), "the cosignature is kept, and nothing has expired"
    clock.advance(3600)
    await offered.step()
    assert (shared["transactions"], apart) == (1, {})
    offers = [OfferFrom(offered.topic, "g", one, KeySource.SHARED, {}, ("b",), tree_of(one)) for one in "bcdefghi"]
    await asyncio.gather(*(log.submit(DecideOffer(one, 1)) for one in offers))
    assert shared["transactions"] <= 3, "the first one, and those that came meanwhile"


@pytest.mark.parametrize(
    "answer",
    [
        lambda asked: cosigned(asked, NoteSigner(WITNESS.name, WITNESS_KEY, OTHER)),
        lambda asked: cosigned(asked, text="eventd/g/site-a/another\n1\n\n"),
        lambda asked: cosigned(asked, NoteSigner("eventd/g/c/witness", WITNESS_KEY, PRIVATE)),
        lambda _asked: WitnessAnswer(cosignature="— x nonsense\n"),
        lambda asked: WitnessAnswer(cosignature=2 * cosigned(asked).cosignature),
    ],
    ids=["another-key", "of-another-note", "another-name", "malformed", "two-lines"],
)
@on_sqlite
async def test_a_wrong_cosignature_is_not_kept(
    offered: Offered, peer: ScriptedPeer, answer: Callable[[WitnessQuestion], WitnessAnswer]
) -> None:
    peer.witness = answer
    assert await offered.step() == 2.0
    assert len(await offered.signers()) == 1
    assert offered.metrics.results == {"invalid": 1}


@pytest.mark.parametrize(
    "key",
    [NoteSigner(WITNESS.name, LOG_KEY, PRIVATE), NoteSigner("eventd/g/c/witness", WITNESS_KEY, PRIVATE)],
    ids=["a-log-key", "of-another-node"],
)
@on_sqlite
async def test_what_is_not_a_witness_key_of_the_peer_is_not_learned(
    offered: Offered, peer: ScriptedPeer, key: NoteSigner
) -> None:
    peer.keys = KeysAnswer(witness_key=key.key.text())
    await offered.step()
    assert offered.metrics.results == {"invalid": 1}
    assert await offered.log.database.read(read_keys, offered.topic) == []


@on_sqlite
async def test_another_witness_key_than_the_known_one_is_refused_and_shown(
    offered: Offered, peer: ScriptedPeer
) -> None:
    await offered.step()
    peer.keys = KeysAnswer(witness_key=NoteSigner(WITNESS.name, WITNESS_KEY, OTHER).key.text())
    offered.offering._key = None
    await offered.step()
    assert offered.metrics.results == {"cosigned": 1, "key_changed": 1}
    [stored] = await offered.log.database.read(read_keys, offered.topic)
    assert stored.key == WITNESS.key.public
    assert stored.refused == OTHER.public_key().public_bytes_raw()


@on_sqlite
async def test_a_peer_that_holds_another_size_is_offered_the_tree_from_there(
    offered: Offered, peer: ScriptedPeer, log: EventLog
) -> None:
    first = await log.database.read(read_checkpoint_of, offered.tree)
    assert first is not None
    await emit(log, offered.topic, "y")
    await signed(log, offered.topic)
    conflict = HistoryUntold(REFUSED, ErrorAnswer(code="conflict", message="2 are held", note=first.note))
    peer.witness = lambda asked: conflict if asked.old != 2 else cosigned(asked)
    assert await offered.step() == 1.0
    assert await offered.step() is None
    assert [one.old for one in peer.asked if isinstance(one, WitnessQuestion)] == [0, 2]
    assert offered.metrics.results == {"conflict": 1, "cosigned": 1}


async def test_a_peer_that_has_forgotten_the_tree_is_offered_its_opening_entry(
    offered: Offered, peer: ScriptedPeer, log: EventLog
) -> None:
    await offered.step()
    await emit(log, offered.topic, "y")
    await signed(log, offered.topic)
    nothing = HistoryUntold(REFUSED, ErrorAnswer(code="conflict", message="nothing is held"))
    peer.witness = lambda asked: nothing if asked.old else cosigned(asked)
    assert await offered.step() == 1.0
    assert await offered.step() is None
    assert offered.metrics.results == {"cosigned": 2, "conflict": 1}


@on_sqlite
async def test_a_refusal_is_shown_with_its_reason(offered: Offered, peer: ScriptedPeer) -> None:
    peer.witness = lambda _asked: HistoryUntold(REFUSED, ErrorAnswer(code="key_changed", message="another key"))
    assert await offered.step() == 2.0
    found = await offered.witness()
    assert found is not None
    assert (found.state, found.detail) == ("refused", "key_changed: another key")


@on_sqlite
async def test_a_limit_of_the_witness_is_shown_without_the_code_of_malformed_requests(
    offered: Offered, peer: ScriptedPeer
) -> None:
    limit = "1024 trees are witnessed in the group, which is the limit"
    peer.witness = lambda _asked: HistoryUntold(REFUSED, ErrorAnswer(code="malformed", message=limit))
    await offered.step()
    found = await offered.witness()
    assert found is not None
    assert found.detail == limit


async def test_a_peer_whose_program_is_older_is_left_alone_and_holds_nothing_up(
    offered: Offered, peer: ScriptedPeer
) -> None:
    peer.keys = HistoryUntold(OLDER)
    offered.gate.ask(["b"])
    assert await offered.step() == OLDER_SECONDS
    assert offered.gate.is_open
    assert offered.metrics.results == {"older": 1}


async def test_a_witness_that_keeps_no_history_any_more_is_shown_as_such_until_it_keeps_one_again(
    offered: Offered, peer: ScriptedPeer, log: EventLog
) -> None:
    keys = peer.keys
    await offered.step()
    await emit(log, offered.topic, "y")
    await signed(log, offered.topic)
    peer.witness = lambda _asked: HistoryUntold(OLDER)
    assert await offered.step() == OLDER_SECONDS
    peer.keys = HistoryUntold(OLDER)
    assert await offered.step() == OLDER_SECONDS
    found = await offered.witness()
    assert found is not None
    assert (found.state, found.size) == ("older", 2)
    assert "keeps no history" in found.detail
    await log.database.write(execute, "UPDATE witnesses SET size = 3")  # another process has offered the rest
    peer.keys = keys
    assert await offered.step() is None
    found = await offered.witness()
    assert found is not None
    assert (found.state, found.detail) == ("", "")


async def test_a_peer_whose_link_speaks_v1_is_asked_again_when_it_speaks_another_protocol_or_an_hour_later(
    offered: Offered, peer: ScriptedPeer, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Peer, "protocol", "auto")
    name, write = link_name("g", "b"), offered.log.database.write
    await write(create_cursor, name, kind="peer", topic_id=offered.topic, position=0, now=NOW)
    peer.keys = HistoryUntold(OLDER)
    for protocol, asked in (("v1", 1), ("v1", 1), ("v2", 2), ("v2", 3)):
        await write(execute, "UPDATE cursors SET protocol = ?", (protocol,))
        assert await offered.step() == OLDER_SECONDS
        assert len(peer.asked) == asked
    await write(execute, "UPDATE cursors SET protocol = 'v1'")
    clock.advance(V1_SECONDS)
    for _ in range(2):
        await offered.step()
    assert len(peer.asked) == 4, "once an hour: nothing is sent over the link that could find another protocol"


@on_sqlite
async def test_a_peer_that_is_down_holds_up_signing_until_it_answers(offered: Offered, peer: ScriptedPeer) -> None:
    peer.keys = HistoryUntold(UNREACHABLE)
    offered.gate.ask(["b"])
    assert [await offered.step() for _ in range(8)] == [2, 4, 8, 16, 32, 60, 60, 60]
    assert not offered.gate.is_open
    peer.keys = KEYS
    await offered.step()
    assert offered.gate.is_open


@on_sqlite
async def test_what_a_peer_shows_is_compared_with_what_it_has_cosigned(offered: Offered, peer: ScriptedPeer) -> None:
    await offered.step()
    known = await offered.log.database.read(read_held_sizes, offered.topic)
    assert known == {"b": 2}
    again = Offered(offered.log, offered.topic, offered.tree, peer, SigningGate(known))
    again.gate.ask(["b", "c"])
    await again.step()
    assert again.gate.outstanding == ["b", "c"], "it shows nothing of the tree"
    last = await offered.log.database.read(read_checkpoint_of, offered.tree)
    assert last is not None
    peer.keys = KeysAnswer(witness_key=WITNESS.key.text(), notes=(last.note,))
    again.offering._key = None
    await again.step()
    assert again.gate.is_open


async def test_a_question_of_a_peer_is_no_answer_unless_it_shows_an_older_copy(offered: Offered) -> None:
    offered.gate.ask(["b"])
    answers, signing = HistoryAnswers(offered.offering._witness), OWNER.signer(read_origin(await offered.origin()))
    await answers._show_keys("b", KeysQuestion())
    assert not offered.gate.is_open
    later = sign_checkpoint(Checkpoint(read_origin(await offered.origin()), 9, bytes(32)), signing)
    await answers._show_keys("b", KeysQuestion(notes=(later.encode().decode(),)))
    assert offered.gate.is_open, "the tree is not continued"


@on_sqlite
async def test_a_question_about_leaves_that_a_restored_node_lacks_is_no_fault(
    offered: Offered, caplog: pytest.LogCaptureFixture
) -> None:
    answers = HistoryAnswers(offered.offering._witness)
    question = encode_history(TilesQuestion(tree=await offered.origin(), first=0, count=1, size=99))
    key = Key.hmac("k", b"s" * 32)
    asked = VerifiedRequest(HistoryQuery(from_node="b", to_node="a", group="g"), key, "", "", "", 0, 0)
    with caplog.at_level("INFO", "eventd.history"):
        for _ in range(2):
            with pytest.raises(LeavesNotHeld, match="signed leaves here, not 99") as refused:
                await answers.answer(asked, question)
    assert (refused.value.code, refused.value.is_fault) == ("malformed", False)
    assert [record.message for record in caplog.records] == ["history not held"], "once a minute"


@on_sqlite
async def test_each_change_of_a_key_that_is_noted_is_logged(offered: Offered, caplog: pytest.LogCaptureFixture) -> None:
    answers = HistoryAnswers(offered.offering._witness)
    for node in ("b", NEIGHBOUR):
        for key, trees in ((PRIVATE, "t"), (OTHER, "u")):
            question = ask_witness(GrowingTree(trees, key, node=node).offer())
            query = HistoryQuery(from_node=node, to_node="a", group="g")
            asked = VerifiedRequest(query, Key.hmac("k", b"s" * 32), "", "", "", 0, 0)
            with suppress(KeyChanged):
                await answers.answer(asked, encode_history(question))
    logged = [record.__dict__["peer"] for record in caplog.records if record.message == "history key changed"]
    assert logged == ["b", NEIGHBOUR]


async def pending(offered: Offered, other: SignedNote) -> None:
    """The node holds a tree of the peer at size 3, and another node shows this note of it."""
    offer = OfferFrom(offered.topic, "g", "b", KeySource.SHARED, {}, ("b",), TREE.offer(size=3))
    await offered.log.database.write(decide, offer, offered.log.clock.now())
    witness = offered.offering._witness
    await witness.take_others([other.encode().decode()], "c")


@pytest.mark.parametrize(
    "proof", [plain.proof(3, TREE.entries), [bytes(32)] * 3, []], ids=["right", "wrong", "missing"]
)
async def test_a_peer_proves_that_two_sizes_of_its_tree_fit_or_has_forked_it(
    offered: Offered, peer: ScriptedPeer, proof: list[bytes]
) -> None:
    await pending(offered, TREE.note())
    peer.proof = proof
    await offered.step()
    asked = peer.asked[-1]
    assert asked == ConsistencyQuestion(tree=str(TREE.origin), old=3, size=4)
    left = await offered.log.database.read(read_pending, offered.topic, "b")
    found = [one.kind for one in await offered.log.database.read(read_findings, offered.topic)]
    if proof == plain.proof(3, TREE.entries):
        assert (left, found, offered.metrics.found) == ([], [], {})
    elif proof:
        assert (left, found, offered.metrics.found) == ([], ["fork"], {"fork": 1})
    else:
        assert (len(left), found) == (1, []), "a proof of another length is no answer"


@on_sqlite
async def test_a_peer_that_does_not_cosign_is_asked_all_else(offered: Offered, peer: ScriptedPeer) -> None:
    await pending(offered, TREE.note())
    peer.proof = plain.proof(3, TREE.entries)
    peer.witness = lambda _asked: HistoryUntold(REFUSED, ErrorAnswer(code="key_changed", message="another key"))
    assert await offered.step() == 2.0, "it is offered again a little later"
    assert isinstance(peer.asked[-1], ConsistencyQuestion)
    assert await offered.log.database.read(read_pending, offered.topic, "b") == []


@on_sqlite
async def test_tiles_are_pulled_one_answer_after_the_other_from_a_peer_that_never_cosigns(
    offered: Offered, peer: ScriptedPeer, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer.witness = lambda _asked: HistoryUntold(REFUSED, ErrorAnswer(code="key_changed", message="another key"))

    async def pull() -> bool:
        return True

    monkeypatch.setattr(offered.offering._pulling, "pull", pull)
    for _ in range(8):
        assert await offered.step() == OFFER_SECONDS, "more tiles are due"
        clock.advance(OFFER_SECONDS)
    offers = [one for one in peer.asked if isinstance(one, WitnessQuestion)]
    assert len(offers) == 3, "after 0, 2 and 6 seconds"


@on_sqlite
async def test_a_note_with_two_roots_needs_no_proof(offered: Offered) -> None:
    await pending(offered, GrowingTree(node="b").grow("x", "other").note())
    assert offered.metrics.found == {"fork": 1}


@on_sqlite
async def test_a_peer_that_takes_no_files_now_is_asked_all_else(
    offered: Offered, peer: ScriptedPeer, clock: ManualClock
) -> None:
    offered.files.note_signed("site-a", files_note(), {})
    peer.witness = lambda asked: HistoryUntold(BUSY) if is_of_files(asked.note) else cosigned(asked)
    for _ in range(2):
        assert await offered.step() is None, "the next checkpoint of the group waits for nothing"
    assert offered.metrics.results == {"cosigned": 1, BUSY: 1}
    clock.advance(BUSY_SECONDS)
    await offered.step()
    assert offered.metrics.results == {"cosigned": 1, BUSY: 2}


@on_sqlite
async def test_a_pair_that_was_not_proven_for_a_day_is_unproven(offered: Offered, clock: ManualClock) -> None:
    await pending(offered, TREE.note())
    offered.peer.proof = HistoryUntold(UNREACHABLE)
    clock.advance(24 * 3600 + 1)
    await offered.step()
    [finding] = await offered.log.database.read(read_findings, offered.topic)
    assert (finding.kind, finding.size, finding.other_size) == ("unproven", 3, 4)
    assert offered.metrics.found == {"unproven": 1}


@on_sqlite
async def test_no_peer_is_asked_over_v1_and_nothing_waits_for_it(offered: Offered) -> None:
    class OverV1(Peer):
        protocol = "v1"

    started: list[str] = []
    offers = Offers(offered.offering._witness, offered.peer, lambda _make, name: started.append(name))  # type: ignore[arg-type, func-returns-value, return-value]
    offers.follow({"b": OverV1()})  # type: ignore[dict-item]
    assert (started, offered.gate.is_open) == ([], True)
