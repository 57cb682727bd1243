"""Serves the effective configuration to programs that apply it: once, with an ETag, or as a stream of changes."""

from __future__ import annotations

import asyncio

import msgspec
from aiohttp import web

from eventd.api.admin.resources.dynamic import about, identities
from eventd.api.framework.callers import Callers
from eventd.api.framework.calls import Call
from eventd.api.framework.models import NoQuery
from eventd.api.framework.operations import Services
from eventd.dynamic.effective import Following, Snapshot
from eventd.errors import Invalid
from eventd.runtime.clock import Clock

HEARTBEAT_SECONDS = 15.0
"""A stream without changes sends a comment this often."""


class EffectiveStreams:
    """The open streams of this process. `begin` is called before any of them; `end` ends them when the node stops."""

    def __init__(self, services: Services, callers: Callers) -> None:
        self.following = services.effective
        self.clock = services.clock
        self.callers = callers
        self.connections: dict[asyncio.Transport, None] = {}

    async def begin(self, _: web.Application) -> None:
        """Prepare for streams: create the future that `end` sets."""
        self.stopping: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def end(self, _: web.Application) -> None:
        """End every stream. A client that does not read would not notice the end, so its connection is aborted."""
        self.stopping.set_result(None)
        for transport in self.connections:
            if transport.get_write_buffer_size():
                transport.abort()


class EffectiveCall(Call[EffectiveStreams, NoQuery, None]):
    """One request for the effective configuration."""

    __slots__ = ()


async def show(call: EffectiveCall) -> web.Response:
    """GET /api/v1/effective: the configuration, or status 304 if the client has it."""
    _require_readable(call)
    return _answer(call.request, await call.context.following.current())


async def stream(call: EffectiveCall) -> web.StreamResponse:
    """GET /api/v1/effective/stream: the state if the client lacks it, then each change."""
    request, streams = call.request, call.context
    _require_readable(call)
    snapshot = await streams.following.current()
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"})
    await response.prepare(request)
    transport = request.transport
    if transport is None or request.method == "HEAD":
        return response  # the client disconnected, or wants no body
    streams.connections[transport] = None
    try:
        last = request.headers.get("Last-Event-ID", "")
        await response.write(b": in step\n\n" if last == snapshot.id else _state(snapshot))
        with streams.callers.using(request, call.key):
            await _follow(response, streams.following, snapshot, streams.clock, streams.stopping)
    except ConnectionError:
        pass  # the client disconnected
    finally:
        streams.connections.pop(transport, None)
    return response


def _require_readable(call: EffectiveCall) -> None:
    """Raise `Forbidden` for a key that is limited to name prefixes, and `Invalid` for a request with a query.

    The configuration may be derived from the events of any group.
    """
    call.key.require_group(None)
    if call.request.query:
        fields = ", ".join(sorted(call.request.query))[:200]
        raise Invalid(f"{call.request.path} takes no fields, and got {fields}")


def _answer(request: web.Request, snapshot: Snapshot) -> web.Response:
    headers = {"ETag": f'W/"{snapshot.etag}"', "X-Effective-Generation": str(snapshot.generation)}
    known = request.if_none_match or ()
    if any(tag.value in (snapshot.etag, "*") for tag in known):
        return web.Response(status=304, headers=headers)
    return web.Response(body=_body(snapshot) + b"\n", content_type="application/json", headers=headers)


def _body(snapshot: Snapshot) -> bytes:
    head = msgspec.json.encode(about(snapshot)).removesuffix(b"}")
    return b"".join((head, b',"resources":', snapshot.effective.text(), b"}"))


async def _follow(
    response: web.StreamResponse, following: Following, snapshot: Snapshot, clock: Clock, stopping: asyncio.Future[None]
) -> None:
    """Write each change, and a comment after `HEARTBEAT_SECONDS` without one, until the node stops.

    Nothing is buffered for a slow client: each change leads from the state that was sent last to the newest.
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
    document = {
        **about(after),
        "since": before.generation,
        "added": [msgspec.Raw(entry.text) for entry in change.added],
        "changed": [msgspec.Raw(entry.text) for entry in change.changed],
        "removed": identities(change.removed),
    }
    return _event("change", after, msgspec.json.encode(document))


def _event(name: str, snapshot: Snapshot, data: bytes) -> bytes:
    """Return one server-sent event. `data` is JSON, which contains no line breaks."""
    return b"".join((f"event: {name}\nid: {snapshot.id}\ndata: ".encode(), data, b"\n\n"))
