"""The background check of mode `verify`: what it counts, reports and asks for, and how it rests."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from eventd.log.core.eventlog import EventLog
from eventd.log.history.hints import keep_hints
from eventd.log.witnesses import checking
from eventd.resources.group_configuration import GroupConfig, group_of
from eventd.resources.kinds.event_group import EventGroupSpec
from eventd.testing import NOW, ManualClock
from eventd.witnessing.group_witness import GroupKeys, GroupWitness, SigningGate
from eventd.witnessing.verifying import REST, Verifying
from federation.history.leaf_hints import LeafPlace
from tests.contract.log.witnesses.test_checking import TREE, Checked
from tests.support.fresh import on_sqlite
from tests.support.growing_tree import FIRST, GrowingTree


class HubPeer:
    """The part of a declared peer that checks use."""

    node_name = "hub"
    protocol = "v2"
    relay = False


class Node(Checked):
    """A node in mode `verify` that pins the key of `a` and gets its events over `hub`."""

    def __init__(self, log: EventLog, topic: int) -> None:
        super().__init__(log, topic)
        self.verified: Counter[str] = Counter()
        self.reported: list[str] = []
        self.woken: list[str] = []
        witness = GroupWitness(self.config, topic, log, no_keys, self, SigningGate())
        witness.wanted.wake = self.woken.append
        ticks = iter(range(1000))
        self.verifying = Verifying(witness, self, lambda: next(ticks) / 100)
        self.witness = witness

    def config(self) -> GroupConfig:
        declared = group_of("g", EventGroupSpec.model_validate({"nodeName": "n", "history": {"mode": "verify"}}))
        pins = {("a", "log"): FIRST.public_key().public_bytes_raw()}
        return replace(declared, peers={"hub": HubPeer()}, history_pins=pins)  # type: ignore[dict-item]

    def history_verified(self, group: str, result: str, events: int) -> None:
        self.verified[result] += events

    def refused(self, group: str, reason: str) -> None: ...

    def history_found(self, group: str, kind: str) -> None:
        self.reported.append(kind)

    def history_pulled(self, group: str, peer: str, result: str) -> None: ...

    def history_cosigned(self, group: str, peer: str, result: str) -> None: ...


async def no_keys() -> GroupKeys:
    raise AssertionError("checks sign nothing")


@pytest.fixture
async def node(log: EventLog) -> Node:
    return Node(log, await log.topic("group:g"))


@on_sqlite
async def test_verdicts_are_counted_and_refutations_reported(node: Node, clock: ManualClock) -> None:
    [true, _] = await node.get("e1", "e2", leaf=1)
    await node.get("e3")
    await node.pull(GrowingTree().grow(true, "x"))
    clock.advance(60)
    assert await node.verifying.check() is None
    assert node.verified == {"verified": 1, "refuted": 1, "unproven": 1}
    assert node.reported == ["refuted"]


@on_sqlite
async def test_a_tree_that_is_missing_is_asked_for_and_its_peer_woken(node: Node, clock: ManualClock) -> None:
    await node.get("e1", leaf=1)
    assert await node.verifying.check() is None
    assert node.woken == ["hub"]
    assert node.witness.wanted.take("hub") == (f"eventd/g/a/{TREE}", ())
    await node.get("e2", leaf=2)
    clock.advance(9)
    await node.verifying.check()
    assert node.woken == ["hub"], "not for each event"
    clock.advance(1)
    await node.verifying.check()
    assert node.woken == ["hub", "hub"]


@on_sqlite
async def test_a_check_that_lags_takes_a_twentieth_of_a_core_until_it_lags_by_a_minute(
    node: Node, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checking, "MOST_EVENTS", 1)
    await node.pull(GrowingTree().grow(*await node.get("e1", "e2", "e3", leaf=1)))
    assert await node.verifying.check() == pytest.approx(REST * 0.02), "each of its two transactions took 10 ms"
    await node.log.database.write(keep_hints, node.topic, [LeafPlace(9, 9, TREE)], [9], [9], NOW)
    clock.advance(61)
    assert await node.verifying.check() == 0.0
    await node.get("e4", leaf=1 << 40)
    clock.advance(61)
    assert await node.verifying.check() != 0.0, "an event that waits for its tiles is no lag"
