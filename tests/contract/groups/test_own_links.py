"""The report of a node on its own links, from the database."""

from __future__ import annotations

from typing import Any

import pytest

from eventd.api.framework.operations import Services
from eventd.groups import own_links
from eventd.groups.lookup import find_group
from eventd.groups.own_links import NO_RATES, LinkRates, read_own_links
from eventd.log.core.eventlog import EventLog
from eventd.runtime.clock import SECOND
from eventd.store.engine.database import Connection
from eventd.store.rows.links import StoredMark, write_mark
from eventd.testing import NOW, ManualClock
from federation.status import IN, OUT, NodeReport
from tests.support import operations
from tests.support.declared import declare, group, peer


async def declared(log: EventLog, *peers: str) -> None:
    documents: list[dict[str, Any]] = [group("a", port=8787, secret="/etc/edge.key", name="edge")]
    text = declare(*documents, *(peer(name, 8788) for name in peers))
    await operations.run(Services(log), "resources.apply", sources=[{"name": "test", "text": text}], prune=False)


def heard(conn: Connection, topic: int, senders: dict[str, int]) -> None:
    for node, at in senders.items():
        write_mark(conn, topic, node, StoredMark("e", 1, 0, 1), at)


async def report(log: EventLog, rates: LinkRates = NO_RATES) -> NodeReport:
    def read(conn: Connection) -> NodeReport:
        return read_own_links(conn, find_group(conn, "edge"), NOW, rates)

    return await log.database.read(read)


async def test_links_in_both_directions_with_their_rates(log: EventLog, clock: ManualClock) -> None:
    await declared(log, "b")
    topic = await log.topic("group:edge")
    await log.database.write(heard, topic, {"b": NOW - 5 * SECOND})
    found = await report(log, LinkRates({"b": 1.5}, {"b": 2.5, "v1-sender": 0.5, "not a name": 9.0, "a": 1.0}))
    assert found.node == "a"
    assert [(link.peer, link.direction) for link in found.links] == [("b", OUT), ("b", IN), ("v1-sender", IN)]
    out, inbound, v1 = found.links
    assert (out.state, out.events_per_second, out.last_seconds) == ("running", 1.5, None)
    assert (inbound.state, inbound.events_per_second, inbound.last_seconds) == ("", 2.5, 5.0)
    assert (v1.events_per_second, v1.last_seconds) == (0.5, None)


async def test_invented_senders_displace_no_declared_one(log: EventLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_links, "MOST_LINKS", 3)
    await declared(log, "b", "c")
    topic = await log.topic("group:edge")
    invented = {f"x{number}": NOW for number in range(5)}
    await log.database.write(heard, topic, {"b": NOW - 900 * SECOND, **invented})
    found = await report(log)
    assert [link.peer for link in found.links if link.direction == IN] == ["b", "x0", "x1"]
    assert found.left_out == 3


async def test_a_group_without_peers_has_no_links(log: EventLog) -> None:
    await declared(log)
    assert (await report(log)).links == ()
