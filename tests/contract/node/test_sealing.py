"""The pace of a sealer, and what it reports of a tree that ended."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from eventd.log.core.eventlog import EventLog
from eventd.log.history.open_tree import TreeOwner
from eventd.log.history.seal import hash_new
from eventd.log.history.trees import find_open_tree
from eventd.log.witnesses.findings import read_findings
from eventd.node import sealing
from eventd.node.group_history import _compare_shipped
from eventd.node.sealing import IDLE_SECONDS, MOST_LAG, REST, SEAL_SECONDS, Sealer
from eventd.node.shipped_trees import ShippedTrees
from eventd.resources.group_configuration import GroupConfig, group_of
from eventd.resources.kinds.event_group import EventGroupSpec
from eventd.runtime.clock import SECOND
from eventd.store.engine.statements import execute
from eventd.testing import ManualClock, draft, until
from eventd.witnessing.group_witness import GroupKeys, GroupWitness
from eventd.witnessing.signing_gate import GATE_SECONDS, SigningGate
from federation.history.checkpoints import Checkpoint, read_origin, sign_checkpoint
from federation.history.notes import WITNESS_KEY, NoteSigner
from federation.history.witnessing import witness_name
from tests.support.fresh import on_sqlite

OWNER = TreeOwner("g", "a", Ed25519PrivateKey.from_private_bytes(bytes(32)))


@dataclass
class Figures:
    """The last figures of a history."""

    shown: list[tuple[str, int, float]] = field(default_factory=list)

    def history(self, group: str, *, size: int, lag: float) -> None:
        self.shown.append((group, size, lag))

    def forget_history(self, group: str) -> None: ...

    def history_cosigned(self, group: str, peer: str, result: str) -> None: ...

    def history_pulled(self, group: str, peer: str, result: str) -> None: ...

    def refused(self, group: str, reason: str) -> None: ...

    def history_found(self, group: str, kind: str) -> None: ...


def config(retention: dict[str, int] | None = None) -> GroupConfig:
    spec = {"nodeName": "a", "history": {"mode": "record"}, "retention": retention or {}}
    return group_of("g", EventGroupSpec.model_validate(spec))


@pytest.fixture
def figures() -> Figures:
    return Figures()


@pytest.fixture
async def sealer(log: EventLog, figures: Figures, monkeypatch: pytest.MonkeyPatch) -> Sealer:
    """The sealer of a group with an open tree. It makes a checkpoint of each block.

    By its processor clock, reading takes a quarter of a second, and so does storing.
    """
    monkeypatch.setattr(sealing, "hash_new", partial(hash_new, most=1))

    async def keys() -> GroupKeys:
        return GroupKeys(OWNER, NoteSigner(witness_name("g", "a"), WITNESS_KEY, OWNER.private))

    witness = GroupWitness(config, await log.topic("group:g"), log, keys, figures, SigningGate())
    made = Sealer(witness, figures, lambda: None, count(step=0.25).__next__)
    assert await made._seal(OWNER) is None, "the opening entry, and no more"
    return made


async def emit(log: EventLog, *ids: str) -> None:
    for one in ids:
        await log.append(await log.topic("group:g"), [draft(one)])


async def test_a_sealer_that_lags_rests_for_nineteen_times_the_processor_time_of_its_work(
    log: EventLog, sealer: Sealer, clock: ManualClock, figures: Figures
) -> None:
    await emit(log, "a", "b")
    clock.advance(3)
    assert await sealer._seal(OWNER) == REST * 0.5
    assert figures.shown[-1] == ("g", 2, 3.0)
    assert await sealer._seal(OWNER) is None, "nothing is left"
    assert await sealer._seal(OWNER) is None
    assert figures.shown[-1] == ("g", 3, 0)


@on_sqlite
async def test_a_sealer_that_lags_too_far_does_not_rest(log: EventLog, sealer: Sealer, clock: ManualClock) -> None:
    await emit(log, "a", "b")
    clock.advance(MOST_LAG / SECOND + 1)
    assert await sealer._seal(OWNER) == 0.0


@on_sqlite
async def test_a_sealer_that_retention_waits_for_does_not_rest(log: EventLog, sealer: Sealer) -> None:
    sealer._witness = replace(sealer._witness, config=lambda: config({"maxEvents": 2}))
    await emit(log, "a", "b", "c", "d", "e")
    assert await sealer._seal(OWNER) == 0.0, "b and c are over the limit, and have no checkpoint"
    assert await sealer._seal(OWNER) == 0.0
    assert await sealer._seal(OWNER) == REST * 0.5, "what is over the limit can be removed"


async def test_a_tree_that_ends_is_reported_and_followed_by_another(
    log: EventLog, sealer: Sealer, figures: Figures, caplog: pytest.LogCaptureFixture
) -> None:
    await log.database.write(execute, "DELETE FROM tiles")
    await emit(log, "a")
    assert await sealer._seal(OWNER) == SEAL_SECONDS
    with caplog.at_level("INFO", "eventd.history"):
        assert await sealer._seal(OWNER) is None
    assert [record.message for record in caplog.records] == ["history damaged", "tree opened"]
    assert "tile/0/000.p/1 is not stored" in caplog.records[0].__dict__["error"]
    assert caplog.records[1].__dict__["reason"] == "damage"
    assert figures.shown[-1][1] == 2


@on_sqlite
async def test_a_key_that_nothing_vouches_for_is_reported_with_the_next_step(
    log: EventLog, sealer: Sealer, caplog: pytest.LogCaptureFixture
) -> None:
    lost = OWNER._replace(private=Ed25519PrivateKey.from_private_bytes(b"2" * 32))
    rotated = OWNER._replace(private=Ed25519PrivateKey.from_private_bytes(b"3" * 32), retired=lost.private)
    former = OWNER._replace(private=Ed25519PrivateKey.from_private_bytes(b"4" * 32), retired=OWNER.private)
    replaced = ["tree opened", "history key replaced"]
    for owner, expected in ((lost, replaced), (rotated, ["tree opened"]), (former, replaced)):
        caplog.clear()
        with caplog.at_level("INFO", "eventd.history"):
            await sealer._seal(owner)
        assert [record.message for record in caplog.records] == expected
        if owner is lost:
            assert caplog.records[1].levelname == "WARNING"
            assert "history.key was lost or replaced" in caplog.records[1].__dict__["detail"]
            assert "put the right one back" in caplog.records[1].__dict__["hint"]


@on_sqlite
async def test_an_idle_minute_leaves_no_wait_behind(log: EventLog, sealer: Sealer, clock: ManualClock) -> None:
    with log.watch((await log.topic("group:g"),), own=True) as watch:
        appended = watch.after(watch.turn)
        waiting = asyncio.create_task(sealer._wait(appended))
        await asyncio.sleep(0)
        clock.advance(IDLE_SECONDS)
        await waiting
        assert appended.done()


async def test_the_lake_opens_the_gate_and_shows_an_older_copy(log: EventLog, sealer: Sealer) -> None:
    witness, shipped = replace(sealer._witness, gate=SigningGate(with_lake=True)), ShippedTrees(awaited=True)
    witness.gate.ask(())
    assert not witness.gate.is_open, "the lake could answer, also without a peer"
    comparing = asyncio.create_task(_compare_shipped(witness, shipped))
    tree = await log.database.read(find_open_tree, witness.topic_id)
    assert tree is not None
    origin, epoch = read_origin(tree.origin), log.epoch
    shipped.note_shipped([sign_checkpoint(Checkpoint(origin, 9, bytes(32)), OWNER.signer(origin)).encode().decode()])
    await comparing
    assert witness.gate.is_open
    assert log.epoch != epoch
    [found] = await log.database.read(read_findings, witness.topic_id)
    assert (found.kind, found.other_size) == ("older_copy", 9)
    assert found.detail.startswith("the lake holds 9 leaves of ")


@on_sqlite
async def test_leaves_are_unsettled_until_the_node_may_sign(log: EventLog, sealer: Sealer) -> None:
    tree = await log.database.read(find_open_tree, sealer._witness.topic_id)
    assert tree is not None
    await sealer.open_due()
    assert log.unsettled_trees == {tree.id}
    running = asyncio.create_task(sealer.run())
    sealer._witness.gate.open()
    try:
        await until(lambda: not log.unsettled_trees, "the leaves to be settled")
    finally:
        running.cancel()


@on_sqlite
async def test_a_node_signs_after_a_minute_if_its_peers_do_not_answer(
    log: EventLog, sealer: Sealer, clock: ManualClock, figures: Figures, caplog: pytest.LogCaptureFixture
) -> None:
    sealer._witness.gate.ask(["b"])
    await emit(log, "a")
    with caplog.at_level("WARNING", "eventd.history"):
        running = asyncio.create_task(sealer.run())
        try:
            await until(lambda: clock.waits, "the sealer to wait")
            clock.advance(GATE_SECONDS - 1)
            await asyncio.sleep(0)
            assert figures.shown[-1][1] == 1
            clock.advance(1)
            await until(lambda: figures.shown[-1][1] == 2, "a checkpoint")
        finally:
            running.cancel()
    assert [(record.message, record.__dict__["outstanding"]) for record in caplog.records] == [
        ("history not compared", ["b"])
    ]


@on_sqlite
async def test_a_node_that_stops_seals_what_it_has_stored(log: EventLog, sealer: Sealer) -> None:
    sealer._witness.gate.open()
    running = asyncio.create_task(sealer.run())
    await emit(log, "a", "b", "c")
    sealer.finish()
    await running
    tree = await log.database.read(find_open_tree, sealer._topic_id)
    assert tree is not None
    assert tree.size == 4


async def test_a_node_that_stops_signs_nothing_before_it_knows_whether_its_database_is_an_older_copy(
    log: EventLog, sealer: Sealer
) -> None:
    running = asyncio.create_task(sealer.run())
    await emit(log, "a")
    sealer.finish()
    await running
    tree = await log.database.read(find_open_tree, sealer._topic_id)
    assert tree is not None
    assert tree.size == 1
