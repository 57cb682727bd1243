"""HTTP responses: errors in the form of their path, and JSON results."""

from __future__ import annotations

from typing import Any

import msgspec
from aiohttp import web

from eventd.api.errors.codes import API_FORM, ErrorForm, NoSuchRoute, WrongMethod
from eventd.errors import EventdError, Invalid, TooLarge
from federation.peers import EVENTS_PATH, HISTORY_PATH, LINK_PATH, STATUS_PATH, V1_EVENTS_PATH, VERIFY_PATH

RETRY_SECONDS = 1
_JSON = "application/json"
_PEER_HINT = "this is the API: peers send to the port of `spec.listen` of the EventGroup"

FrameworkRefusal = web.HTTPException
"""Errors that aiohttp raises itself, for example for an unknown path."""


def answer(error: EventdError, form: ErrorForm = API_FORM, *, allow: str = "") -> web.Response:
    """Return the response to a request that failed with `error`. `allow`: the header Allow, unless empty."""
    status = form.status(error)
    headers: dict[str, str] = dict(getattr(error, "headers", {}))
    if allow:
        headers["Allow"] = allow
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if status in (429, 503):
        headers["Retry-After"] = str(RETRY_SECONDS)
    if status == 408:
        headers["Connection"] = "close"
    body = msgspec.json.encode(form.body(error)) + form.line_end
    return web.Response(status=status, body=body, content_type=_JSON, headers=headers)


def success(value: Any, *, ready: bool = True) -> web.Response:
    """Return the response with a result as JSON: status 200, or 503 if the node is not `ready`."""
    if ready:
        return web.Response(body=encode(value), content_type=_JSON)
    headers = {"Retry-After": str(RETRY_SECONDS)}
    return web.Response(status=503, body=encode(value), content_type=_JSON, headers=headers)


def encode(value: Any) -> bytes:
    """Return the value as JSON on one line, with a line break at the end for terminals."""
    return msgspec.json.encode(value) + b"\n"


def of_framework(problem: FrameworkRefusal, path: str, method: str) -> tuple[EventdError, str]:
    """Return the error for a request that aiohttp refused, and the methods that the path allows, as `GET, POST`.

    The methods are empty unless aiohttp refused the request for its method.
    """
    match problem:
        case web.HTTPMethodNotAllowed():
            allowed = ", ".join(sorted(problem.allowed_methods))
            return WrongMethod(f"{path} is not served with {method}", hint=f"use {allowed}"), allowed
        case web.HTTPNotFound():
            peers = path in (V1_EVENTS_PATH, EVENTS_PATH, LINK_PATH, VERIFY_PATH, STATUS_PATH, HISTORY_PATH)
            return NoSuchRoute(f"nothing is served at {path}", hint=_PEER_HINT if peers else ""), ""
        case web.HTTPRequestEntityTooLarge():
            return TooLarge(
                "the body is over the limit", hint="send a smaller request, or raise EVENTD_MAX_BODY_BYTES"
            ), ""
        case _:
            return Invalid(f"the request cannot be served: {problem.reason}"), ""
