"""A node that catches up receives the stored blocks: the same events, in fewer bytes."""

from __future__ import annotations

import pytest

from eventd.ingress import peers
from federation.batch import Batch, read_batch
from federation.keys import Key
from federation.peers import BATCH_TYPE, RUNS_TYPE, Limits
from federation.wire import BatchHeader
from tests.integration.conftest import MakeSites
from tests.support.declared import group, peer

IDS = [f"e{number}" for number in range(100)]


async def test_a_receiver_behind_a_relay_catches_up_by_runs(sites: MakeSites, monkeypatch: pytest.MonkeyPatch) -> None:
    came: dict[str, list[str]] = {"b": [], "c": []}

    def reading(body: bytes, header: BatchHeader, key: Key, limits: Limits) -> Batch:
        came[header.to_node].append(header.form)
        return read_batch(body, header, key, limits)

    monkeypatch.setattr(peers, "read_batch", reading)
    a, b, c = sites("a", "b", "c")
    for node in (a, b, c):
        await node.start()
        await node.join()
    await a.emit(*IDS)
    few = {"limits": {"batchEvents": 20}}
    await a.apply(peer("b", b.port, **few))
    await b.holds(*IDS)
    key = {"id": "of-b", "owner": "b", "secretFile": str(b.secret), "speaksFor": "*"}
    for node in (b, c):
        await node.apply(group(node.name, port=node.port, secret=node.secret, auth={"keys": [key]}))
    await b.apply(peer("c", c.port, relay=True, **few))
    await c.holds(*IDS)
    for forms in came.values():
        assert forms[0] == BATCH_TYPE, "it has not said yet what it takes"
        assert set(forms[1:]) == {RUNS_TYPE}
        assert len(forms) >= 5
    held = [await node.stored() for node in (a, b, c)]
    assert [[record.event_id for record in records] for records in held] == [IDS, IDS, IDS]
    assert [record.body for record in held[0]] == [record.body for record in held[1]] == [r.body for r in held[2]]
    assert [{record.path for record in records} for records in held] == [{""}, {"a"}, {"a,b"}]
    await a.emit("alone")
    await c.holds("alone")
    assert [forms[-1] for forms in came.values()] == [BATCH_TYPE, BATCH_TYPE], "a run of one is not worth its head"
