"""Turns the exceptions of handlers into responses in the form of the called path, or cuts a response that has begun."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from eventd.api.errors.codes import ErrorForm, internal
from eventd.api.errors.failed_requests import FailedRequests
from eventd.api.errors.problems import FrameworkRefusal, answer, of_framework
from eventd.errors import EventdError
from eventd.log.topics.errors import Throttled
from eventd.runtime.chance import Chance

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
logger = logging.getLogger("eventd.api")


def answering(
    form_of: Callable[[str], ErrorForm],
    chance: Chance,
    require_caller: Callable[[web.Request], object] = lambda _: None,
    id_of: Callable[[web.Request], str] = lambda _: "",
) -> Any:
    """Return the middleware that turns errors into responses.

    Where aiohttp itself refuses a request, such as one for an unknown path, `require_caller` is called first: it raises
    for unauthorized callers, so that they do not learn which paths exist. `id_of`: the id of a request, for logs.
    """

    failed = FailedRequests()

    @web.middleware
    async def answer_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
        form = form_of(request.path)
        try:
            try:
                return await handler(request)
            except FrameworkRefusal as problem:
                require_caller(request)
                refusal, allow = of_framework(problem, request.path, request.method)
                return answer(refusal, form, allow=allow)
        except EventdError as error:
            if _has_begun(request):
                return _cut(request, id_of(request), str(error))
            answered = answer(error, form)
            if answered.status >= 500:
                failed.note(error, route_of(request), id_of(request))
            return answered
        except MemoryError:
            logger.error("memory exhausted", extra={"route": route_of(request), "request": id_of(request)})
            if _has_begun(request):
                return _cut(request, id_of(request), "the process has no memory left")
            words = "the node ran out of memory on this request: retry later, or with a smaller one"
            return answer(Throttled(words), form)
        except (ConnectionError, asyncio.CancelledError):
            raise  # the client disconnected, or the node stops: no response can be sent
        except Exception:
            incident = chance.token(4).hex()
            extra = {"route": route_of(request), "request": id_of(request), "incident": incident}
            logger.exception("request failed", extra=extra)
            if _has_begun(request):
                return _cut(request, id_of(request), f"internal error, incident {incident}")
            return answer(internal(incident), form)

    return answer_errors


def _has_begun(request: web.Request) -> bool:
    """Return whether a part of the response was sent: the client would read another response as its continuation."""
    return request.writer.output_size > 0


def _cut(request: web.Request, name: str, why: str) -> web.Response:
    """Abort the connection, so that the client notices the incomplete response. The returned response is never sent."""
    logger.warning("response aborted", extra={"route": route_of(request), "request": name, "why": why})
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


def route_of(request: web.Request) -> str:
    """Return the method and the route's pattern (`?` without a route), for logs: the path may contain anything."""
    resource = request.match_info.route.resource
    return f"{request.method} {resource.canonical if resource else '?'}"
