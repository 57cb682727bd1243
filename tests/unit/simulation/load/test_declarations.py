"""Declarations that change: the last one of each link decides which events must be at its end."""

from __future__ import annotations

from eventd.simulation.load.declarations import DECLARE, declared_at_end
from eventd.simulation.load.step import LoadStep
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
