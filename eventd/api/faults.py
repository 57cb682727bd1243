"""Whatever goes wrong under a request becomes an answer, in the form of the surface it was asked through."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from eventd.api.codes import Internal
from eventd.api.problems import FrameworkRefusal
from eventd.errors import EventdError

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
logger = logging.getLogger("eventd.api")


def answering(
    answer: Callable[[EventdError], web.Response],
    refuse: Callable[[web.Request, FrameworkRefusal], web.Response],
) -> Any:
    """A middleware. `answer` turns an error into what goes out, `refuse` what the HTTP library refuses by itself."""

    @web.middleware
    async def answer_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except EventdError as error:
            told = answer(error)
            if told.status >= 500:
                extra = {"route": route_of(request), "code": error.code, "why": str(error)}
                logger.warning("a request failed", extra=extra)
            return told
        except FrameworkRefusal as problem:
            return refuse(request, problem)
        except (ConnectionError, asyncio.CancelledError):
            raise  # the client has gone, or the node is stopping: there is nobody to answer
        except Exception:
            incident = secrets.token_hex(4)
            logger.exception("a request failed", extra={"route": route_of(request), "incident": incident})
            hint = "please report it"
            return answer(Internal(f"a fault in the node; its log has it as incident {incident}", hint=hint))

    return answer_errors


def route_of(request: web.Request) -> str:
    """The pattern, not the path: what stands in its place may be anything."""
    resource = request.match_info.route.resource
    return f"{request.method} {resource.canonical if resource else '?'}"
