"""Serves actions over HTTP: each is recorded, and an action with an Idempotency-Key is executed only once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import msgspec
from aiohttp import web

from eventd.api.errors.codes import restore
from eventd.api.errors.problems import encode
from eventd.api.framework.action_terms import arguments_of, object_of
from eventd.api.framework.callers import Callers
from eventd.api.framework.operations import Params
from eventd.api.framework.recorder import ActionDraft, ActionRecorder
from eventd.api.framework.repeats import HEADER, REPLAYED, describe_call, read_key
from eventd.api.framework.request_ids import RequestIds
from eventd.api.framework.route import Route


def action_name(route: Route, names: Mapping[Route, str]) -> str:
    """Return the name of an action: that of the operation, else the method and path of its route."""
    return names.get(route) or f"{route.method} {route.path}"


class Acting(NamedTuple):
    """Serves actions. `names`: the names of operations, by route."""

    callers: Callers
    recorder: ActionRecorder
    ids: RequestIds
    names: Mapping[Route, str]

    def draft(self, route: Route, request: web.Request) -> ActionDraft:
        """Return the requested action, with everything that is known before the caller is identified."""
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

    async def answer_call(
        self,
        route: Route,
        request: web.Request,
        draft: ActionDraft,
        query: Any,
        body: Any,
        run: Callable[[], Awaitable[Any]],
    ) -> web.Response:
        """Perform the action of a route of /v0, or return the answer of the request that this one repeats."""
        draft.arguments = arguments_of(route, query, body)
        if HEADER not in request.headers:
            answer = msgspec.json.encode(await self.recorder.perform(draft, run))
            return _response(_status(route, answer), answer)
        key, describe = read_key(request.headers[HEADER]), partial(describe_call, request.match_info, query, body)
        kept = await self.recorder.perform_once(draft, key, describe, run, is_secret=route.secret)
        headers = {REPLAYED: "true"} if kept.is_replayed else None
        if kept.status < 400:
            return _response(_status(route, kept.body), kept.body, headers)
        error, form = restore(kept.status, kept.body), route.surface.form
        return _response(form.status(error), msgspec.json.encode(form.body(error)) + form.line_end, headers)


class _CreationAnswer(msgspec.Struct):
    created: bool


def _status(route: Route, body: bytes) -> int:
    """Return the status of a successful answer."""
    return 201 if route.creates and msgspec.json.decode(body, type=_CreationAnswer).created else 200


def _response(status: int, body: bytes, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.Response(status=status, body=body, content_type="application/json", headers=headers)
