"""The administrator's routes: list, create and delete tokens."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from eventd.api.routemaster.answers import BadRequest, as_json, done
from eventd.api.routemaster.json_text import JsonFloat, JsonInteger
from eventd.api.routemaster.surface import SurfaceCall
from eventd.log.routemaster.names import is_token
from eventd.log.routemaster.tokens import CreateToken, DeleteToken, NewToken, new_token
from eventd.store.rows.tokens import read_tokens


async def list_tokens(call: SurfaceCall) -> web.Response:
    """List the valid tokens: their names and handles, never the tokens."""
    log = call.surface.log
    now = log.clock.now()
    tokens = [each for each in await log.database.read(read_tokens) if each.is_valid(now)]
    if not tokens and not call.surface.config.empty_list:
        return done()
    return as_json([{"name": each.label, "token": each.handle} for each in tokens])


async def create(call: SurfaceCall) -> web.Response:
    """Create a token, or rename a known one; the response is the only one that shows it."""
    label = _read_text(call.body.get("name"))
    given = call.body.get("token")
    token = new_token(label, call.surface.log.chance) if given is None else given
    if not is_token(_read_text(token)):
        raise BadRequest("contains invalid characters")
    await call.surface.log.submit(CreateToken(NewToken(label, token)))
    await call.surface.reload_keys()
    return as_json({"token": token, "name": label}, status=201)


def _read_text(value: Any) -> str:
    if not isinstance(value, str) or isinstance(value, JsonInteger | JsonFloat):
        raise BadRequest("requires a string")
    if not is_token(value):
        raise BadRequest("contains invalid characters")
    return value


async def delete(call: SurfaceCall) -> web.Response:
    """Delete a token, named by its text or its handle; the connections of requests under way with it are closed."""
    deleted = await call.surface.log.submit(DeleteToken(call.name))
    if deleted is not None:
        await call.surface.reload_keys()
        await call.surface.changed()
    return done()
