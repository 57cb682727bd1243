"""Nodes that serve one group each of a database: `--group`."""

from __future__ import annotations

from contextlib import closing

import pytest

from eventd.api.framework.operations import Services
from eventd.log.core.eventlog import EventLog
from eventd.runtime.clock import SystemClock
from eventd.store.engine import changes
from eventd.store.engine.database import Database
from tests.integration.conftest import MakeSites
from tests.support import operations
from tests.support.declared import group, peer
from tests.support.sites import Site


@pytest.fixture(autouse=True)
def _no_poll_on_postgres(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "RELISTEN", 60.0)


async def _receiver(sites: MakeSites) -> Site:
    [b] = sites("b")
    await b.start()
    await b.apply(group("b", port=b.port, secret=b.secret))
    return b


async def test_what_another_process_appends_wakes_a_node_for_one_group(migrated_url: str, sites: MakeSites) -> None:
    b = await _receiver(sites)
    [a] = sites("a", urls=[migrated_url])
    await a.start(group="edge")
    await a.apply(group("a", secret=a.secret), group("a", secret=a.secret, name="other"), peer("b", b.port))
    assert list(a.running.groups) == ["edge"]
    with closing(Database(migrated_url)) as database:
        elsewhere = await EventLog.open(database, SystemClock())
        for number in range(3):
            for name in ("other", "edge"):
                await _emit(elsewhere, name, f"{name}{number}")
            await b.holds(f"edge{number}")
        await elsewhere.close()
    await a.caught_up("b")
    links = (await a.ask("links.status", group="edge"))["outbound"]
    assert [(link["state"], link["lagEvents"]) for link in links] == [("running", 0)]


async def _emit(log: EventLog, group: str, event_id: str) -> None:
    await operations.run(Services(log), "events.emit", group=group, events=[{"id": event_id, "type": "t"}])


@pytest.mark.postgres
async def test_two_nodes_for_a_group_each_share_a_database(migrated_postgres_url: str, sites: MakeSites) -> None:
    b = await _receiver(sites)
    edge, other = sites("edge", "other", urls=[migrated_postgres_url] * 2)
    await edge.start(group="edge")
    await other.start(group="other")
    await other.apply(
        group("a", secret=other.secret),
        group("o", port=other.port, secret=other.secret, name="other"),
        peer("b", b.port),
    )
    await edge.settled()
    assert (list(edge.running.groups), list(other.running.groups)) == (["edge"], ["other"])
    for number in range(3):
        await other.emit(f"e{number}")
        await b.holds(f"e{number}")
    await edge.caught_up("b")
    await edge.ask("links.pause", group="edge", peer="b")
    await other.emit("late")
    await other.ask("links.resume", group="edge", peer="b")
    await b.holds("late")
    assert await b.ids() == ["e0", "e1", "e2", "late"]
