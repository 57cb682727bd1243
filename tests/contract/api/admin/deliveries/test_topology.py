"""The routing graph over the API: its routers, what a check finds, and its bounds."""

from __future__ import annotations

from typing import Any

import pytest

from eventd.api.admin.deliveries import topology
from eventd.api.framework.operations import Services
from eventd.errors import Invalid, NotFound
from eventd.log.core.eventlog import EventLog
from tests.support import operations
from tests.support.fresh import on_sqlite
from tests.support.routed import RoutedTopics


async def show(log: EventLog, **asked: Any) -> dict[str, Any]:
    found: dict[str, Any] = await operations.run(Services(log), "topology.show", **asked)
    return found


@on_sqlite
async def test_routers_are_shown_with_what_a_record_becomes(log: EventLog) -> None:
    await RoutedTopics(log).route("a->b", "b->c")
    found = await show(log)
    assert [(one["router"], one["exists"]) for one in found["routers"]] == [("a->b", True), ("b->c", True)]
    assert (found["problems"], found["advice"], found["complete"], found["leftOut"]) == ([], "", True, 0)
    assert [(row["topic"], row["dest"], row["copies"]) for row in found["predicted"]] == [
        ("a", "b", 1),
        ("a", "c", 1),
        ("b", "c", 1),
    ]


@on_sqlite
async def test_a_router_is_checked_before_it_exists(log: EventLog) -> None:
    await RoutedTopics(log).route("a->b", "b->c")
    refused = await show(log, add=["c->a"])
    assert [(one["problem"], one["at"]) for one in refused["problems"]] == [("cycle", "c->a")]
    assert refused["advice"].startswith("give each of these routers fan_in")
    allowed = await show(log, add=["back=c->d,fan_in"])
    assert [one["router"] for one in allowed["routers"] if not one["exists"]] == ["back"]
    assert len((await show(log))["routers"]) == 2, "nothing was changed"


@on_sqlite
async def test_a_check_leaves_out_what_would_be_removed(log: EventLog) -> None:
    await RoutedTopics(log).route("a->b", "b->c")
    assert (await show(log, add=["c->a"], remove=["a->b"]))["problems"] == []
    with pytest.raises(NotFound):
        await show(log, remove=["x"])
    for word in ("a", "a->b,fanin", "a->_b"):
        with pytest.raises(Invalid):
            await show(log, add=[word])


@on_sqlite
async def test_a_key_of_some_names_gets_the_routers_between_its_topics(log: EventLog) -> None:
    await RoutedTopics(log).route("e.a->e.b", "e.b->x", "y->e.a")
    services = Services(log, sees=lambda name: name.startswith("e."))
    found = await operations.run(services, "topology.show")
    assert [one["router"] for one in found["routers"]] == ["e.a->e.b"]


async def test_a_graph_beyond_the_bounds_is_not_called_complete(log: EventLog, monkeypatch: pytest.MonkeyPatch) -> None:
    await RoutedTopics(log).route("a->b", "b->c", "c->d")
    monkeypatch.setattr(topology, "MOST_ROWS", 2)
    found = await show(log)
    assert (len(found["routers"]), found["leftOut"], found["complete"]) == (2, 1, False)
    monkeypatch.setattr(topology, "MOST_ROWS", 100)
    monkeypatch.setattr(topology, "MOST_ROUTERS", 2)
    assert (await show(log))["complete"] is False
    monkeypatch.setattr(topology, "MOST_ROUTERS", 100)
    monkeypatch.setattr(topology, "LONGEST_SECONDS", -1.0)
    late = await show(log)
    assert (late["predicted"], late["complete"], len(late["routers"])) == ([], False, 3)


@on_sqlite
async def test_routers_are_found_by_a_text_also_beyond_those_that_are_shown(
    log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    await RoutedTopics(log).route("a->b", "b->c", "c->d", "d->Last")
    monkeypatch.setattr(topology, "MOST_ROWS", 2)
    monkeypatch.setattr(topology, "MOST_ROUTERS", 3)
    assert [one["router"] for one in (await show(log))["routers"]] == ["a->b", "b->c"]
    found = await show(log, contains="last")
    assert ([one["router"] for one in found["routers"]], found["leftOut"]) == (["d->Last"], 0)
    assert [one["router"] for one in (await show(log, contains="b"))["routers"]] == ["a->b", "b->c"]
    drafted = await show(log, contains="b", add=["x->b,fan_in"], remove=["a->b"])
    assert [one["router"] for one in drafted["routers"]] == ["b->c", "x->b"]


@on_sqlite
async def test_a_router_with_a_problem_is_not_left_out(log: EventLog, monkeypatch: pytest.MonkeyPatch) -> None:
    await RoutedTopics(log).route("a->b", "b->c", "c->d")
    monkeypatch.setattr(topology, "MOST_ROWS", 1)
    show_one = topology._show
    monkeypatch.setattr(
        topology, "_show", lambda router, line: {**show_one(router, line), "reason": "full" * (router.name == "c->d")}
    )
    assert [one["router"] for one in (await show(log))["routers"]] == ["c->d"]
