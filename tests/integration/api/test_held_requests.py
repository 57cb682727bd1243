"""Requests that the node holds open end with the client and the node, and count towards the limit of their key."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from eventd.api.framework.operations import Services
from eventd.api.framework.route import BodyLimits, Method, Route
from eventd.api.keys.scopes import Scope
from tests.integration.api.conftest import NodeServer, Nothing, StartApi


class Held:
    """The requests that are held: how many have begun, and one future for the end of each."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.ended = asyncio.Event()

    async def hold(self, services: Services, params: Nothing) -> dict[str, Any]:
        self.begun.set()
        while services.client_waits():
            await services.clock.sleep(0.01)
        self.ended.set()
        return {}

    def route(self, method: Method = "GET", scope: Scope = "read") -> Route:
        async def hold(services: Services, params: Nothing) -> dict[str, Any]:
            return await self.hold(services, params)

        return Route(method, "/api/v1/held", (scope,), "hold", hold, BodyLimits(100), may_be_empty=True, holds=True)


@pytest.mark.parametrize(("method", "scope"), [("GET", "read"), ("POST", "admin")], ids=["look", "action"])
async def test_a_request_ends_when_its_client_has_left(start_api: StartApi, method: Method, scope: Scope) -> None:
    held = Held()
    api = await start_api(operations=(held.route(method, scope),), make_server=NodeServer)
    _, writer = await asyncio.open_connection("127.0.0.1", api.port)
    async with asyncio.timeout(10):
        writer.write(f"{method} /api/v1/held HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n".encode())
        await held.begun.wait()
        assert not held.ended.is_set()
        writer.close()
        await held.ended.wait()


async def test_a_request_ends_when_the_node_stops(start_api: StartApi) -> None:
    held = Held()
    api = await start_api(operations=(held.route(),), make_server=NodeServer)
    async with asyncio.timeout(10):
        first = asyncio.ensure_future(api.ask("GET", "/api/v1/held"))
        await held.begun.wait()
        await api.server.close()
        assert (await first)[:2] == (200, {})


async def test_a_key_holds_as_many_requests_as_it_may_have_under_way(start_api: StartApi) -> None:
    held = Held()
    api = await start_api("one:read", operations=(held.route(),), make_server=NodeServer, max_inflight=1)
    headers = {"Authorization": "Bearer one"}
    async with asyncio.timeout(10):
        first = asyncio.ensure_future(api.ask("GET", "/api/v1/held", headers=headers))
        await held.begun.wait()
        status, told, _ = await api.ask("GET", "/api/v1/held", headers=headers)
        assert (status, told["error"]["code"]) == (429, "throttled")
        first.cancel()
        await held.ended.wait()
