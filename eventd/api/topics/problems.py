"""Errors as /v0 answers them: `{"error": {"code", "message", "detail"?}}`. The place that knows its status codes."""

from __future__ import annotations

import msgspec
from aiohttp import web

from eventd.api.errors import codes, problems
from eventd.api.errors.codes import NoSuchRoute
from eventd.api.errors.problems import FrameworkRefusal
from eventd.errors import EventdError, Forbidden, Full, Invalid, TooLarge, Unavailable
from eventd.log.topics.errors import DetailedError, Throttled, TopicFull

WEBSOCKET_VERSION = "13"
"""That of RFC 6455. Versions 7 and 8 are drafts of it."""
_JSON = "application/json"


class OutOfReach(DetailedError, Forbidden):
    """The key is held to other names."""


class UnsupportedVersion(Invalid):
    """The client speaks another version of the WebSocket protocol."""


class NotAcceptable(Invalid):
    """The client does not take a stream of events."""

    code = "not_acceptable"


_STATUS: dict[type[EventdError], int] = {
    NotAcceptable: 406,
    TopicFull: 422,
    Throttled: 429,
    Full: 429,
}
"""Statuses that are of /v0 alone; the others are those of the whole API."""

_CODES: dict[type[EventdError], str] = {
    NoSuchRoute: "not_found",
    TooLarge: "payload_too_large",
    Full: "throttled",
    Unavailable: "not_ready",
}
"""Codes that are called otherwise here."""


def status_of(error: EventdError) -> int:
    """The status of the nearest listed class."""
    return next((_STATUS[kind] for kind in type(error).__mro__ if kind in _STATUS), codes.status_of(error))


def code_of(error: EventdError) -> str:
    """Its code under /v0."""
    return next((_CODES[kind] for kind in type(error).__mro__ if kind in _CODES), error.code)


def envelope(error: EventdError) -> bytes:
    """The body of an error's answer."""
    message = f"{error.message}; {error.hint}" if error.hint else error.message
    told: dict[str, object] = {"code": code_of(error), "message": message}
    if detail := getattr(error, "detail", None):
        told["detail"] = detail
    return msgspec.json.encode({"error": told})


def answer(error: EventdError, *, allow: str = "") -> web.Response:
    """An error as it goes out. `allow` names the methods a path is served with."""
    status = status_of(error)
    headers = problems.headers_of(status, allow)
    if isinstance(error, UnsupportedVersion):
        headers["Sec-WebSocket-Version"] = WEBSOCKET_VERSION
    return web.Response(status=status, body=envelope(error), content_type=_JSON, headers=headers)


def of_framework(problem: FrameworkRefusal, path: str, method: str) -> web.Response:
    """What the HTTP library refuses by itself."""
    refusal, allow = problems.of_framework(problem, path, method)
    return answer(refusal, allow=allow)
