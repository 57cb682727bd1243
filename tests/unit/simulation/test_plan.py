"""Plans: drawn from the seed alone, readable as JSON, and with streams that do not disturb each other."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import msgspec
import pytest

from eventd.errors import Invalid
from eventd.simulation.faults.fault import LACKING, LOST_EPOCH_SECONDS, LOST_EPOCHS, POSTGRES, SQLITE, Fault, FaultKind
from eventd.simulation.plan import SMALL, USUAL_SIZE, draw_plan, plan_from_json
from eventd.simulation.world.topology import SHAPES, PlannedLink, Topology

SEEDS = range(300)


def test_a_seed_gives_one_plan() -> None:
    assert draw_plan(7) == draw_plan(7)
    assert draw_plan(7) != draw_plan(8)


@pytest.mark.parametrize("seed", range(5))
def test_a_plan_is_the_same_after_json(seed: int) -> None:
    plan = draw_plan(seed)
    assert plan_from_json(plan.to_json()) == plan


@pytest.mark.parametrize(
    ("part", "name", "value", "place"),
    [
        ("load", "kind", "emti", "load[0].kind: 'emti' is not a kind of load"),
        ("load", "host", "z", "load[0].host: 'z' is not a node"),
        ("faults", "kind", "flood", "faults[0].kind: 'flood' is not a kind of fault on sqlite"),
        ("faults", "target", "z", "faults[0].target: 'z' is not a node"),
        ("faults", "other", "z", "faults[0].other: 'z' is not a node of the topology or its client"),
    ],
)
def test_a_plan_that_names_what_does_not_exist_is_refused(part: str, name: str, value: str, place: str) -> None:
    plan = json.loads(draw_plan(7).to_json())
    plan[part][0][name] = value
    with pytest.raises(Invalid, match=re.escape(place)) as caught:
        plan_from_json(json.dumps(plan).encode())
    assert caught.value.hint.startswith("write one of ")


@pytest.mark.parametrize(("part", "name"), [("load", "at"), ("faults", "at"), ("faults", "seconds")])
def test_a_negative_time_in_a_plan_is_refused(part: str, name: str) -> None:
    plan = json.loads(draw_plan(7).to_json())
    plan[part][0][name] = -0.5
    with pytest.raises(msgspec.ValidationError, match=re.escape(f"at `$.{part}[0].{name}`")):
        plan_from_json(json.dumps(plan).encode())


@pytest.mark.parametrize("store", LACKING)
def test_the_plans_of_some_seeds_cover_every_shape_and_every_fault(store: str) -> None:
    plans = [draw_plan(seed, store=store) for seed in SEEDS]
    assert {plan.topology.shape for plan in plans} == set(SHAPES)
    assert {fault.kind for plan in plans for fault in plan.faults} == set(FaultKind) - set(LACKING[store])


def test_a_plan_on_postgres_has_the_faults_of_the_one_on_sqlite_that_exist_there() -> None:
    """Unless the run on SQLite has restores: then it has less load. Some new epochs belong to restores."""
    own = {*LACKING[SQLITE], *LACKING[POSTGRES], FaultKind.EPOCH}
    for seed in SEEDS:
        plans = [draw_plan(seed, store=store) for store in LACKING]
        if not any(fault.kind == FaultKind.RESTORE for fault in plans[0].faults):
            shared = [[fault for fault in plan.faults if fault.kind not in own] for plan in plans]
            assert (shared[0], plans[0].load) == (shared[1], plans[1].load)


def test_a_fault_that_does_not_exist_on_the_store_of_a_plan_is_refused() -> None:
    plan = json.loads(draw_plan(7, store=POSTGRES).to_json())
    plan["faults"][0]["kind"] = FaultKind.DISK
    with pytest.raises(Invalid, match="'disk' is not a kind of fault on postgresql"):
        plan_from_json(json.dumps(plan).encode())


def test_most_runs_are_small_and_a_few_are_long() -> None:
    """By the shape and the last step; a small run has two nodes and five seconds."""
    plans = [draw_plan(seed) for seed in range(500)]
    lasts = [(plan.topology.shape, max((step.at for step in plan.load), default=0.0)) for plan in plans]
    small = sum(shape == "pair" and at <= 5 for shape, at in lasts) / len(plans)
    assert 0.75 < small < 0.95
    assert any(at > 35 for _, at in lasts)
    assert {shape for shape, at in lasts if at > 5} == set(SHAPES)


def test_a_plan_with_named_kinds_of_load_is_never_small() -> None:
    assert {draw_plan(seed, ["emit"]) == draw_plan(seed, ["emit"], USUAL_SIZE) for seed in range(10)} == {True}
    assert draw_plan(1, size=SMALL).topology.shape == "pair"


def test_every_plan_has_aimed_faults_and_leaves_out_some_kinds() -> None:
    for plan in map(draw_plan, SEEDS):
        kinds = {fault.kind for fault in plan.faults}
        assert kinds & {FaultKind.AT_JOB, FaultKind.AT_ANSWER}
        assert kinds < set(FaultKind)


def test_some_units_repeat_an_id_and_some_refresh_one() -> None:
    ids: list[str] = []
    refreshed = 0
    for step in draw_plan(4, ["emit"]).load:
        ids += [event["id"] for event in step.data["events"]]
        refreshed += any("expiresAt" in event for event in step.data["events"])
    assert len(set(ids)) < len(ids)
    assert refreshed


def test_a_plan_without_one_of_its_faults_keeps_the_others() -> None:
    plan = draw_plan(4)
    without = replace(plan, faults=plan.faults[1:])
    assert plan_from_json(without.to_json()).faults == plan.faults[1:]


def test_events_reach_the_nodes_behind_a_relay_only() -> None:
    links = [PlannedLink("a", "b", relay=False), PlannedLink("b", "c", relay=True), PlannedLink("c", "d", relay=False)]
    topology = Topology("chain", ["a", "b", "c", "d"], links)
    assert topology.reached("a") == {"a", "b", "c"}
    assert topology.reached("c") == {"c", "d"}


def test_some_restores_take_an_epoch_that_began_after_the_copy() -> None:
    def takes_an_epoch(restore: Fault, faults: list[Fault]) -> bool:
        epochs = [each.at for each in faults if (each.kind, each.target) == (FaultKind.EPOCH, restore.target)]
        return restore.amount > LOST_EPOCH_SECONDS[0] and any(restore.at < at <= restore.at + 1 for at in epochs)

    plans = [draw_plan(seed, size=USUAL_SIZE).faults for seed in range(200)]
    restores = [(each, faults) for faults in plans for each in faults if each.kind == FaultKind.RESTORE]
    share = sum(takes_an_epoch(each, faults) for each, faults in restores) / len(restores)
    assert LOST_EPOCHS / 2 < share < LOST_EPOCHS * 1.5


def test_clients_of_two_nodes_use_the_same_ids_where_nothing_takes_their_events_away() -> None:
    users: dict[str, set[str]] = {}
    for step in draw_plan(1, ["conflict"]).load:
        for event in step.data["events"] if "events" in step.data and step.kind == "conflict" else ():
            users.setdefault(event["id"], set()).add(step.host)
    assert max(map(len, users.values())) == 2
    for plan in map(draw_plan, SEEDS):
        kinds = {step.kind for step in plan.load}
        takes = "retention" in kinds or any(fault.kind == FaultKind.RESTORE for fault in plan.faults)
        assert not ("conflict" in kinds and takes)
    assert {"retention"} == {step.kind for step in draw_plan(1, ["conflict", "retention"]).load} - {"emit"}
