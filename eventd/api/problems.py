"""Errors as HTTP answers, and back. The only place of the API that knows status codes.

An answer is `{"error": {"code", "message", "hint"?, "detail"?}}`; `code` is a stable slug.
"""

from __future__ import annotations

from typing import Any

import msgspec
from aiohttp import web

from eventd import errors
from eventd.errors import (
    CheckFailed,
    Conflict,
    DatabaseUnusable,
    EventdError,
    FenceLost,
    Forbidden,
    Full,
    Invalid,
    NotFound,
    SecretUnreadable,
    TooLarge,
    Unauthorized,
    Unavailable,
)
from eventd.plugins.contract import PluginFailed

RETRY_SECONDS = 1
_JSON = "application/json"

FrameworkRefusal = web.HTTPException
"""What the HTTP library raises by itself, such as for an unknown path."""


class NoSuchRoute(NotFound):
    """Nothing is served at this path."""

    code = "no_such_route"


class WrongMethod(Invalid):
    """The path is served, with other methods."""

    code = "method_not_allowed"


class WrongMediaType(Invalid):
    """The body is not declared as JSON."""

    code = "unsupported_media_type"


class SlowBody(Invalid):
    """The body did not arrive in time."""

    code = "slow_body"


class BadParams(Invalid):
    """Fields of a request are wrong; `detail` names each."""

    code = "invalid_params"

    def __init__(self, fields: dict[str, str]) -> None:
        told = [f"{name} {message}" for name, message in fields.items()]
        several = "".join(f"\n  {line}" for line in told)
        super().__init__(told[0] if len(told) == 1 else f"{len(told)} problems in the request:{several}")
        self.detail = {"fields": fields}


class Internal(EventdError):
    """A fault of the node; the incident's number stands in its log."""

    code = "internal"


_STATUS: dict[type[EventdError], int] = {
    Invalid: 400,
    Unauthorized: 401,
    Forbidden: 403,
    NotFound: 404,
    WrongMethod: 405,
    SlowBody: 408,
    Conflict: 409,
    FenceLost: 409,
    TooLarge: 413,
    WrongMediaType: 415,
    CheckFailed: 422,
    EventdError: 500,
    PluginFailed: 502,
    Unavailable: 503,
    DatabaseUnusable: 503,
    SecretUnreadable: 503,
    Full: 507,
}


def status_of(error: EventdError) -> int:
    """The status of the nearest listed class."""
    return next(_STATUS[kind] for kind in type(error).__mro__ if kind in _STATUS)


def envelope(error: EventdError) -> dict[str, Any]:
    """The body of an error's answer."""
    told: dict[str, Any] = {"code": error.code, "message": error.message}
    if error.hint:
        told["hint"] = error.hint
    if detail := getattr(error, "detail", None):
        told["detail"] = detail
    return {"error": told}


def answer(error: EventdError, *, allow: str = "") -> web.Response:
    """An error as it goes out. `allow` names the methods a path is served with."""
    status = status_of(error)
    headers = headers_of(status, allow)
    return web.Response(status=status, body=encode(envelope(error)), content_type=_JSON, headers=headers)


def headers_of(status: int, allow: str = "") -> dict[str, str]:
    """What goes with a status of an error: what to do now."""
    headers = {"Allow": allow} if allow else {}
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if status in (429, 503):
        headers["Retry-After"] = str(RETRY_SECONDS)
    if status == 408:
        headers["Connection"] = "close"
    return headers


def success(value: Any, *, ready: bool = True) -> web.Response:
    """What an operation gave, as it goes out. A node that is not `ready` says so with the status alone."""
    if ready:
        return web.Response(body=encode(value), content_type=_JSON)
    headers = {"Retry-After": str(RETRY_SECONDS)}
    return web.Response(status=503, body=encode(value), content_type=_JSON, headers=headers)


def encode(value: Any) -> bytes:
    """JSON on one line, ended as a terminal likes it."""
    return msgspec.json.encode(value) + b"\n"


def of_framework(problem: FrameworkRefusal, path: str, method: str) -> tuple[EventdError, str]:
    """What the HTTP library refuses, as our error, and the methods that are allowed instead."""
    match problem:
        case web.HTTPMethodNotAllowed():
            allowed = ", ".join(sorted(problem.allowed_methods))
            return WrongMethod(f"{path} is not served with {method}", hint=f"use {allowed}"), allowed
        case web.HTTPNotFound():
            return NoSuchRoute(f"nothing is served at {path}"), ""
        case web.HTTPRequestEntityTooLarge():
            return TooLarge("the body is over the limit", hint="send less at once, or raise EVENTD_MAX_BODY_BYTES"), ""
        case _:
            return Invalid(f"the request cannot be served: {problem.reason}"), ""


def restore(status: int, body: bytes) -> EventdError:
    """The error a node answered with, for a client. An answer in another form still tells its status."""
    try:
        told = msgspec.json.decode(body)["error"]
        code, message, hint = str(told["code"]), str(told["message"]), str(told.get("hint", ""))
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError, AttributeError, RecursionError):
        # Somebody else's 404 does not say that what was asked for is not there.
        kind = EventdError if status == 404 else _by_status(status)
        return kind(f"the server answered {status}", hint="is there a routerd-eventd at this address?")
    error = _by_code(code, status)(message, hint=hint)
    vars(error).update(code=code, detail=told.get("detail"))  # a later version may have codes of its own
    return error


def _by_code(code: str, status: int) -> type[EventdError]:
    known: list[type[EventdError]] = [NoSuchRoute, WrongMethod, WrongMediaType, SlowBody, Internal, PluginFailed]
    known += [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, EventdError)]
    return next((kind for kind in known if kind.code == code), _by_status(status))


def _by_status(status: int) -> type[EventdError]:
    # A 502 that does not say so in its body comes from a proxy, not from a plugin.
    kinds = (kind for kind, number in _STATUS.items() if number == status and kind is not PluginFailed)
    return next(kinds, EventdError)
