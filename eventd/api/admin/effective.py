"""The effective configuration for programs that apply it: asked for with an ETag, or followed as it changes."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from aiohttp import web

from eventd.api.admin.dynamic import identities
from eventd.api.framework.auth import ApiKey
from eventd.api.framework.callers import Callers
from eventd.api.framework.moments import show_time
from eventd.api.framework.operations import Services
from eventd.dynamic.effective import Following, Snapshot
from eventd.errors import Invalid
from eventd.runtime.clock import Clock

PATH = "/api/v1/effective"
HEARTBEAT_SECONDS = 15.0
"""A stream without news says at least this often that it is there."""


def add_effective(app: web.Application, services: Services, callers: Callers, *, key: web.RequestKey[ApiKey]) -> None:
    """Mount both. Whoever reads them must be allowed to read all groups: anything may be derived from any."""
    following = services.effective
    stopping: list[asyncio.Future[None]] = []
    connections: dict[asyncio.Transport, None] = {}

    async def begin(_: web.Application) -> None:
        stopping.append(asyncio.get_running_loop().create_future())

    async def end(_: web.Application) -> None:
        stopping[0].set_result(None)
        for transport in connections:
            if transport.get_write_buffer_size():
                transport.abort()  # its client does not read, and would not learn of the end either

    async def get(request: web.Request) -> web.StreamResponse:
        _require(request[key])
        _refuse_fields(request)
        return _answer(request, await following.current())

    async def stream(request: web.Request) -> web.StreamResponse:
        _require(request[key])
        _refuse_fields(request)
        snapshot = await following.current()
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"})
        await response.prepare(request)
        transport = request.transport
        if transport is None:
            return response  # the client has gone
        connections[transport] = None
        try:
            last = request.headers.get("Last-Event-ID", "")
            await response.write(b": in step\n\n" if last == snapshot.id else _state(snapshot))
            with callers.using(request, request[key]):
                await _follow(response, following, snapshot, services.clock, stopping[0])
        except ConnectionError:
            pass  # the client has gone
        finally:
            connections.pop(transport, None)
        return response

    app.on_startup.append(begin)
    app.on_shutdown.append(end)
    app.router.add_get(PATH, get)
    app.router.add_get(f"{PATH}/stream", stream)


def _require(key: ApiKey) -> None:
    key.require_scope("read")
    key.require_group(None)


def _refuse_fields(request: web.Request) -> None:
    if request.query:
        raise Invalid(f"{request.path} takes no fields, and got {', '.join(sorted(request.query))[:200]}")


def _answer(request: web.Request, snapshot: Snapshot) -> web.Response:
    headers = {"ETag": f'W/"{snapshot.etag}"', "X-Effective-Generation": str(snapshot.generation)}
    known = request.if_none_match or ()
    if any(tag.value in (snapshot.etag, "*") for tag in known):
        return web.Response(status=304, headers=headers)
    return web.Response(body=_body(snapshot) + b"\n", content_type="application/json", headers=headers)


def _body(snapshot: Snapshot) -> bytes:
    head = msgspec.json.encode(_about(snapshot)).removesuffix(b"}")
    return b"".join((head, b',"resources":', snapshot.effective.text(), b"}"))


def _about(snapshot: Snapshot) -> dict[str, Any]:
    return {
        "generation": snapshot.generation,
        "etag": snapshot.etag,
        "changedAt": show_time(snapshot.changed_at),
    }


async def _follow(
    response: web.StreamResponse, following: Following, snapshot: Snapshot, clock: Clock, stopping: asyncio.Future[None]
) -> None:
    """Write what changes until the node stops. Nothing is kept for a client who reads slowly: it is merely behind, and
    what it gets next leads from what it has to what is in force by then.
    """
    while not stopping.done():
        timer, other = clock.timer(HEARTBEAT_SECONDS), following.other_than(snapshot.generation)
        try:
            await asyncio.wait({timer, other, stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
            other.cancel()
        present = following.latest
        if present is not None and present.generation != snapshot.generation:
            await response.write(_change(snapshot, present))
            snapshot = present
        elif not stopping.done():
            await response.write(b": still here\n\n")


def _state(snapshot: Snapshot) -> bytes:
    return _event("state", snapshot, _body(snapshot))


def _change(before: Snapshot, after: Snapshot) -> bytes:
    change = after.since(before)
    told = {
        **_about(after),
        "since": before.generation,
        "added": [msgspec.Raw(entry.text) for entry in change.added],
        "changed": [msgspec.Raw(entry.text) for entry in change.changed],
        "removed": identities(change.removed),
    }
    return _event("change", after, msgspec.json.encode(told))


def _event(name: str, snapshot: Snapshot, data: bytes) -> bytes:
    """One event of a stream. JSON has no line breaks of its own."""
    return b"".join((f"event: {name}\nid: {snapshot.id}\ndata: ".encode(), data, b"\n\n"))
