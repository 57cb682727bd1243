"""A node behind a hub checks what the hub brings: true events are verified, an invented one is refuted."""

from __future__ import annotations

import asyncio

import pytest

from eventd.log.history.trees import StoredCheckpoint, Tree, find_open_tree, read_checkpoint_of
from eventd.log.witnesses import checking
from eventd.store.engine.database import Connection
from eventd.testing import until
from eventd.witnessing import offering, verifying
from federation.history.checkpoints import read_origin
from tests.integration.conftest import MakeSites
from tests.support.declared import group, peer
from tests.support.sites import Site
from tests.support.v2_sender import V2Sender, line


def read_signed(conn: Connection, topic: int) -> tuple[Tree, StoredCheckpoint | None] | None:
    tree = find_open_tree(conn, topic)
    return (tree, read_checkpoint_of(conn, tree.id)) if tree else None


async def signed(site: Site, size: int) -> Tree:
    """Wait for a checkpoint of this size."""
    topic = await site.running.log.topic("group:edge")
    found: list[Tree] = []

    async def is_there() -> bool:
        state = await site.running.log.database.read(read_signed, topic)
        found[:] = [state[0]] if state else []
        return bool(state and state[1] and state[1].size == size)

    await until(is_there, f"a checkpoint of size {size}")
    return found[0]


async def checked(site: Site, upto: int) -> None:
    async def is_checked() -> bool:
        return await site.rows("SELECT 1 FROM leaf_hints WHERE checked >= ?", upto) != []

    await until(is_checked, f"the check of position {upto}", seconds=40)


async def test_a_hub_is_believed_only_what_the_tree_of_the_node_has(
    sites: MakeSites, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checking, "GRACE", 0)
    monkeypatch.setattr(checking, "WAIT", 100_000)
    monkeypatch.setattr(verifying, "IDLE_SECONDS", 0.2)
    monkeypatch.setattr(verifying, "CHECK_SECONDS", 0.05)
    monkeypatch.setattr(offering, "OFFER_SECONDS", 0.05)
    monkeypatch.setattr(verifying, "ASK_SECONDS", 0.2)
    a, hub, c = sites("a", "hub", "c")
    for site in (a, hub, c):
        await site.start()
    await a.join(hub, history={"mode": "record"})
    passes_on = [peer(each.name, each.port, group="edge", relay=True) for each in (a, c)]
    record = {"history": {"mode": "record"}}
    await hub.apply(group("hub", port=hub.port, secret=hub.secret, name="edge", **record), *passes_on)
    tree = await signed(a, 1)
    pinned = {"keys": [{"node": "a", "logKey": tree.log_key}]}
    await c.join(hub, history={"mode": "record"} | pinned)
    answers = c.running.groups["edge"].history.answers
    await c.join(hub, history={"mode": "verify"} | pinned)
    assert c.running.groups["edge"].history.answers is answers, "sealing and offers go on"
    await a.emit("e1", "e2")
    await c.holds("e1", "e2")
    await checked(c, 2)
    assert (await c.rows("SELECT size FROM trees WHERE origin = ?", tree.origin)) == [(3,)]

    forger = V2Sender(c.port, node="z", to="c")
    batch = forger.batch(line("e3", node="a"), paths=["a"])
    hint = f'(1 1);t="{read_origin(tree.origin).tree}"'.encode()
    batch = batch.replace(b"\r\nContent-Length", b"\r\nEventd-Leaves: " + hint + b"\r\nContent-Length", 1)
    assert (await asyncio.to_thread(forger.send, batch)).status == 200

    async def is_found() -> bool:
        return await c.rows("SELECT kind, node FROM history_findings") == [("refuted", "z")]

    await until(is_found, "the finding")
    await a.emit("e3", subject="the true one")

    async def is_stored() -> bool:
        return len([one for one in await c.stored() if one.event_id == "e3"]) == 2

    await until(is_stored, "the true event beside the forged one")
