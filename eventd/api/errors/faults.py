"""Whatever goes wrong under a request becomes an answer, in the form of the surface it was asked through."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from eventd.api.errors.codes import Internal
from eventd.api.errors.problems import FrameworkRefusal
from eventd.errors import EventdError
from eventd.log.topics.errors import Throttled
from eventd.runtime.chance import Chance

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
logger = logging.getLogger("eventd.api")


def answering(
    answer: Callable[[EventdError], web.Response],
    refuse: Callable[[web.Request, FrameworkRefusal], web.Response],
    chance: Chance,
) -> Any:
    """A middleware. `answer` turns an error into what goes out, `refuse` what the HTTP library refuses by itself."""

    @web.middleware
    async def answer_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except EventdError as error:
            if _has_begun(request):
                return _cut(request, str(error))
            told = answer(error)
            if told.status >= 500:
                extra = {"route": route_of(request), "code": error.code, "why": str(error)}
                logger.warning("a request failed", extra=extra)
            return told
        except FrameworkRefusal as problem:
            return refuse(request, problem)
        except MemoryError:
            logger.error("a request was refused: the process has no memory left", extra={"route": route_of(request)})
            if _has_begun(request):
                return _cut(request, "the process has no memory left")
            return answer(Throttled("the node is short of memory: try again later, or with less at once"))
        except (ConnectionError, asyncio.CancelledError):
            raise  # the client has gone, or the node is stopping: there is nobody to answer
        except Exception:
            incident = chance.token(4).hex()
            logger.exception("a request failed", extra={"route": route_of(request), "incident": incident})
            if _has_begun(request):
                return _cut(request, f"a fault in the node, incident {incident}")
            hint = "please report it"
            return answer(Internal(f"a fault in the node; its log has it as incident {incident}", hint=hint))

    return answer_errors


def _has_begun(request: web.Request) -> bool:
    """Whether something of the answer was sent: another one behind it would be taken for a part of it."""
    return request.writer.output_size > 0


def _cut(request: web.Request, why: str) -> web.Response:
    """Cut the connection, which no client takes for the end of an answer. What is returned goes nowhere."""
    logger.warning("an answer was cut off", extra={"route": route_of(request), "why": why})
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


def route_of(request: web.Request) -> str:
    """The pattern, not the path: what stands in its place may be anything."""
    resource = request.match_info.route.resource
    return f"{request.method} {resource.canonical if resource else '?'}"
