"""API keys of a running node: a new one is accepted at once, a revoked one is refused at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import ClientError, ClientSession

from eventd.api.framework.operations import Services
from eventd.errors import SettingsError
from eventd.log.core.eventlog import EventLog
from eventd.runtime.clock import SystemClock
from eventd.store.engine.database import Database
from eventd.testing import until
from tests.integration.conftest import MakeSites
from tests.support import operations
from tests.support.sites import Site


@pytest.fixture
async def session() -> AsyncIterator[ClientSession]:
    async with ClientSession() as opened:
        yield opened


async def beside(site: Site, verb: str, /, **params: Any) -> Any:
    """Run an operation on the database as a command does, the node up or down."""
    database = Database(site.url)
    log = await EventLog.open(database, SystemClock())
    try:
        return await operations.run(Services(log), f"keys.{verb}", **params)
    finally:
        await log.close()
        database.close()


def url(site: Site, path: str = "/api/v1/status") -> str:
    assert site.running.api_address is not None
    return f"http://127.0.0.1:{site.running.api_address[1]}{path}"


async def status(session: ClientSession, site: Site, key: str = "", path: str = "/api/v1/status") -> int:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    async with session.get(url(site, path), headers=headers) as answer:
        return answer.status


async def becomes(session: ClientSession, site: Site, expected: int, key: str = "") -> None:
    async def so() -> bool:
        return await status(session, site, key) == expected

    await until(so, f"the node to answer {expected}")


async def is_in_force(session: ClientSession, site: Site, key: str) -> None:
    """Wait until the node knows the key. Before it knows any key, it answers every client, with or without one."""
    await becomes(session, site, 401)
    await becomes(session, site, 200, key)


async def test_a_key_that_is_made_beside_the_node_is_in_force_and_everybody_needs_one(
    site: Site, session: ClientSession
) -> None:
    assert await status(session, site) == 200
    made = await beside(site, "create", name="ops")
    await becomes(session, site, 401)
    assert await status(session, site, made["key"]) == 200
    assert await status(session, site, made["key"] + "x") == 401


async def test_a_key_that_is_revoked_beside_the_node_lets_nobody_in_and_opens_nothing(
    site: Site, session: ClientSession
) -> None:
    made = await beside(site, "create", name="ops")
    await is_in_force(session, site, made["key"])
    await beside(site, "revoke", name="ops")
    await becomes(session, site, 401, made["key"])
    assert await status(session, site) == 401


async def test_over_the_api_a_change_is_in_force_when_it_is_answered(site: Site, session: ClientSession) -> None:
    async def post(path: str, key: str = "", **body: Any) -> Any:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        async with session.post(url(site, f"/api/v1/keys{path}"), json=body, headers=headers) as answer:
            assert answer.status == 200, await answer.text()
            return await answer.json()

    admin = (await post("", name="admin"))["key"]
    assert await status(session, site) == 401
    reader = (await post("", admin, name="reader", scopes=["read"]))["key"]
    assert await status(session, site, reader) == 200
    assert await status(session, site, reader, "/api/v1/keys") == 403
    await post("/reader/revoke", admin)
    assert await status(session, site, reader) == 401
    assert (await post("/admin/revoke", admin))["state"] == "revoked"  # also the request's own key, with a notice
    assert await status(session, site, admin) == 401


async def test_a_key_for_some_groups_makes_no_keys(site: Site, session: ClientSession) -> None:
    some = (await beside(site, "create", name="some", prefixes=["edge-"]))["key"]
    await becomes(session, site, 401)
    assert await status(session, site, some, "/api/v1/keys") == 403
    headers = {"Authorization": f"Bearer {some}"}
    async with session.post(url(site, "/api/v1/keys"), json={"name": "more"}, headers=headers) as answer:
        assert answer.status == 403


async def test_a_stream_ends_with_its_key_and_others_go_on(site: Site, session: ClientSession) -> None:
    keys = [(await beside(site, "create", name=name, scopes=["read"]))["key"] for name in ("one", "two")]
    for key in keys:
        await is_in_force(session, site, key)
    path = url(site, "/api/v1/effective/stream")
    one, two = [await session.get(path, headers={"Authorization": f"Bearer {key}"}) for key in keys]
    try:
        for stream in (one, two):
            assert (await stream.content.readline()).startswith(b"event: state")
        await beside(site, "revoke", name="one")
        with pytest.raises(ClientError):
            async with asyncio.timeout(10):
                await one.read()
        assert two.connection is not None
        assert not two.connection.transport or not two.connection.transport.is_closing()
    finally:
        one.close()
        two.close()


async def test_a_stream_ends_when_its_key_expires(site: Site, session: ClientSession) -> None:
    key = (await beside(site, "create", name="brief", scopes=["read"], expires="5s"))["key"]
    await is_in_force(session, site, key)
    async with session.get(url(site, "/api/v1/effective/stream"), headers={"Authorization": f"Bearer {key}"}) as stream:
        with pytest.raises(ClientError):
            async with asyncio.timeout(10):
                await stream.read()
    await becomes(session, site, 401, key)  # the two clocks may differ by a moment


async def test_a_node_opens_to_others_once_there_is_a_key_and_stays_shut_when_it_is_revoked(
    sites: MakeSites, session: ClientSession
) -> None:
    (node,) = sites("a")
    with pytest.raises(SettingsError, match="other machines can reach the API"):
        await node.start(api_listen="0.0.0.0:0")
    await node.stop()
    made = await beside(node, "create", name="ops")
    await node.start(api_listen="0.0.0.0:0")
    assert (await status(session, node, made["key"]), await status(session, node)) == (200, 401)
    await beside(node, "revoke", name="ops", forget=True)
    await becomes(session, node, 401, made["key"])
    assert await status(session, node) == 401


async def test_keys_are_in_force_again_after_a_restart(site: Site, session: ClientSession) -> None:
    good = (await beside(site, "create", name="good"))["key"]
    gone = (await beside(site, "create", name="gone"))["key"]
    await beside(site, "revoke", name="gone")
    await site.stop()
    await site.start()
    assert [await status(session, site, key) for key in (good, gone, "")] == [200, 401, 401]
