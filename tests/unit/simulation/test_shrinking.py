"""Shrinking: what a failure does not need is left out of its plan."""

from __future__ import annotations

from eventd.simulation.plan import SimulationPlan, draw_plan
from eventd.simulation.shrinking import PlanShrinker


def plan_of(shape: str) -> SimulationPlan:
    plans = (draw_plan(seed, ["emit"]) for seed in range(1000))
    return next(plan for plan in plans if plan.topology.shape == shape and len(plan.faults) > 4)


def test_what_a_failure_does_not_need_is_left_out() -> None:
    plan = plan_of("triangle")
    step = next(step for step in plan.load if len(step.data["events"]) > 4)
    wanted, needed = plan.faults[-1], step.data["events"][0]["id"]

    def fails(smaller: SimulationPlan) -> bool:
        ids = {event["id"] for step in smaller.load for event in step.data["events"]}
        return wanted in smaller.faults and needed in ids

    small = PlanShrinker(fails).shrink(plan)
    assert small.faults == [wanted]
    [left] = small.load
    assert len(left.data["events"]) == 1
    concerned = {wanted.target, step.host, *wanted.other.split()[-1:]}
    assert len(small.topology.nodes) == max(2, len(concerned))
    assert {(link.source, link.dest) for link in small.topology.links} <= {
        (a, b) for a in small.topology.nodes for b in small.topology.nodes
    }


def test_a_plan_of_which_nothing_can_be_left_out_stays() -> None:
    plan = plan_of("pair")
    assert PlanShrinker(lambda smaller: smaller == plan).shrink(plan) == plan


def test_a_search_is_bounded() -> None:
    runs = []

    def fails(plan: SimulationPlan) -> bool:
        runs.append(plan)
        return True

    PlanShrinker(fails, most=3).shrink(plan_of("ring"))
    assert len(runs) == 3
