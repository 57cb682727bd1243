"""Responses of the surface: statuses and texts are fixed by its clients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from aiohttp import web

from eventd.api.errors.codes import API_FORM, NoSuchRoute
from eventd.api.routemaster.surface import Kind
from eventd.errors import EventdError, Full, Invalid, Unauthorized
from eventd.log.routemaster.errors import NotSubscribed, RmTopicNotFound, SubscriberNotFound, TopicClaimed
from eventd.log.topics.errors import TopicFull

RETRY_SECONDS: Final = 1
NOT_NOW: Final = "the node cannot serve this request now; try again later"
"""The text that clients get for a fault of the node. The cause, which may name files and addresses of the node, is
only in the log."""
_TEXT: Final = "text/plain"
_KINDS: Final[dict[Kind, str]] = {"root": "a root token", "client": "a client token", "none": "no token"}


class BadRequest(Invalid):
    """The request is wrong; the message is the body of the response."""


class WrongCaller(Unauthorized):
    """The caller is known, but its kind may not use this route."""

    def __init__(self, kinds: Sequence[Kind]) -> None:
        accepted = ", or ".join(_KINDS[kind] for kind in kinds)
        super().__init__(f"this endpoint requires authentication with {accepted}")


def plain(words: str = "", *, status: int, **headers: str) -> web.Response:
    """Return a response with a short text, which may be empty."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return web.Response(status=status, body=words.encode(), content_type=_TEXT, headers=named)


def done() -> web.Response:
    """Return the response to a request that worked and has nothing to show."""
    return web.Response(status=204)


def as_json(value: Any, status: int = 200) -> web.Response:
    """Return a response with a value as JSON."""
    return web.Response(status=status, body=msgspec.json.encode(value), content_type="application/json")


def not_found(words: str = "") -> web.Response:
    """Return the response for a missing object; without words also for a path or method that is not served."""
    return plain(words, status=404)


def redirect(method: str, target: str) -> web.Response:
    """Return the redirection to the same target over HTTPS."""
    return plain(status=301 if method in ("GET", "HEAD") else 307, Location=target)


def is_failure(error: EventdError) -> bool:
    """Return whether this node could not serve a request: its log has the reason, and the response does not."""
    return API_FORM.status(error) >= 500 and not isinstance(error, (TopicFull, Full))


def refuse(error: EventdError) -> web.Response:
    """Return the response to a request that failed."""
    match error:
        case WrongCaller():
            return plain(error.message, status=401, WWW_Authenticate="Basic")
        case NoSuchRoute():
            return not_found()
        case TopicClaimed():
            return plain("topic claimed", status=403)
        case SubscriberNotFound():
            return not_found("subscriber not found")
        case RmTopicNotFound():
            return not_found("topic not found")
        case NotSubscribed():
            return not_found("not subscribed")
        case TopicFull() | Full():
            return plain(error.message, status=503, Retry_After=str(RETRY_SECONDS))
    status = API_FORM.status(error)
    words = NOT_NOW if is_failure(error) else error.message
    retry = {"Retry_After": str(RETRY_SECONDS)} if status in (429, 503) else {}
    close = {"Connection": "close"} if status == 408 else {}
    return plain(words, status=status, **retry, **close)


def broken() -> web.Response:
    """Return the response of a node that does not work."""
    return plain(status=500)


def too_slow() -> web.Response:
    """Return the response to a request that took too long."""
    return plain(status=408, Connection="close")


def refused_by_library(error: EventdError) -> web.Response:
    """Return the response to a request that does not reach the application, such as invalid HTTP."""
    return refuse(error)
