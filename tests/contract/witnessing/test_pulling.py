"""A relay pulls the tiles of its peers: when it asks, what it asks next, and what wrong answers do not stop."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from eventd.log.core.eventlog import EventLog
from eventd.log.history.trees import find_tree_of
from eventd.log.witnesses.decisions import decide
from eventd.log.witnesses.offers import OfferFrom
from eventd.log.witnesses.witnessed import forget_trees, read_believed_trees
from eventd.resources.group_configuration import GroupConfig, group_of
from eventd.resources.kinds.event_group import EventGroupSpec
from eventd.store.engine.statements import execute
from eventd.testing import NOW, ManualClock
from eventd.witnessing.asking import INVALID, REFUSED, UNREACHABLE, HistoryUntold
from eventd.witnessing.group_witness import GroupKeys, GroupWitness
from eventd.witnessing.pulling import AGAIN_SECONDS, TilePulling
from eventd.witnessing.signing_gate import SigningGate
from federation.history.exchange import ConsistencyAnswer, ConsistencyQuestion, TilesAnswer, TilesQuestion
from federation.history.witnessing import KeySource
from tests.support import plain_history as plain
from tests.support.fresh import on_sqlite
from tests.support.growing_tree import GrowingTree


@dataclass
class RelayPeer:
    """The part of a declared peer that pulling uses."""

    node_name: str
    relay: bool = True


@dataclass
class TileSource:
    """Node `a`, which answers honestly unless an answer or an error is given. It stands for `HistoryAsker`."""

    tree: GrowingTree
    asked: list[TilesQuestion] = field(default_factory=list)
    given: TilesAnswer | HistoryUntold | None = None

    async def ask(self, _group: Any, _peer: Any, question: Any, _kind: Any) -> tuple[Any, KeySource]:
        if isinstance(question, ConsistencyQuestion):
            proof = plain.proof(question.old, self.tree.entries[: question.size])
            return ConsistencyAnswer(tuple(map(plain.b64, proof))), KeySource.SHARED
        self.asked.append(question)
        if isinstance(self.given, HistoryUntold):
            raise self.given
        hashes = [plain.digest(b"\0" + entry) for entry in self.tree.entries]
        starts = range(question.first * 256, len(hashes), 256)
        tiles = tuple(plain.b64(b"".join(hashes[at : at + 256])) for at in starts)
        honest = TilesAnswer(tiles=tiles, opening="" if question.first else self.tree.entries[0][1:].decode())
        return self.given or honest, KeySource.SHARED


class Puller:
    """A node with the peers `a` and `b`, and what it pulls of `a`."""

    def __init__(self, log: EventLog, topic: int, source: TileSource) -> None:
        self.log, self.topic, self.source = log, topic, source
        self.peers = {name: RelayPeer(name) for name in ("a", "b")}
        self.results: list[str] = []
        witness = GroupWitness(self.config, topic, log, no_keys, self, SigningGate())
        self.pulling = TilePulling(witness, self.peers["a"], source)  # type: ignore[arg-type]

    def history_pulled(self, group: str, peer: str, result: str) -> None:
        self.results.append(result)

    def history_cosigned(self, group: str, peer: str, result: str) -> None: ...

    def refused(self, group: str, reason: str) -> None: ...

    def history_found(self, group: str, kind: str) -> None: ...

    def config(self) -> GroupConfig:
        declared = group_of("g", EventGroupSpec.model_validate({"nodeName": "hub", "history": {"mode": "record"}}))
        return replace(declared, peers=self.peers)  # type: ignore[arg-type]

    async def witness(self, old: int = 0, size: int = 0) -> None:
        offered = OfferFrom(self.topic, "g", "a", KeySource.SHARED, {}, ["a"], self.source.tree.offer(old, size))
        assert (await self.log.database.write(decide, offered, NOW)).error is None

    async def kept(self) -> int:
        tree = await self.log.database.read(find_tree_of, self.topic, str(self.source.tree.origin))
        return 0 if tree is None else tree.size

    async def reset(self) -> None:
        await self.log.database.write(forget_trees, self.topic, "a", NOW)

    async def grow_and_prune(self) -> None:
        """Let the tree have 603 leaves that are kept, except those of its second tile, and forget what is witnessed."""
        self.source.tree.grow(*map(str, range(600)))
        await self.witness(3)
        await self.pulling.pull()
        await self.reset()
        await self.log.database.write(execute, "DELETE FROM tiles WHERE level = 0 AND number = 1", ())

    async def believed(self) -> int:
        """How many leaves count in checks of events."""
        return sum(tree.size for tree in await self.log.database.read(read_believed_trees, self.topic))


async def no_keys() -> GroupKeys:
    raise AssertionError("pulling signs nothing")


@pytest.fixture
async def puller(log: EventLog) -> Puller:
    made = Puller(log, await log.topic("group:g"), TileSource(GrowingTree().grow("x", "y")))
    await made.witness()
    return made


@on_sqlite
async def test_what_was_witnessed_is_pulled_once_and_again_when_it_has_grown(puller: Puller) -> None:
    assert await puller.pulling.pull() is False
    assert await puller.pulling.pull() is False
    assert await puller.kept() == 3
    assert [(asked.first, asked.count, asked.size) for asked in puller.source.asked] == [(0, 1, 3)]
    puller.source.tree.grow("z")
    await puller.witness(3)
    await puller.pulling.pull()
    assert await puller.kept() == 4


@on_sqlite
async def test_a_node_that_relays_nothing_of_the_peer_does_not_ask(puller: Puller) -> None:
    puller.peers["b"].relay = False
    assert await puller.pulling.pull() is False
    assert puller.source.asked == []


@on_sqlite
async def test_a_tree_that_is_wanted_is_pulled_of_a_peer_whose_events_are_not_passed_on(puller: Puller) -> None:
    puller.peers["b"].relay = False
    puller.pulling.want(str(puller.source.tree.origin))
    for _ in range(2):
        assert await puller.pulling.pull() is False
    assert await puller.kept() == 3
    puller.source.tree.grow("z")
    await puller.witness(3)
    assert await puller.pulling.pull() is False
    assert await puller.kept() == 3, "it is pulled when it is wanted again"


@pytest.mark.parametrize(
    ("given", "logged"),
    [
        (TilesAnswer(tiles=(plain.b64(bytes(96)),)), "history tiles refused"),
        (HistoryUntold(REFUSED), "history tiles not sent"),
        (HistoryUntold(INVALID), "history tiles refused"),
        (HistoryUntold(INVALID, cause="unknown_key"), "history tiles not sent"),  # keys are being replaced
    ],
    ids=["wrong", "refused", "unreadable", "unknown key"],
)
@on_sqlite
async def test_a_peer_that_sends_no_right_tiles_is_asked_again_a_minute_later(
    puller: Puller,
    clock: ManualClock,
    given: TilesAnswer | HistoryUntold,
    logged: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    puller.source.given = given
    for _ in range(2):
        for _ in range(2):
            assert await puller.pulling.pull() is False
        clock.advance(AGAIN_SECONDS)
    assert len(puller.source.asked) == 2
    assert [(one.message, one.__dict__["origin"]) for one in caplog.records] == [
        (logged, str(puller.source.tree.origin))
    ]
    puller.source.given = None
    await puller.pulling.pull()
    assert await puller.kept() == 3
    assert puller.results == ["refused", "refused", "stored"]


@on_sqlite
async def test_an_outage_is_left_to_the_pauses_of_the_offers(puller: Puller) -> None:
    puller.source.given = HistoryUntold(UNREACHABLE)
    with pytest.raises(HistoryUntold):
        await puller.pulling.pull()


@on_sqlite
async def test_a_reset_keeps_the_tiles_of_a_tree_until_another_one_has_its_name(puller: Puller) -> None:
    tree = puller.source.tree
    await puller.pulling.pull()
    await puller.reset()
    assert await puller.kept() == 3, "what is in them can be proven as before"
    assert await puller.believed() == 0, "and decides nothing here"
    await puller.witness()
    assert await puller.kept() == await puller.believed() == 3, "the same tree was witnessed again"
    await puller.reset()
    puller.source.tree = GrowingTree().grow("x", "other")
    assert puller.source.tree.origin == tree.origin
    await puller.witness()
    assert await puller.kept() == 0
    await puller.pulling.pull()
    assert await puller.kept() == 3


@on_sqlite
async def test_tiles_of_a_tree_that_has_grown_before_it_is_witnessed_again_are_continued(puller: Puller) -> None:
    await puller.pulling.pull()
    await puller.reset()
    puller.source.tree.grow("z")
    await puller.witness()
    assert (await puller.kept(), await puller.believed()) == (3, 0), "nothing shows yet that it is the same tree"
    await puller.pulling.pull()
    assert await puller.kept() == await puller.believed() == 4


@on_sqlite
async def test_one_wrong_answer_after_a_reset_drops_no_true_tiles(puller: Puller) -> None:
    puller.source.tree.grow(*map(str, range(300)))
    await puller.witness(3)
    await puller.pulling.pull()
    await puller.reset()
    tree = puller.source.tree.grow("z")
    await puller.witness()
    hashes = [plain.digest(b"\0" + entry) for entry in tree.entries[256:]]
    puller.source.given = TilesAnswer(tiles=(plain.b64(b"".join([*hashes[:-1], bytes(32)])),))
    assert await puller.pulling.pull() is False
    assert (await puller.kept(), await puller.believed()) == (303, 0)
    assert puller.results[-1] == "refused"


@pytest.mark.parametrize("more", [3, 253, 296], ids=["first-tile", "power-of-two", "second-tile"])
@on_sqlite
async def test_tiles_are_dropped_if_a_proof_shows_that_the_tree_is_another_one(puller: Puller, more: int) -> None:
    puller.source.tree.grow(*map(str, range(more)))
    await puller.witness(3)
    await puller.pulling.pull()
    await puller.reset()
    puller.source.tree = GrowingTree().grow("x", "other", *map(str, range(more + 5)))
    await puller.witness()
    assert await puller.pulling.pull() is True
    assert await puller.kept() == 0
    await puller.pulling.pull()
    assert await puller.kept() == await puller.believed() == more + 8


async def test_a_tree_that_is_witnessed_again_at_a_smaller_size_is_proven_where_tiles_are_pruned(
    puller: Puller,
) -> None:
    await puller.grow_and_prune()
    await puller.witness(size=400)
    assert await puller.believed() == 0
    assert await puller.pulling.pull() is False
    assert await puller.believed() == 603
    assert await puller.pulling.pull() is False, "nothing is left to ask"


async def test_tiles_that_the_tree_witnessed_again_does_not_continue_are_pulled_again(puller: Puller) -> None:
    await puller.pulling.pull()
    await puller.reset()
    puller.source.tree = GrowingTree().grow("x", "other", "z")
    await puller.witness()
    assert (await puller.kept(), await puller.believed()) == (3, 0)
    assert await puller.pulling.pull() is True, "there is more to pull, at once"
    assert await puller.kept() == 0
    await puller.pulling.pull()
    assert await puller.kept() == await puller.believed() == 4
    assert puller.results == ["stored", "stored"]


@on_sqlite
async def test_tiles_are_dropped_if_they_themselves_show_that_a_smaller_tree_is_another_one(puller: Puller) -> None:
    await puller.grow_and_prune()
    other = puller.source.tree = GrowingTree().grow("x", "other", *map(str, range(600)))
    await puller.witness(size=400)
    assert await puller.kept() == 603, "its pruned tiles say nothing of this size"
    await puller.witness(400, size=600)
    assert await puller.pulling.pull() is True, "there is more to pull, at once"
    assert await puller.kept() == 0
    await puller.pulling.pull()
    assert await puller.kept() == await puller.believed() == 600
    assert len(other.entries) == 603


@on_sqlite
async def test_a_proof_that_does_not_fit_what_is_kept_of_a_larger_tree_decides_nothing(
    puller: Puller, caplog: pytest.LogCaptureFixture
) -> None:
    await puller.grow_and_prune()
    await puller.witness(size=400)
    puller.source.tree = GrowingTree().grow("x", "other", *map(str, range(600)))
    assert await puller.pulling.pull() is False
    assert (await puller.kept(), await puller.believed()) == (603, 0)
    assert [one.message for one in caplog.records] == ["history tiles not sent"], "either may be wrong"
