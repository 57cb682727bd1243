"""Declarations that change: the last one of each link decides which events must be at its end."""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast

from eventd.simulation.load.declarations import DECLARE, Declarations, declared_at_end
from eventd.simulation.load.step import LoadStep
from eventd.simulation.world.requests import Reply
from eventd.simulation.world.topology import PlannedLink, Topology

TOPOLOGY = Topology("chain", ["a", "b", "c"], [PlannedLink("a", "b", relay=False), PlannedLink("b", "c", relay=True)])


def step(at: float, host: str, peer: str, *, relay: bool = False, types: list[str], deleted: bool = False) -> LoadStep:
    return LoadStep(at, DECLARE, host, {"peer": peer, "relay": relay, "types": types, "deleted": deleted})


def test_the_last_declaration_of_a_link_counts() -> None:
    end = declared_at_end(TOPOLOGY, [step(1.0, "a", "b", types=["door.*"]), step(2.0, "a", "b", types=[])])
    assert [(link.dest, link.types, link.is_changed) for link in end.links] == [("b", [], True), ("c", [], False)]


def test_a_deleted_link_carries_nothing_and_one_that_is_back_everything() -> None:
    deleted = step(1.0, "b", "c", types=[], deleted=True)
    assert declared_at_end(TOPOLOGY, [deleted]).reached("a") == {"a", "b"}
    back = step(2.0, "b", "c", relay=True, types=[])
    assert declared_at_end(TOPOLOGY, [deleted, back]).reached("a") == {"a", "b", "c"}


def test_a_relay_passes_on_what_its_filter_takes() -> None:
    end = declared_at_end(TOPOLOGY, [step(1.0, "b", "c", relay=True, types=["door.*"])])
    assert end.reached("a", "door.open") == {"a", "b", "c"}
    assert end.reached("a", "power.lost") == {"a", "b"}


def test_a_step_that_replaces_a_secret_changes_no_link() -> None:
    assert declared_at_end(TOPOLOGY, [LoadStep(1.0, DECLARE, "a", {"stage": 1})]) == TOPOLOGY


class PlayedClient:
    """A client whose node answers with these statuses, one after the other; `asked` are the declarations."""

    def __init__(self, *statuses: int) -> None:
        self.statuses = list(statuses)
        self.asked: list[dict[str, Any]] = []

    async def ask(self, kind: str, method: str, path: str, document: Any, *, seconds: float) -> Reply:
        self.asked.append(json.loads(document["sources"][0]["text"]))
        return Reply(self.statuses.pop(0), None)


class PlayedWorld:
    """What declarations need of a world in which time takes no time."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.loop = self

    async def pause(self, seconds: float) -> None:
        """Do not wait."""

    def address(self, node: str) -> str:
        return "10.0.0.1"


def declare(client: PlayedClient, done: LoadStep, topology: Topology = TOPOLOGY) -> list[int]:
    """Perform a step; return the statuses that the client did not ask for."""
    asyncio.run(Declarations().perform(cast(Any, PlayedWorld(topology)), cast(Any, client), done))
    return client.statuses


def test_a_declaration_that_is_refused_is_made_again() -> None:
    assert declare(PlayedClient(409, 404, 200, 200), step(1.0, "a", "b", types=[])) == [200]


def test_a_peer_that_is_not_there_was_deleted() -> None:
    assert declare(PlayedClient(409, 404, 200), step(1.0, "a", "b", types=[], deleted=True)) == [200]


def test_a_changed_link_keeps_its_protocol() -> None:
    client = PlayedClient(200)
    old = Topology("chain", ["a", "b"], [PlannedLink("a", "b", relay=False, protocol="v1")])
    declare(client, step(1.0, "a", "b", types=["door.*"]), old)
    assert [each["spec"]["protocol"] for each in client.asked] == ["v1"]
