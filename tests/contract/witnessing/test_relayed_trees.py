"""Trees of nodes that are no peers: a relay names and proves them, and only what a declared key signed is witnessed."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from eventd.log.core.eventlog import EventLog
from eventd.log.witnesses.cosignatures import prove_last
from eventd.log.witnesses.findings import read_findings, read_pending
from eventd.log.witnesses.keys import LOG, read_keys
from eventd.log.witnesses.witnessed import read_witnessed
from eventd.resources.group_configuration import GroupConfig, group_of
from eventd.resources.kinds.event_group import EventGroupSpec
from eventd.testing import ManualClock
from eventd.witnessing.asking import BUSY, REFUSED, UNREACHABLE, HistoryUntold
from eventd.witnessing.group_witness import MOST_WANTED, GroupKeys, GroupWitness, SigningGate
from eventd.witnessing.relayed_trees import RelayedTrees
from federation.history.entries import OpeningReason
from federation.history.exchange import NoteAnswer, NoteQuestion, answer_note
from federation.history.witnessing import KeySource
from tests.support.fresh import on_sqlite
from tests.support.growing_tree import FIRST, SECOND, GrowingTree
from tests.support.histories import emit, signed, start


class RelayPeer:
    """The part of a declared peer that is used here."""

    node_name = "hub"
    relay = False


@dataclass
class Relay:
    """The node `hub`, which relays trees of node `a`. It stands for `HistoryAsker`."""

    trees: dict[str, GrowingTree] = field(default_factory=dict)
    given: NoteAnswer | HistoryUntold | None = None
    asked: list[tuple[str, int]] = field(default_factory=list)

    def keep(self, tree: GrowingTree) -> GrowingTree:
        self.trees[str(tree.origin)] = tree
        return tree

    async def ask(self, _group: Any, _peer: Any, question: NoteQuestion, _kind: Any) -> tuple[NoteAnswer, KeySource]:
        self.asked.append((question.tree[-1], question.old))
        if isinstance(self.given, HistoryUntold):
            raise self.given
        if question.tree not in self.trees:
            raise HistoryUntold(REFUSED)
        return self.given or answer_note(self.trees[question.tree].offer(question.old)), KeySource.OWNED


class Node:
    """A node with the peer `hub`, which pins the key of `a`."""

    def __init__(self, log: EventLog, topic: int) -> None:
        self.log, self.topic, self.relay = log, topic, Relay()
        self.pins = {("a", LOG): FIRST.public_key().public_bytes_raw()}
        self.found: list[str] = []
        self.peers = {"hub": RelayPeer()}
        self.witness = GroupWitness(self.config, topic, log, no_keys, self, SigningGate())
        self.trees = RelayedTrees(self.witness, RelayPeer(), self.relay)  # type: ignore[arg-type]

    def history_pulled(self, group: str, peer: str, result: str) -> None: ...

    def history_cosigned(self, group: str, peer: str, result: str) -> None: ...

    def refused(self, group: str, reason: str) -> None: ...

    def history_found(self, group: str, kind: str) -> None:
        self.found.append(kind)

    def config(self) -> GroupConfig:
        declared = group_of("g", EventGroupSpec.model_validate({"nodeName": "n", "history": {"mode": "record"}}))
        return replace(declared, peers=self.peers, history_pins=self.pins)  # type: ignore[arg-type]

    async def hear(self, *trees: GrowingTree, teller: str = "hub") -> None:
        """Hear the last notes of trees, and ask about those that are wanted."""
        await self.witness.take_others([tree.note().encode().decode() for tree in trees], teller)
        while self.witness.wanted.are_due("hub"):
            await self.trees.ask_next()

    async def held(self) -> list[tuple[str, int]]:
        found = await self.log.database.read(read_witnessed, self.topic)
        return [(one.origin[-1], one.size) for one in found]


async def no_keys() -> GroupKeys:
    raise AssertionError("nothing is signed")


@pytest.fixture
async def node(log: EventLog) -> Node:
    return Node(log, await log.topic("group:g"))


@on_sqlite
async def test_a_tree_of_a_node_with_a_declared_key_is_witnessed_as_it_grows(node: Node) -> None:
    tree = node.relay.keep(GrowingTree().grow("x"))
    await node.hear(tree)
    assert await node.held() == [("t", 2)]
    await node.hear(tree)
    await node.hear(tree.grow("y", "z"))
    assert await node.held() == [("t", 4)]
    assert node.relay.asked == [("t", 0), ("t", 2)]
    assert node.found == []


@on_sqlite
async def test_without_a_declared_key_a_note_that_is_passed_on_is_only_compared(node: Node) -> None:
    node.pins = {}
    await node.hear(node.relay.keep(GrowingTree().grow("x")))
    assert (node.relay.asked, await node.held()) == ([], [])
    assert await node.log.database.read(read_keys, node.topic) == []


@on_sqlite
async def test_a_node_that_is_not_declared_is_not_asked(node: Node) -> None:
    await node.hear(node.relay.keep(GrowingTree()), teller="x")
    assert not node.witness.wanted.are_due("x")


@on_sqlite
async def test_a_relay_teaches_no_key(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    forged = node.relay.keep(GrowingTree("f", key=SECOND).grow("x"))
    for _ in range(2):
        await node.hear(forged)
    assert (await node.held(), node.found) == ([], [])
    assert await node.log.database.read(read_keys, node.topic) == [], "the key is not even noted as refused"
    assert [one.message for one in caplog.records] == ["history note refused"]


@on_sqlite
async def test_a_key_that_the_declared_one_has_signed_is_taken_over(node: Node) -> None:
    first = GrowingTree().grow("x")
    await node.hear(node.relay.keep(first))
    rotated = GrowingTree("r", SECOND, OpeningReason.KEY, first.previous_at(), first.signer)
    await node.hear(node.relay.keep(rotated))
    assert await node.held() == [("r", 1), ("t", 2)]
    [key] = await node.log.database.read(read_keys, node.topic)
    assert (key.source, key.key) == ("pinned", SECOND.public_key().public_bytes_raw())


@on_sqlite
async def test_two_roots_of_one_size_are_a_fork(node: Node) -> None:
    await node.hear(node.relay.keep(GrowingTree().grow("x", "y")))
    node.relay.keep(GrowingTree().grow("x", "other"))
    node.witness.wanted.want("hub", "eventd/g/a/" + "t" * 16)
    await node.trees.ask_next()
    assert (node.found, await node.held()) == (["fork"], [("t", 3)])


@on_sqlite
async def test_a_wrong_proof_of_a_relay_accuses_its_node_of_nothing_yet(node: Node) -> None:
    await node.hear(node.relay.keep(GrowingTree().grow("x", "y")))
    await node.hear(node.relay.keep(GrowingTree().grow("other", "y", "z")))
    assert await node.log.database.read(read_findings, node.topic) == []
    assert len(await node.log.database.read(read_pending, node.topic, "hub", {"hub"})) == 1, "other relays may prove it"
    assert await node.log.database.read(read_pending, node.topic, "a", {"a"}) != []
    assert await node.log.database.read(read_pending, node.topic, "hub", {"a", "hub"}) == [], "node a is asked itself"
    assert await node.held() == [("t", 3)]


@on_sqlite
async def test_a_rollback_is_found_over_a_relay(node: Node) -> None:
    first = GrowingTree().grow("x", "y")
    await node.hear(node.relay.keep(first))
    restored = GrowingTree("r", FIRST, OpeningReason.EPOCH, first.previous_at(2))
    await node.hear(node.relay.keep(restored))
    assert node.found == ["rolled_back"]


@on_sqlite
async def test_the_answer_is_about_the_tree_that_was_asked_for(node: Node) -> None:
    node.relay.given = answer_note(GrowingTree("o").offer())
    await node.hear(node.relay.keep(GrowingTree()))
    assert await node.held() == []


@on_sqlite
async def test_a_relay_without_the_tiles_is_asked_when_it_names_the_tree_again(node: Node) -> None:
    tree = node.relay.keep(GrowingTree())
    for given in (HistoryUntold(REFUSED), NoteAnswer()):
        node.relay.given = given
        await node.hear(tree)
    node.relay.given = None
    await node.hear(tree)
    assert await node.held() == [("t", 1)]
    node.relay.given = HistoryUntold(UNREACHABLE)
    with pytest.raises(HistoryUntold):
        await node.hear(tree.grow("x"))


@pytest.mark.parametrize("given", [NoteAnswer(), "held", HistoryUntold(REFUSED), HistoryUntold(BUSY)])
@on_sqlite
async def test_two_views_of_a_tree_are_compared_where_the_relay_proves_neither(
    node: Node, given: NoteAnswer | HistoryUntold | str
) -> None:
    seen, shown = GrowingTree().grow("x", "y"), GrowingTree().grow("x", "other", "z")
    await node.hear(node.relay.keep(seen))
    node.relay.given = answer_note(seen.offer()) if isinstance(given, str) else given
    with suppress(HistoryUntold):
        await node.hear(shown)
    [pending] = await node.log.database.read(read_pending, node.topic, "a")
    assert (pending.size, pending.other_size, node.found) == (3, 4, [])
    with suppress(HistoryUntold):
        await node.hear(GrowingTree().grow("x", "y", "w"))
    assert node.found == ["fork"], "the other view of the size is known"


@on_sqlite
async def test_a_note_of_a_tree_for_which_no_question_has_room_is_compared_at_once(node: Node) -> None:
    tree = node.relay.keep(GrowingTree().grow("x"))
    await node.hear(tree)
    for number in range(MOST_WANTED):
        node.witness.wanted.want("hub", f"eventd/g/z/{number:016d}")
    await node.witness.take_others([tree.grow("y").note().encode().decode()], "hub")
    assert len(await node.log.database.read(read_pending, node.topic, "a")) == 1


@on_sqlite
async def test_a_note_that_the_relay_has_proven_waits_for_no_proof(node: Node) -> None:
    tree = node.relay.keep(GrowingTree().grow("x"))
    await node.hear(tree)
    notes = [tree.grow(body).note().encode().decode() for body in "yz"]
    await node.witness.take_others(notes, "hub")
    await node.trees.ask_next()
    assert (await node.held(), await node.log.database.read(read_pending, node.topic, "a")) == ([("t", 4)], [])


@on_sqlite
async def test_a_declared_peer_that_offers_its_tree_is_not_asked_for_over_a_relay(
    node: Node, clock: ManualClock
) -> None:
    tree = node.relay.keep(GrowingTree())
    await node.hear(tree)
    direct = RelayPeer()
    direct.node_name = "a"
    node.peers["a"] = direct
    await node.hear(tree.grow("x"))
    assert node.relay.asked == [("t", 0)]
    clock.advance(61)
    await node.hear(tree)
    assert node.relay.asked == [("t", 0), ("t", 1)]


@on_sqlite
async def test_a_node_proves_the_last_checkpoint_of_its_own_tree(log: EventLog) -> None:
    topic, tree = await start(log)
    await emit(log, topic, "e1")
    await signed(log, topic)
    first = await log.database.read(prove_last, topic, tree.origin, 0)
    assert first is not None
    assert (first.opening, first.old) == (tree.opening, 0)
    await emit(log, topic, "e2")
    last = await signed(log, topic)
    offer = await log.database.read(prove_last, topic, tree.origin, 2)
    assert offer is not None
    assert (offer.note.encode().decode(), offer.old, offer.opening) == (last.note, 2, b"")
    for origin, old in ((tree.origin, 4), ("eventd/g/z/" + "z" * 16, 0)):
        assert await log.database.read(prove_last, topic, origin, old) is None
