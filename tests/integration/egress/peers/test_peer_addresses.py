"""Links reach the addresses that the settings allow, and say which setting forbids another."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp import ClientSession

from tests.integration.conftest import MakeSites
from tests.support.declared import peer
from tests.support.ports import free_port
from tests.support.receivers import receiving
from tests.support.sites import Site


async def two(sites: MakeSites, **flags: str) -> tuple[Site, Site]:
    a, b = sites("a", "b")
    await a.start(**flags)
    await b.start()
    await b.join()
    await a.join(b)
    return a, b


async def verify(site: Site) -> Any:
    """The answer of the node's API to the question what b holds."""
    assert site.running.api_address is not None
    url = "http://{}:{}/api/v1/groups/edge/peers/b/verify".format(*site.running.api_address)
    async with ClientSession() as session, session.post(url, json={}) as answer:
        return await answer.json()


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        ({"peer_allow": "10.0.0.0/8"}, "127.0.0.1 is not in EVENTD_PEER_ALLOW"),
        ({"peer_deny": "127.0.0.0/8"}, "127.0.0.1 is denied by entry 1 of EVENTD_PEER_DENY, '127.0.0.0/8'"),
        ({"peer_allow": "127.0.0.1", "peer_deny": "127.0.0.1"}, "127.0.0.1 is denied by entry 1 of EVENTD_PEER_DENY"),
    ],
)
async def test_a_peer_at_a_forbidden_address_blocks_its_link_until_the_settings_allow_it(
    sites: MakeSites, flags: dict[str, str], reason: str
) -> None:
    a, b = await two(sites, **flags)
    await a.emit("e1")
    cursor = await a.in_state("b", "blocked", "address_forbidden")
    assert cursor.last_error.startswith(reason)
    assert (await verify(a))["error"]["message"].startswith(f"b cannot be queried: {reason}")
    assert await b.ids() == []
    await a.stop()
    await a.start(peer_allow="127.0.0.0/8")
    await b.holds("e1")


async def test_a_peer_over_v1_is_judged_too(sites: MakeSites) -> None:
    (a,) = sites("a")
    async with receiving("127.0.0.1", free_port()) as receiver:
        await a.start(peer_deny="127.0.0.1")
        await a.join()
        await a.apply(peer("b", receiver.port, protocol="v1"))
        await a.emit("e1")
        await a.in_state("b", "blocked", "address_forbidden")
        assert receiver.connections == 0


async def test_peers_may_be_on_private_addresses_and_any_port_without_entries(sites: MakeSites) -> None:
    a, b = await two(sites)
    await a.emit("e1")
    await b.holds("e1")
