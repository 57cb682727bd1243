"""Proofs of many leaves for peers, from the tiles of this node and of those that it relays, on both databases."""

from __future__ import annotations

import pytest

from eventd.log.core.eventlog import EventLog
from eventd.log.core.scan import scan
from eventd.log.history import bulk_proving
from eventd.log.history.bulk_proving import answer_prove, answer_range
from eventd.log.history.relayed import RelayedCheckpoint, ask_tiles, check_tiles, keep_tiles
from eventd.log.history.trees import StoredCheckpoint, Tree, read_tree
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import execute
from eventd.testing import NOW
from federation.digest import digest
from federation.errors import HistoryError
from federation.history.bulk_answers import check_entries, check_range
from federation.history.entries import event_entry
from federation.history.exchange import ProveAnswer, ProveQuestion, RangeAnswer, RangeQuestion, TilesAnswer
from federation.history.forms import write_base64
from federation.history.merkle import hash_leaf
from federation.history.notes import LOG_KEY, read_vkey
from tests.support import plain_history as plain
from tests.support.growing_tree import GrowingTree
from tests.support.histories import emit, signed, start

EVENTS = 300


class ProvingNode:
    """A node with a tree of 300 events, which are all in its checkpoint of size 301."""

    def __init__(self, log: EventLog, topic: int, tree: Tree, checkpoint: StoredCheckpoint) -> None:
        self.log, self.topic, self.tree, self.checkpoint = log, topic, tree, checkpoint
        self.key = read_vkey(tree.log_key, LOG_KEY)

    async def prove(self, question: ProveQuestion) -> ProveAnswer:
        return await self.log.database.read(answer_prove, self.topic, question)

    async def range(self, question: RangeQuestion) -> RangeAnswer:
        return await self.log.database.read(answer_range, self.topic, question)

    async def bodies(self, after: int = 0) -> list[bytes]:
        """The stored events after a position, in order."""

        def read(conn: Connection) -> list[bytes]:
            return [body.encode() for block in scan(conn, self.topic, after, 1 << 40) for body in block.bodies()]

        return await self.log.database.read(read)

    async def leaves(self) -> list[bytes]:
        """The leaf hashes of all stored events, in order."""
        return [hash_leaf(event_entry(digest(body))) for body in await self.bodies()]


@pytest.fixture
async def node(log: EventLog) -> ProvingNode:
    topic, tree = await start(log)
    await emit(log, topic, *(f"e{number}" for number in range(1, EVENTS + 1)))
    return ProvingNode(log, topic, tree, await signed(log, topic))


async def test_any_range_of_the_leaves_is_proven_with_few_hashes(node: ProvingNode) -> None:
    leaves = await node.leaves()
    for first, last in ((1, 300), (1, 1), (200, 299), (255, 256), (300, 300)):
        question = RangeQuestion(tree=node.tree.origin, first=first, last=last)
        answer = await node.range(question)
        assert check_range(question, answer, leaves[first - 1 : last], node.key).size == 301
        assert len(answer.proof) <= 16


async def test_entries_are_found_by_id_digest_and_index_and_proven_together(
    node: ProvingNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_proving, "TILES_AT_ONCE", 1)
    leaves = await node.leaves()
    ninth = (await node.bodies())[8]
    question = ProveQuestion(
        tree=node.tree.origin,
        ids=("e7", "unknown", "e300", "e7"),
        digests=(write_base64(digest(ninth)), write_base64(bytes(32))),
        indices=(1, 301, 256),
        size=301,
    )
    answer = await node.prove(question)
    assert answer.indices == (7, 0, 300, 7, 9, 0, 1, 0, 256)
    at = [leaves[index - 1] if index else bytes(32) for index in answer.indices]
    checkpoint, proven = check_entries(question, answer, at, node.key)
    assert (checkpoint.size, len(proven)) == (301, 6)


async def test_a_smaller_checkpoint_proves_only_what_it_covers(node: ProvingNode) -> None:
    await emit(node.log, node.topic, "later")
    await signed(node.log, node.topic)
    asked = ProveQuestion(tree=node.tree.origin, ids=("e300", "later"), indices=(301,))
    assert (await node.prove(asked)).indices == (300, 301, 301)
    before = ProveQuestion(tree=node.tree.origin, ids=("e300", "later"), indices=(301,), size=301)
    answer = await node.prove(before)
    assert (answer.indices, answer.note) == ((300, 0, 0), node.checkpoint.note)


async def test_what_no_tile_has_any_more_is_not_proven_and_the_rest_is(node: ProvingNode) -> None:
    await node.log.database.write(lambda conn: execute(conn, "DELETE FROM tiles WHERE level = 0 AND number = 0"))
    question = ProveQuestion(tree=node.tree.origin, ids=("e7", "e300"), indices=(8,))
    answer = await node.prove(question)
    assert answer.indices == (0, 300, 0)
    check_entries(question, answer, [bytes(32), (await node.leaves())[299], bytes(32)], node.key)
    with pytest.raises(HistoryError) as refused:
        await node.range(RangeQuestion(tree=node.tree.origin, first=7, last=300))
    assert refused.value.reason == "tile_missing"


async def test_an_entry_that_lies_too_far_back_is_not_searched_for(
    node: ProvingNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_proving, "MOST_SEARCHED", 1)
    first = (await node.bodies())[0]
    question = ProveQuestion(tree=node.tree.origin, ids=("e1",), digests=(write_base64(digest(first)),))
    found = await node.prove(question)
    assert found.indices == (1, 1), "its place was found by the id"
    assert (await node.prove(ProveQuestion(tree=question.tree, digests=question.digests))).indices == (0,)


async def test_a_relay_proves_entries_of_a_tree_whose_tiles_it_keeps(node: ProvingNode) -> None:
    await emit(node.log, node.topic, *(f"r{number}" for number in range(5)), path="a")
    tree = GrowingTree()
    tree.entries += [event_entry(digest(body)) for body in await node.bodies(after=EVENTS)]
    await pull(node, tree)
    question = ProveQuestion(tree=str(tree.origin), ids=("e1", "r0", "r4"), indices=(2,))
    answer = await node.prove(question)
    assert answer.indices == (0, 1, 5, 2)
    at = [bytes(32), *(plain.digest(b"\0" + tree.entries[index]) for index in answer.indices[1:])]
    check_entries(question, answer, at, tree.signer.key)
    ranged = RangeQuestion(tree=str(tree.origin), first=1, last=5)
    check_range(ranged, await node.range(ranged), [hash_leaf(entry) for entry in tree.entries[1:]], tree.signer.key)


async def pull(node: ProvingNode, tree: GrowingTree) -> None:
    """Keep the tiles of another node's tree."""
    stated = tree.checkpoint()
    note = tree.note().encode().decode()
    due = RelayedCheckpoint(str(tree.origin), tree.signer.key.text(), stated.size, stated.root, note, NOW)
    tiles = (plain.b64(b"".join(plain.digest(b"\0" + entry) for entry in tree.entries)),)
    answer = TilesAnswer(tiles=tiles, opening=tree.entries[0][1:].decode())
    checked = await node.log.database.read(check_tiles, due, None, ask_tiles(due, None), answer)
    assert await node.log.database.write(keep_tiles, node.topic, checked, NOW)


async def test_damaged_tiles_are_found_here_and_not_by_the_peer(node: ProvingNode) -> None:
    def damage(conn: Connection) -> None:
        execute(conn, "UPDATE tiles SET hashes = ? WHERE level = 0 AND number = 1", (bytes(45 * 32),))

    await node.log.database.write(damage)
    with pytest.raises(HistoryError) as refused:
        await node.prove(ProveQuestion(tree=node.tree.origin, indices=(299,)))
    assert refused.value.reason == "root"


@pytest.mark.parametrize("size", [300, 302])
async def test_a_size_without_a_checkpoint_and_a_tree_that_is_unknown_are_refused(node: ProvingNode, size: int) -> None:
    origin = (await node.log.database.read(read_tree, node.tree.id)).origin
    for asked, of in ((size, origin), (301, origin[:-1])):
        for act in (
            node.range(RangeQuestion(tree=of, first=1, last=2, size=asked)),
            node.prove(ProveQuestion(tree=of, indices=(1,), size=asked)),
        ):
            with pytest.raises(HistoryError) as refused:
                await act
            assert refused.value.reason == "not_held"


async def test_a_proof_beyond_its_bound_is_refused_before_it_is_computed(
    node: ProvingNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_proving, "MOST_MULTIPROOF", 9)
    asked = ProveQuestion(tree=node.tree.origin, indices=tuple(range(1, 300, 30)))
    with pytest.raises(HistoryError, match="ask for fewer") as refused:
        await node.prove(asked)
    assert refused.value.reason == "proof_length"
