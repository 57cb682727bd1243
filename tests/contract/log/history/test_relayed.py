"""Tiles of another node's tree at a relay: what is stored of right and wrong ones, and what is proven with them."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from eventd.log.core.eventlog import EventLog
from eventd.log.core.scan import scan
from eventd.log.history import pruning, relayed
from eventd.log.history.proving import NotProven, find_leaf, prove_event
from eventd.log.history.pruning import delete_dropped
from eventd.log.history.relayed import (
    MOST_TREES,
    RelayedCheckpoint,
    answer_tiles,
    ask_tiles,
    check_tiles,
    drop_relayed,
    keep_tiles,
)
from eventd.log.history.trees import find_tree_of, read_relayed_trees, read_trees
from eventd.log.witnesses.decisions import decide
from eventd.log.witnesses.offers import OfferFrom
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import fetch
from eventd.testing import NOW
from federation.errors import HistoryError
from federation.history.exchange import TilesAnswer, TilesQuestion
from federation.history.proof_file import ProofFile
from federation.history.witnessing import KeySource
from tests.support import plain_history as plain
from tests.support.growing_tree import GrowingTree
from tests.support.histories import emit, signed, start

Change = Callable[[TilesAnswer], TilesAnswer]


def checkpoint(tree: GrowingTree, size: int = 0) -> RelayedCheckpoint:
    stated = tree.checkpoint(size)
    note = tree.note(size).encode().decode()
    return RelayedCheckpoint(str(tree.origin), tree.signer.key.text(), stated.size, stated.root, note, NOW)


def answer(tree: GrowingTree, asked: TilesQuestion) -> TilesAnswer:
    """The answer of an honest node, by the definition."""
    hashes = [plain.digest(b"\0" + entry) for entry in tree.entries[: asked.end]]
    tiles = [hashes[at : at + 256] for at in range(asked.first * 256, asked.end, 256)]
    return TilesAnswer(
        tiles=tuple(plain.b64(b"".join(tile)) for tile in tiles),
        proof=tuple(map(plain.b64, plain.proof(asked.end, tree.entries[: asked.size]))),
        opening="" if asked.first else tree.entries[0][1:].decode(),
    )


class Relay:
    """The database of a node that relays the tree of node `a`."""

    def __init__(self, log: EventLog, topic: int) -> None:
        self.log, self.topic = log, topic

    async def pull(self, tree: GrowingTree, size: int = 0, change: Change = lambda answer: answer) -> int:
        """Pull once; return the number of leaves that are kept."""
        due = checkpoint(tree, size)

        def read(conn: Connection) -> relayed.CheckedTiles:
            kept = find_tree_of(conn, self.topic, due.origin)
            asked = ask_tiles(due, kept)
            return check_tiles(conn, due, kept, asked, change(answer(tree, asked)))

        checked = await self.log.database.read(read)
        await self.log.database.write(keep_tiles, self.topic, checked, NOW)
        return checked.size

    async def bodies(self) -> list[str]:
        def read(conn: Connection) -> list[str]:
            return [body for block in scan(conn, self.topic, 0, 1 << 40) for body in block.bodies()]

        return await self.log.database.read(read)

    async def prove(self, position: int) -> ProofFile:
        def read(conn: Connection) -> ProofFile:
            return prove_event(conn, find_leaf(conn, self.topic, position))

        return await self.log.database.read(read)

    async def stored(self) -> tuple[int, int, int]:
        """How many trees, tiles and checkpoints are stored."""
        found = [await self.log.database.read(fetch, f"SELECT count(*) FROM {name}") for name in TABLES]
        return found[0][0][0], found[1][0][0], found[2][0][0]


TABLES = ("trees", "tiles", "checkpoints")


@pytest.fixture
async def relay(log: EventLog) -> Relay:
    return Relay(log, await log.topic("group:g"))


async def test_events_that_a_relay_passes_on_are_proven_from_pulled_tiles(relay: Relay) -> None:
    await emit(relay.log, relay.topic, *(f"e{number}" for number in range(700)), path="a")
    tree = GrowingTree().grow("left out by a filter", *await relay.bodies())
    for size in (1, 300, 511, 512, 702):
        assert await relay.pull(tree, size) == size
    for position in (1, 2, 254, 255, 298, 299, 510, 700):
        file = await relay.prove(position)
        _, index, size, _ = plain.open_file(file.encode(), tree.signer.key.text(), [])
        assert (index, size) == (position + 1, 702)
    assert await relay.log.database.read(read_trees, relay.topic) == [], "none of them is a tree of this node"


async def test_a_large_tree_is_pulled_in_parts_that_are_checked_each(
    relay: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relayed, "MOST_TILES", 2)
    tree = GrowingTree().grow(*map(str, range(1299)))
    assert [await relay.pull(tree) for _ in range(3)] == [512, 1024, 1300]
    assert (await relay.stored())[2] == 1, "only a witnessed size has a checkpoint"


async def test_an_event_that_its_node_never_admitted_is_not_proven(relay: Relay) -> None:
    await emit(relay.log, relay.topic, "true", "forged", path="a")
    await relay.pull(GrowingTree().grow((await relay.bodies())[0]))
    assert (await relay.prove(1)).leaf.index == 1
    with pytest.raises(NotProven) as caught:
        await relay.prove(2)
    assert caught.value.reason == "other_node"


async def test_the_tree_of_a_node_that_is_not_on_the_path_proves_nothing(relay: Relay) -> None:
    await emit(relay.log, relay.topic, "x", path="b")
    await relay.pull(GrowingTree().grow(*await relay.bodies()))
    with pytest.raises(NotProven):
        await relay.prove(1)


def forge(answer: TilesAnswer) -> TilesAnswer:
    hashes = plain.unb64(answer.tiles[0])
    return msgspec.structs.replace(answer, tiles=(plain.b64(hashes[:32] + bytes(32) + hashes[64:]),))


def reorder(answer: TilesAnswer) -> TilesAnswer:
    hashes = plain.unb64(answer.tiles[0])
    return msgspec.structs.replace(answer, tiles=(plain.b64(hashes[:32] + hashes[64:] + hashes[32:64]),))


def drop(answer: TilesAnswer) -> TilesAnswer:
    return msgspec.structs.replace(answer, tiles=(plain.b64(plain.unb64(answer.tiles[0])[:-32]),))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (forge, "root"),
        (reorder, "root"),
        (drop, "tile_length"),
        (lambda answer: msgspec.structs.replace(answer, tiles=()), "tiles"),
        (lambda answer: msgspec.structs.replace(answer, tiles=answer.tiles * 2), "tiles"),
        (lambda answer: msgspec.structs.replace(answer, tiles=("AAA",)), "base64"),
        (lambda answer: msgspec.structs.replace(answer, proof=(plain.b64(bytes(32)),)), "proof_length"),
        (lambda answer: msgspec.structs.replace(answer, opening=""), "opening"),
        (lambda answer: msgspec.structs.replace(answer, opening=answer.opening + "x"), "opening"),
    ],
    ids=["forged", "reordered", "dropped", "none", "more", "not-base64", "longer-proof", "no-opening", "other-opening"],
)
async def test_nothing_of_wrong_tiles_is_stored(relay: Relay, change: Change, reason: str) -> None:
    tree = GrowingTree().grow("x", "y", "z")
    with pytest.raises(HistoryError) as caught:
        await relay.pull(tree, change=change)
    assert caught.value.reason == reason
    assert await relay.stored() == (0, 0, 0)


async def test_wrong_tiles_leave_what_is_kept_and_the_right_ones_continue_it(relay: Relay) -> None:
    tree = GrowingTree().grow("x", "y")
    await relay.pull(tree)
    before = await relay.stored()
    tree.grow("z")
    with pytest.raises(HistoryError):
        await relay.pull(tree, change=lambda answer: forge(forge(reorder(answer))))
    assert await relay.stored() == before
    assert await relay.pull(tree) == 4


async def test_a_second_answer_to_one_question_changes_nothing(relay: Relay) -> None:
    due = checkpoint(tree := GrowingTree().grow("x"))
    asked = ask_tiles(due, None)
    checked = await relay.log.database.read(check_tiles, due, None, asked, answer(tree, asked))
    keep = relay.log.database.write
    assert [await keep(keep_tiles, relay.topic, checked, NOW) for _ in range(2)] == [True, False]


async def test_a_node_sends_the_tiles_of_its_own_trees_and_of_those_that_it_relays(relay: Relay) -> None:
    _, own = await start(relay.log)
    await emit(relay.log, relay.topic, *(f"own{number}" for number in range(300)))
    stored = await signed(relay.log, relay.topic)
    foreign = GrowingTree().grow(*map(str, range(299)))
    await relay.pull(foreign)
    read = relay.log.database.read
    asked = ask_tiles(checkpoint(foreign), None)
    assert await read(answer_tiles, relay.topic, asked) == answer(foreign, asked)
    due = RelayedCheckpoint(own.origin, own.log_key, stored.size, stored.root, stored.note, NOW)
    mine = ask_tiles(due, None)
    found = await read(answer_tiles, relay.topic, mine)
    assert (await read(check_tiles, due, None, mine, found)).size == 301
    smaller = ask_tiles(due._replace(size=257), None)
    assert [len(plain.unb64(tile)) for tile in (await read(answer_tiles, relay.topic, smaller)).tiles] == [8192, 32]


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (TilesQuestion(tree="eventd/g/a/" + "z" * 16, first=0, count=1, size=1), "not_held"),
        (TilesQuestion(tree="", first=0, count=1, size=4), "not_held"),
        (TilesQuestion(tree="", first=1, count=1, size=3), "tiles"),
        (TilesQuestion(tree="", first=1 << 39, count=64, size=3), "tiles"),
    ],
    ids=["unknown-tree", "unsigned-size", "behind-the-end", "far-behind"],
)
async def test_tiles_that_are_not_there_are_refused(relay: Relay, asked: TilesQuestion, reason: str) -> None:
    tree = GrowingTree().grow("x", "y")
    await relay.pull(tree)
    asked = asked if asked.tree else msgspec.structs.replace(asked, tree=str(tree.origin))
    with pytest.raises(HistoryError) as caught:
        await relay.log.database.read(answer_tiles, relay.topic, asked)
    assert caught.value.reason == reason


async def test_of_a_node_the_trees_that_it_opened_last_are_kept(relay: Relay) -> None:
    letters = "abcdefghijklmnopqrst"[: MOST_TREES + 2]
    for number, letter in enumerate(letters):
        tree = GrowingTree(letter)
        asked = ask_tiles(due := checkpoint(tree)._replace(opened_at=NOW + number), None)
        checked = await relay.log.database.read(check_tiles, due, None, asked, answer(tree, asked))
        await relay.log.database.write(keep_tiles, relay.topic, checked, NOW)
    kept = await relay.log.database.read(read_relayed_trees, relay.topic)
    assert [tree.origin[-1] for tree in kept] == [*reversed(letters)][:MOST_TREES]
    await relay.log.database.write(drop_relayed, relay.topic, "a")
    assert await relay.log.database.read(read_relayed_trees, relay.topic) == []


async def test_trees_that_are_held_no_more_make_room_first_whenever_they_claim_to_be_opened(relay: Relay) -> None:
    for name, later in (("a", 0), ("b", 9), ("c", 8)):
        tree = GrowingTree(name)
        asked = ask_tiles(due := checkpoint(tree)._replace(opened_at=NOW + later), None)
        checked = await relay.log.database.read(check_tiles, due, None, asked, answer(tree, asked))
        await relay.log.database.write(keep_tiles, relay.topic, checked, NOW)
    offered = OfferFrom(relay.topic, "g", "a", KeySource.SHARED, {}, ["a"], GrowingTree("a").offer())
    assert (await relay.log.database.write(decide, offered, NOW)).error is None
    for left in ("ba", "a", ""):
        await relay.log.database.write(drop_relayed, relay.topic, "a", but=len(left))
        kept = await relay.log.database.read(read_relayed_trees, relay.topic)
        assert "".join(tree.origin[-1] for tree in kept) == left


async def test_a_dropped_tree_frees_its_name_at_once_and_is_deleted_in_steps(
    relay: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = GrowingTree().grow(*map(str, range(1299)))
    await relay.pull(tree)
    whole, write = await relay.stored(), relay.log.database.write
    await write(drop_relayed, relay.topic, "a")
    assert await relay.stored() == whole, "a writer does not wait until a gigabyte is deleted"
    assert await relay.log.database.read(find_tree_of, relay.topic, str(tree.origin)) is None
    await relay.pull(tree)
    monkeypatch.setattr(pruning, "STEP_ROWS", 4)
    steps = []
    while count := await write(delete_dropped):
        steps.append(count)
    assert steps == [4, 3, 1, 1], "seven tiles, the checkpoint, the tree"
    assert await relay.stored() == whole
    assert await relay.pull(tree.grow("x")) == 1301, "the one that was pulled since is untouched"


async def test_no_tiles_are_stored_in_a_tree_that_was_dropped_meanwhile(relay: Relay) -> None:
    tree = GrowingTree().grow("x")
    await relay.pull(tree)
    kept = await relay.log.database.read(find_tree_of, relay.topic, str(tree.origin))
    asked = ask_tiles(due := checkpoint(tree.grow("y")), kept)
    checked = await relay.log.database.read(check_tiles, due, kept, asked, answer(tree, asked))
    await relay.log.database.write(drop_relayed, relay.topic, "a")
    assert await relay.log.database.write(keep_tiles, relay.topic, checked, NOW) is False
