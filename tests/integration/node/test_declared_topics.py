"""A running node follows topics and routers that resources declare, without a restart."""

from __future__ import annotations

from typing import Any

from eventd.testing import until
from tests.integration.conftest import MakeSites
from tests.support.declared import topic, topic_router
from tests.support.sites import Site
from tests.support.topics import Topics


async def data(site: Site, name: str) -> list[Any]:
    return [record["data"] for record in await Topics(site.running.log).page(name)]


async def test_a_running_node_copies_as_long_as_the_router_is_declared(sites: MakeSites) -> None:
    (a,) = sites("a")
    await a.start()
    records = Topics(a.running.log)
    ends = [topic("orders"), topic("audit")]
    await a.apply(*ends, topic_router("orders", "audit"))
    await records.put("orders", 1)
    await until(lambda: _holds(a, [1]), "the copy")
    await a.apply(*ends, topic_router("orders", "audit", filter="eu"))
    await records.put("orders", 2)
    await records.put("orders", 3, tag="eu")
    await until(lambda: _holds(a, [1, 3]), "the copy of the record that the filter selects")
    await a.apply(*ends, prune=True)
    await records.put("orders", 4)
    await a.stop()
    await a.start()
    assert await data(a, "audit") == [1, 3]
    assert await data(a, "orders") == [1, 2, 3, 4]


async def _holds(site: Site, wanted: list[int]) -> bool:
    return await data(site, "audit") == wanted
