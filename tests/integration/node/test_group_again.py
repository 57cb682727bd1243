"""A group of a running node is deleted and applied again, perhaps before the node notices."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest

from eventd.egress.cursors import reconcile
from eventd.resources.apply import apply_loaded, delete_resources
from eventd.resources.kinds.registry import EVENT_GROUP, EVENT_PEER
from eventd.resources.reading.documents import Identity, load_text
from eventd.store.engine.database import Connection, Database
from eventd.store.rows.registry import read_resources
from eventd.testing import until
from federation.errors import V1Refused
from federation.v1 import sign_v1
from tests.integration.conftest import MakeSites
from tests.support.declared import API_VERSION, PLAIN_GROUP, declare, group, peer
from tests.support.fresh import on_sqlite
from tests.support.sites import Site


def elsewhere(site: Site, *documents: dict[str, Any], peers: list[str]) -> None:
    """Another process deletes the group with its peers, and declares these documents. The node cannot look meanwhile:
    this blocks its loop."""
    doomed = [Identity(API_VERSION, EVENT_PEER.name, f"edge-{name}") for name in peers]
    doomed.append(Identity(API_VERSION, EVENT_GROUP.name, "edge"))
    text = declare(*documents)

    def delete(conn: Connection) -> None:
        delete_resources(conn, doomed, now=site.clock.now())
        reconcile(conn, read_resources(conn), site.clock.now())

    def again(conn: Connection) -> None:
        apply_loaded(conn, load_text("test", text), now=site.clock.now())
        reconcile(conn, read_resources(conn), site.clock.now())

    with closing(Database(site.url)) as database:
        database.write_now(delete)
        if documents:
            database.write_now(again)


def own(site: Site) -> dict[str, Any]:
    return group(site.name, port=site.port, secret=site.secret, **PLAIN_GROUP)


async def pair(sites: MakeSites, urls: list[str]) -> tuple[Site, Site]:
    """Two nodes; only a sends."""
    a, b = sites("a", "b", urls=urls)
    for node in (a, b):
        await node.start(prune_interval="1h")  # retention also deletes the records of deleted topics
        await node.join(**PLAIN_GROUP)
    await a.apply(peer("b", b.port))
    await a.emit("e1", "e2")
    await b.holds("e1", "e2")
    await a.caught_up("b")
    return a, b


async def test_a_receiver_that_begins_anew_gets_everything_again(migrated_url: str, sites: MakeSites) -> None:
    """Its sender has receipts for what it held before."""
    a, b = await pair(sites, ["", migrated_url])
    await b.emit("of-b")
    before = b.running.groups["edge"]
    elsewhere(b, own(b), peers=[])
    await b.settled()
    assert b.running.groups["edge"].topic_id != before.topic_id
    await a.emit("e3")
    await b.holds("e1", "e2", "e3")
    await a.caught_up("b")
    assert await b.ids() == ["e1", "e2", "e3"]
    assert await b.rows(
        "SELECT base, upto FROM inbound_links WHERE topic_id = ?", b.running.groups["edge"].topic_id
    ) == [(0, 3)]


@on_sqlite
async def test_a_sender_that_begins_anew_sends_nothing_of_what_it_held_before(
    migrated_url: str, sites: MakeSites
) -> None:
    a, b = await pair(sites, [migrated_url, ""])
    [c] = sites("c")
    await c.start()
    await c.join()
    elsewhere(a, own(a), peer("b", b.port), peers=["b"])
    await a.settled()
    await a.emit("n1")
    await a.apply(peer("c", c.port))
    await c.holds("n1")
    await b.holds("n1")
    await a.caught_up("b", "c")
    assert (await c.ids(), await b.ids(), await a.ids()) == (["n1"], ["e1", "e2", "n1"], ["n1"])
    assert set((await a.deliveries()).values()) == {"delivered"}


async def test_a_group_that_is_deleted_is_served_no_more(migrated_url: str, sites: MakeSites) -> None:
    a, b = await pair(sites, ["", migrated_url])
    ingress = b.running.groups["edge"].ingress
    elsewhere(b, peers=[])
    seconds = str(b.clock.now() // 10**6)
    body = b'{"id":"late","group":"edge","sourceNode":"x","type":"t","observedAt":"2026-01-01T00:00:00Z"}'
    with pytest.raises(
        V1Refused, match="the group was deleted meanwhile"
    ):  # by a request that came in just before it was noticed
        await ingress.v1.push(seconds, sign_v1(b.secret.read_bytes().strip(), int(seconds), body), body)
    await until(lambda: not b.running.groups, "b to leave the group")
    await a.emit("e3")
    await a.in_state("b", "backing-off", "unreachable")
    assert ("group:edge",) not in await b.rows("SELECT name FROM topics")
    await b.join()
    await b.holds("e1", "e2", "e3")


async def test_deleting_through_the_node_itself_takes_effect_before_it_answers(sites: MakeSites) -> None:
    a, _ = await pair(sites, ["", ""])
    await a.ask("resources.delete", kind="EventPeer", name="edge-b")
    await a.ask("resources.delete", kind="EventGroup", name="edge")
    await until(lambda: not a.running.groups, "a to leave the group")
    await a.join()
    await a.emit("n1")
    assert await a.ids() == ["n1"]
