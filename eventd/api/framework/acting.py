"""Serves actions over HTTP: each is recorded, and one with an Idempotency-Key is done once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from aiohttp import web

from eventd.api.errors.problems import answer, encode
from eventd.api.framework.action_callers import ActionCaller
from eventd.api.framework.action_terms import arguments_of, object_of
from eventd.api.framework.callers import Callers
from eventd.api.framework.operations import Params
from eventd.api.framework.recorder import ActionDraft, ActionRecorder
from eventd.api.framework.repeats import HEADER, REPLAYED, Repeats, fingerprint_of, read_key
from eventd.api.framework.request_ids import RequestIds
from eventd.api.framework.route import Route
from eventd.errors import EventdError
from eventd.store.rows.actions import RepeatedRequest


def action_name(route: Route, names: Mapping[Route, str]) -> str:
    """Return the name of an action: that of the operation, else the method and path of its route."""
    return names.get(route) or f"{route.method} {route.path}"


class Acting(NamedTuple):
    """What serves actions. `names`: the names of operations."""

    callers: Callers
    recorder: ActionRecorder
    repeats: Repeats
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
        describe(draft, route, request.match_info, params)

        async def perform() -> bytes:
            return encode(await self.recorder.perform(draft, run))

        if HEADER not in request.headers:
            return _response(200, await perform())
        key = read_key(request.headers[HEADER])
        asked = await asyncio.to_thread(_repeated, draft.caller, key, draft.operation, params)
        draft.repeat = asked
        kept = await self.repeats.answer(asked, perform, _show, is_secret=route.secret)
        if kept.is_replayed:
            self.recorder.note_repeated()
        return _response(kept.status, kept.body, {REPLAYED: "true"} if kept.is_replayed else None)


def describe(draft: ActionDraft, route: Route, path: Mapping[str, str], params: Params) -> None:
    """Set the object and the arguments of an action."""
    draft.object = object_of(route, path, params)
    draft.arguments = arguments_of(route, params)


def _repeated(caller: ActionCaller, key: str, operation: str, params: Params) -> RepeatedRequest:
    """Return the request for comparison. Large parameters take long, so do not call it on the event loop."""
    return RepeatedRequest(caller.mark, key, fingerprint_of(operation, params.model_dump_json()))


def _show(error: EventdError) -> tuple[int, bytes]:
    response = answer(error)
    body = response.body
    assert isinstance(body, bytes)
    return response.status, body


def _response(status: int, body: bytes, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.Response(status=status, body=body, content_type="application/json", headers=headers)
