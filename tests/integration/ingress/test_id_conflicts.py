"""An id that two sources use: the second source learns which node has it, and the operator sees both."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from eventd.errors import Conflict
from eventd.node import gauges
from eventd.testing import until
from federation.digest import digest
from federation.keys import Key
from tests.integration.conftest import MakeSites
from tests.support.declared import group, peer
from tests.support.sites import Site
from tests.support.v1_node import V1Sender, body_of
from tests.support.v2_sender import SECRET, V2Sender, line


def _rings(node: Site, **spec: Any) -> dict[str, Any]:
    """A group in which a and x have keys of their own, and v1 the one of `old`."""
    owners = ("a", "b", "x", "old")
    keys = [{"id": f"k-{owner}", "owner": owner, "secretFile": str(node.secret)} for owner in owners]
    return group(node.name, port=node.port, secret=node.secret, auth={"keys": keys}, **spec)


@pytest.fixture
async def pair(sites: MakeSites, monkeypatch: pytest.MonkeyPatch) -> tuple[Site, Site]:
    monkeypatch.setattr(gauges, "MEASURE_SECONDS", 0.05)
    a, b = sites("a", "b")
    for node in (a, b):
        await node.start()
        await node.apply(_rings(node))
    await b.apply(peer("a", a.port), peer("x", 1))
    return a, b


async def _findings(node: Site) -> list[str]:
    report = await node.ask("doctor.examine")
    return [check["detail"] for check in report["checks"] if check.get("code") == "id-conflict"]


def _figure(node: Site, **labels: str) -> float | None:
    return node.running.metrics.registry.get_sample_value("routerd_eventd_id_conflicts", {"group": "edge", **labels})


async def test_both_sides_of_a_conflict_are_named(pair: tuple[Site, Site]) -> None:
    a, b = pair
    x = V2Sender(b.port, key=Key.hmac("k-x", SECRET, owner="x"))
    assert (await asyncio.to_thread(x.send, x.batch(line("t1", node="x"), line("t2", node="x")))).status == 200
    assert await _findings(b) == []

    with pytest.raises(
        Conflict, match="taken in group edge by another event of x, which came with the key k-x"
    ) as taken:
        await b.emit("t1")
    answer = await b.ask(
        "events.emit", group="edge", events=[{"type": "t", "id": "t1"}, {"type": "t", "id": "new"}], exceptions=True
    )
    marks = {record.event_id: digest(record.body).hex() for record in await b.stored()}
    owner = {"sourceNode": "x", "keyId": "k-x", "digest": marks["t1"]}
    assert answer["results"] == [{"index": 0, "id": "t1", "result": "conflict", "owner": owner}]
    assert marks["t1"] in taken.value.message
    assert taken.value.detail == {"owner": owner}  # type: ignore[attr-defined]

    await a.emit("t2")
    await a.apply(peer("b", b.port))
    await a.caught_up("b")
    [letter] = (await a.ask("dead_letters.list", group="edge"))["deadLetters"]
    assert (letter["reason"], letter["detail"]) == (
        "id_conflict",
        f"refused by b: the id belongs to an event of x with the digest {marks['t2']}",
    )

    first, second = await _findings(b)
    assert first.startswith("2 times an event of 'b' (emitted here) was not stored")
    assert "of 'x' (key 'k-x')" in first
    assert "the id 't1'" in first
    assert second.startswith("1 time an event of 'a' (key 'k-a') was not stored")
    assert "of 'x' (key 'k-x')" in second
    by = {"owner": "x", "owner_key": "k-x"}
    await until(lambda: _figure(b, **by, source="b", key="") == 2, "the figure of b's own events")
    await until(lambda: _figure(b, **by, source="a", key="k-a") == 1, "the figure of a's events")
    assert await _findings(a) == []


async def test_a_v1_sender_is_told_nothing_and_the_operator_all(pair: tuple[Site, Site]) -> None:
    _, b = pair
    await b.emit("t1")
    old = V1Sender(b.port, SECRET.encode())
    reply = await asyncio.to_thread(old.post, body_of("t1", sourceNode="a"))
    assert (reply.status, json.loads(reply.body)["duplicate"]) == (200, True)
    [told] = await _findings(b)
    assert told.startswith("1 time an event of 'a' (key 'k-a') was not stored")
    assert "of 'b' (emitted here)" in told


async def test_two_events_of_one_batch_and_one_that_is_gone(pair: tuple[Site, Site]) -> None:
    _, b = pair
    await b.apply(_rings(b, retention={"maxEvents": 1}))
    x = V2Sender(b.port, key=Key.hmac("k-x", SECRET, owner="x"))
    batch = x.batch(line("twice", node="x"), line("twice", node="x", subject="s"), line("last", node="x"))
    receipt = json.loads((await asyncio.to_thread(x.send, batch)).body)
    assert [(one["id"], one["owner"], len(one["digest"])) for one in receipt["refused"]] == [("twice", "x", 64)]
    [told] = await _findings(b)
    assert "an event of 'x' (key 'k-x') was not stored, because its id belongs to an earlier one of the same" in told
    await b.ask("events.prune", group="edge")
    assert await b.ids() == ["last"]
    with pytest.raises(Conflict, match="twice is taken in group edge by another event, which is not stored"):
        await b.emit("twice")
    assert any("of '?' (key not known)" in told for told in await _findings(b))
