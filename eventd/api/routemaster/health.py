"""Pulse, scaling probe and health."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from aiohttp import web

from eventd.api.routemaster.answers import as_json, broken, done
from eventd.api.routemaster.surface import SurfaceCall
from eventd.errors import EventdError

SLOW_SECONDS: Final = 1.0
"""How long the scaling probe takes when too many batches are due."""


async def pulse(call: SurfaceCall) -> web.Response:
    """Test whether the database answers and can be written."""
    try:
        await call.surface.log.try_writing()
    except EventdError as error:
        call.surface.failed.note(error, "GET /pulse")
        return broken()
    return done()


async def scaling(call: SurfaceCall) -> web.Response:
    """Answer after `SLOW_SECONDS` if too many batches are due."""
    config = call.surface.config
    async with call.surface.counting:
        due = await call.surface.due.count_due(config.scaling_deadline)
    if due >= config.scaling_threshold:
        await call.surface.log.clock.sleep(SLOW_SECONDS)
    return done()


async def health(call: SurfaceCall) -> web.Response:
    """Show that the process answers."""
    return as_json({})


async def ping(call: SurfaceCall) -> web.Response:
    """Show the time of the node."""
    now = datetime.fromtimestamp(call.surface.log.clock.now() // 1_000_000, UTC)
    return as_json({"pong": f"{now:%Y-%m-%d %H:%M:%S} +0000"})
