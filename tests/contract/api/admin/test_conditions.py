"""Each condition that a client can wait for, met and not, on real rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from eventd.api.framework.operations import Services
from eventd.errors import Conflict, EventdError, Invalid, NotFound
from eventd.log.core.eventlog import EventLog
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import execute
from eventd.testing import NOW, draft
from tests.support import operations
from tests.support.declared import callback, declare, group, peer
from tests.support.derived import plugin, subscription
from tests.support.fresh import on_sqlite


@pytest.fixture
async def services(log: EventLog) -> Services:
    """The group edge with a peer, a subscription and a callback, none of which anything has been delivered to."""
    found = Services(log)
    declared = declare(
        group("here", name="edge", auth={"secretFile": "/no/key"}),
        peer("there", 9, group="edge"),
        callback("hook", group="edge"),
        plugin("/bin/true"),
        subscription("t"),
    )
    await operations.run(found, "resources.apply", sources=[{"name": "f", "text": declared}])
    return found


async def look(services: Services, kind: str, name: str, condition: str) -> dict[str, Any]:
    told: dict[str, Any] = await operations.run(
        services, "resources.wait", kind=kind, name=name, condition=condition, seconds=0
    )
    return told


async def names_of(services: Services) -> dict[str, str]:
    rows = (await operations.run(services, "resources.list"))["resources"]
    return {row["kind"]: row["metadata"]["name"] for row in rows}


@pytest.mark.parametrize("kind", ["EventPeer", "EventSubscription", "EventCallback"])
@on_sqlite
async def test_a_link_is_caught_up_when_no_event_waits_for_it(services: Services, log: EventLog, kind: str) -> None:
    name = (await names_of(services))[kind]
    found = await look(services, kind, name, "caught-up")
    assert found == {
        "object": f"{kind}/{name}",
        "condition": "caught-up",
        "met": True,
        "state": "running, 0 events waiting" if kind == "EventCallback" else found["state"],
    }
    await log.append(await log.topic("group:edge"), [draft("e1")])
    found = await look(services, kind, name, "caught-up")
    assert (found["met"], found["state"].endswith("1 event waiting")) == (False, True), found


@on_sqlite
async def test_a_state_is_the_one_that_operators_see(services: Services) -> None:
    name = (await names_of(services))["EventPeer"]
    assert (await look(services, "ep", name, "state=running"))["met"]
    await operations.run(services, "links.pause", group="edge", peer="there")
    found = await look(services, "ep", name, "state=running")
    assert (found["met"], found["state"]) == (False, "paused, 0 events waiting")
    assert (await look(services, "ep", name, "state=paused"))["met"]


@on_sqlite
async def test_a_generation_is_compared_and_a_deletion_seen(services: Services) -> None:
    name = (await names_of(services))["EventCallback"]
    assert (await look(services, "EventCallback", name, "generation>0"))["met"]
    found = await look(services, "EventCallback", name, "generation>1")
    assert (found["met"], found["state"]) == (False, "generation 1")
    assert not (await look(services, "EventCallback", name, "deleted"))["met"]
    await operations.run(services, "resources.delete", kind="EventCallback", name=name)
    assert (await look(services, "EventCallback", name, "deleted"))["met"]
    with pytest.raises(NotFound):
        await look(services, "EventCallback", name, "generation>1")


async def test_an_event_is_delivered_when_the_peer_has_acknowledged_it(services: Services, log: EventLog) -> None:
    await log.append(await log.topic("group:edge"), [draft("e1")])
    found = await look(services, "event", "e1", "delivered=there")
    assert (found["met"], found["state"]) == (False, "pending")
    await services.database.write(_deliver_all)
    found = await look(services, "event", "e1", "delivered=there")
    assert not found["met"], "a cursor proves no delivery"
    with pytest.raises(NotFound, match="no peer elsewhere"):
        await look(services, "event", "e1", "delivered=elsewhere")
    with pytest.raises(NotFound, match="has an event e2"):
        await look(services, "event", "e2", "delivered=there")


def _deliver_all(conn: Connection) -> None:
    execute(conn, "UPDATE cursors SET position = (SELECT max(position) FROM cursors), succeeded_at = ?", (NOW,))


@on_sqlite
async def test_the_node_and_a_group_are_ready_by_their_checks(services: Services) -> None:
    assert (await look(services, "node", "", "ready"))["state"] == "no node serves this database"
    checks = {"database": "ok", "group edge": "cannot listen"}

    async def readiness() -> dict[str, str]:
        return checks

    asked = replace(services, readiness=readiness)
    assert (await look(asked, "node", "", "ready"))["state"] == "group edge: cannot listen"
    assert not (await look(asked, "eg", "edge", "ready"))["met"]
    checks["group edge"] = "ok"
    assert (await look(asked, "node", "", "ready"))["met"]
    assert (await look(asked, "eg", "edge", "ready"))["met"]


@pytest.mark.parametrize(
    ("kind", "name", "condition", "error"),
    [
        ("ep", "to", "nonsense", Invalid),
        ("ep", "to", "state=dreaming", Invalid),
        ("ep", "to", "generation>", Invalid),
        ("ep", "", "caught-up", Invalid),
        ("node", "x", "ready", Invalid),
        ("node", "", "deleted", Invalid),
        ("queue", "none", "caught-up", NotFound),
        ("nokind", "x", "deleted", NotFound),
        ("eg", "edge", "caught-up", Invalid),
        ("eg", "nothere", "ready", NotFound),
    ],
)
@on_sqlite
async def test_what_cannot_be_waited_for_is_refused_at_once(
    services: Services, kind: str, name: str, condition: str, error: type[EventdError]
) -> None:
    with pytest.raises(error):
        await look(services, kind, name, condition)


@on_sqlite
async def test_an_event_that_a_peer_does_not_get_is_refused_at_once(services: Services, log: EventLog) -> None:
    declared = declare(peer("picky", 10, group="edge", types=["net.example.other"]))
    await operations.run(services, "resources.apply", sources=[{"name": "f", "text": declared}])
    await log.append(await log.topic("group:edge"), [draft("e1")])
    with pytest.raises(Conflict, match="not meant for 'picky'"):
        await look(services, "event", "e1", "delivered=picky")
