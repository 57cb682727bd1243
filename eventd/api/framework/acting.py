"""Serves actions over HTTP: each is recorded, and one with an Idempotency-Key is done once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from aiohttp import web

from eventd.api.errors.problems import encode
from eventd.api.framework.action_terms import object_of
from eventd.api.framework.callers import Callers
from eventd.api.framework.operations import Params
from eventd.api.framework.recorder import ActionDraft, ActionRecorder
from eventd.api.framework.repeats import HEADER, REPLAYED, read_key
from eventd.api.framework.request_ids import RequestIds
from eventd.api.framework.route import Route


def action_name(route: Route, names: Mapping[Route, str]) -> str:
    """Return the name of an action: that of the operation, else the method and path of its route."""
    return names.get(route) or f"{route.method} {route.path}"


class Acting(NamedTuple):
    """What serves actions. `names`: the names of operations."""

    callers: Callers
    recorder: ActionRecorder
    ids: RequestIds
    names: Mapping[Route, str]

    def draft(self, route: Route, request: web.Request) -> ActionDraft:
        """Return the action that is requested, as far as it is known before its caller is."""
        return ActionDraft(
            action_name(route, self.names),
            self.callers.describe(request, None),
            self.ids.of(request),
            object_of(route, request.match_info),
            outside=route.outside,
            frequent=route.frequent,
        )

    async def answer(
        self, route: Route, request: web.Request, draft: ActionDraft, params: Params, run: Callable[[], Awaitable[Any]]
    ) -> web.Response:
        """Perform the action of an operation, or return the answer of the request that this one repeats."""
        draft.describe(route, request.match_info, params)
        if draft.is_dry or HEADER not in request.headers:
            return _response(200, encode(await self.recorder.perform(draft, run)))
        key = read_key(request.headers[HEADER])
        kept = await self.recorder.perform_once(draft, key, params.model_dump_json, run, is_secret=route.secret)
        return _response(kept.status, kept.body, {REPLAYED: "true"} if kept.is_replayed else None)


def _response(status: int, body: bytes, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.Response(status=status, body=body, content_type="application/json", headers=headers)
