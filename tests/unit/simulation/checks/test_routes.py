"""The checks of routers name a missing, repeated or misplaced copy, a lost record, and a router that was not taken."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from eventd.simulation.checks.routes import HOPS, RouteReference
from eventd.simulation.load.routes import LISTED, ROUTE_LISTING, ROUTE_TOPIC, ROUTE_WRITE, ROUTER, ROUTERS, route_record
from eventd.simulation.world.journal import Asked, Journal, Restore

Lists = dict[str, list[int]]
RIGHT: Lists = {
    "route-in-1": [0, 1],
    "route-exact": [0, 1],
    "route-merge": [0],
    "route-end": [0],
    "hops-a": [2] * (HOPS // 2 + 1),
    "hops-b": [2] * (HOPS // 2),
}
FIRST = {0: "route-in-1", 1: "route-in-1", 2: "hops-a", 3: "loop-a"}


def listing(topic: str, numbers: list[int], asked_at: float = 5.0) -> Asked:
    records: list[dict[str, Any]] = []
    for seq, number in enumerate(numbers, 1):
        record = route_record(number, FIRST[number])
        records.append({"$seq": seq, "$tag": record["tag"], "data": record["data"]})
    return Asked(ROUTE_LISTING, "a", asked_at, asked_at + 0.1, 200, None, {"records": records}, path=topic)


def found(
    lists: Lists,
    *,
    declared: int = len(ROUTERS),
    power: bool = False,
    durability: str = "fsync",
    status: int = 200,
    restores: Sequence[Restore] = (),
    earlier: Sequence[Asked] = (),
    late: str = "",
) -> set[str]:
    """Return the invariants that these lists violate; `late`: the router that was declared after the others."""
    routers = list(ROUTERS)[:declared]
    records = {"records": [route_record(number, "route-in-1") for number in (0, 1)]}
    path = "/v0/topics/route-in-1"
    asked = [
        Asked(ROUTE_TOPIC, "a", 0.1, 0.1, 200, {"durability": durability}, None, path=path),
        *(Asked(ROUTER, "a", 0.1, 0.4 if name == late else 0.2, 200, None, None, path=name) for name in routers),
        Asked(ROUTE_WRITE, "a", 1.0, 1.1, status, records, None, path=path),
        *earlier,
        *(listing(topic, lists.get(topic, [])) for topic in LISTED),
    ]
    changes = [(2.0, "power", "a")] if power else []
    return {each.invariant for each in RouteReference(Journal(asked, changes, [*restores]), "a", 0.0).violations()}


def test_copies_of_all_records_in_order_violate_nothing() -> None:
    assert found(RIGHT) == set()


@pytest.mark.parametrize(
    "change",
    [
        {"route-exact": [0]},
        {"route-exact": [1, 0]},
        {"route-exact": [0, 1, 1]},
        {"route-merge": [0, 1]},
        {"route-end": []},
        {"hops-b": [2]},
        {"loop-a": [3]},
        {"loop-a": [3, 3], "loop-b": [3, 3]},
    ],
)
def test_wrong_copies_are_named(change: Lists) -> None:
    assert found(RIGHT | change) == {"V12"}


def test_a_power_loss_takes_acknowledged_records_only_where_they_did_not_wait_for_the_disk() -> None:
    lost = {"route-in-1": [0], "route-exact": [0]}
    assert found(RIGHT | lost, status=0) == set()
    assert found(RIGHT | lost) == {"V3"}
    assert found(RIGHT | lost, power=True) == {"V3"}
    assert found(RIGHT | lost, power=True, durability="disk") == set()


def test_a_router_that_was_not_taken_is_named() -> None:
    assert found(RIGHT, declared=len(ROUTERS) - 1) == {"V12"}


def test_copies_are_held_against_what_their_source_had_later() -> None:
    one, none = listing("route-exact", [0], 4.0), listing("route-in-1", [], 3.9)
    assert found(RIGHT, earlier=[one, none]) == set()
    assert found(RIGHT, earlier=[one, listing("route-in-1", [], 4.1)]) == {"V12"}


@pytest.mark.parametrize(
    ("copied", "change", "violations"),
    [
        (0.1, {"route-exact": [1]}, set()),  # the router was declared again, and copies what came later
        (0.1, {"route-exact": [0]}, {"V12"}),
        (0.1, {"route-in-1": [1], "route-exact": [1], "route-merge": [], "route-end": []}, set()),
        (0.3, {"route-exact": [1]}, {"V12"}),
        (1.05, {"route-in-1": [], "route-exact": [], "route-merge": [], "route-end": []}, set()),
        (1.2, {"route-in-1": [], "route-exact": [], "route-merge": [], "route-end": []}, {"V3"}),
    ],
)
def test_a_restore_takes_declarations_and_writes_that_the_copy_may_not_have(
    copied: float, change: Lists, violations: set[str]
) -> None:
    assert found(RIGHT | change, restores=[Restore("a", copied, 2.0)]) == violations


@pytest.mark.parametrize(("late", "violations"), [("exact", set()), ("loop-back", {"V12"})])
def test_a_router_copies_everything_unless_a_restore_may_have_taken_its_own_declaration(
    late: str, violations: set[str]
) -> None:
    assert found(RIGHT | {"route-exact": [1]}, restores=[Restore("a", 0.3, 2.0)], late=late) == violations


@pytest.mark.parametrize("topic", ["route-in-1", "route-exact", "hops-b"])
def test_a_copy_with_other_data_than_was_written_is_named(topic: str) -> None:
    changed = listing(topic, RIGHT[topic], 4.5)
    changed.answer["records"][-1]["data"]["text"] = "y"
    assert found(RIGHT, earlier=[changed]) == {"V7"}


def test_a_copy_of_an_event_with_another_payload_is_named() -> None:
    emitted = Asked("emit", "a", 1.0, 1.1, 0, {"events": [{"id": "e", "type": "door.open", "payload": {}}]}, None)
    copies = [{"$seq": 1, "meta": {"id": "e"}, "data": {"text": "y"}}]
    changed = Asked(ROUTE_LISTING, "a", 4.5, 4.6, 200, None, {"records": copies}, path="route-events")
    assert found(RIGHT, earlier=[emitted, changed]) == {"V7"}
