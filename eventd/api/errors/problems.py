"""Errors as HTTP answers."""

from __future__ import annotations

from typing import Any

import msgspec
from aiohttp import web

from eventd.api.errors.codes import NoSuchRoute, WrongMethod, envelope, status_of
from eventd.errors import EventdError, Invalid, TooLarge
from federation.peers import EVENTS_PATH, LINK_PATH, V1_EVENTS_PATH, VERIFY_PATH

RETRY_SECONDS = 1
_JSON = "application/json"

FrameworkRefusal = web.HTTPException
"""What the HTTP library raises by itself, such as for an unknown path."""


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


_FOR_PEERS = "this is the API: peers send to the port of `spec.listen` of the EventGroup"


def of_framework(problem: FrameworkRefusal, path: str, method: str) -> tuple[EventdError, str]:
    """What the HTTP library refuses, as our error, and the methods that are allowed instead."""
    match problem:
        case web.HTTPMethodNotAllowed():
            allowed = ", ".join(sorted(problem.allowed_methods))
            return WrongMethod(f"{path} is not served with {method}", hint=f"use {allowed}"), allowed
        case web.HTTPNotFound():
            peers = path in (V1_EVENTS_PATH, EVENTS_PATH, LINK_PATH, VERIFY_PATH)
            return NoSuchRoute(f"nothing is served at {path}", hint=_FOR_PEERS if peers else ""), ""
        case web.HTTPRequestEntityTooLarge():
            return TooLarge("the body is over the limit", hint="send less at once, or raise EVENTD_MAX_BODY_BYTES"), ""
        case _:
            return Invalid(f"the request cannot be served: {problem.reason}"), ""
