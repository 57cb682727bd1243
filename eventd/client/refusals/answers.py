"""The node's error answers as exceptions, each with the node's `code` and `detail`."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from eventd.client.refusals.kinds import OTHER_SERVER, Throttled
from eventd.errors import (
    Conflict,
    EventdError,
    Forbidden,
    Full,
    Invalid,
    NotFound,
    TooLarge,
    Unauthorized,
    Unavailable,
)
from eventd.tls.plain_http import wants_tls


class _Problem(Struct):
    index: int
    message: str


_KINDS: dict[int, type[EventdError]] = {
    400: Invalid,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    405: Invalid,
    406: Invalid,
    408: Invalid,
    409: Conflict,
    413: TooLarge,
    415: Invalid,
    422: Full,
    429: Throttled,
    502: Unavailable,
    503: Unavailable,
    504: Unavailable,
    507: Full,
}


def restore(status: int, body: bytes) -> EventdError:
    """Return the error that an answer denotes.

    If its body has another form than a node's, the status alone decides, and 404 does not mean `NotFound`.
    """
    if wants_tls(status, body):
        return Invalid("the server speaks TLS", hint="write https:// in its address")
    try:
        problem = msgspec.json.decode(body)["error"]
        code, message, detail = str(problem["code"]), str(problem["message"]), problem.get("detail")
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError, AttributeError, RecursionError):
        # The 404 of another program does not mean that the object is missing.
        kind = _KINDS.get(status, EventdError) if status != 404 else EventdError
        return kind(f"the server answered {status}", hint=OTHER_SERVER)
    hint = problem.get("hint", "")
    error = _KINDS.get(status, EventdError)(message, hint=hint if isinstance(hint, str) else "")
    vars(error).update(code=code, detail=detail)
    return error


def another(error: EventdError, message: str) -> EventdError:
    """Return a copy of `error` with this message: each waiting call gets its own exception."""
    same = type(error)(message, hint=error.hint)
    vars(same).update(code=error.code)
    return same


def detail_of(error: EventdError) -> dict[str, Any]:
    """Return the `detail` of an error if that is a mapping, else an empty mapping.

    Errors raised by the client have none.
    """
    detail = getattr(error, "detail", None)
    return detail if isinstance(detail, dict) else {}


def problems_of(error: EventdError) -> dict[int, str]:
    """Return the messages for the events that the node refused in a request, by the index of the event.

    Empty if the error names no events.
    """
    detail = getattr(error, "detail", None)
    try:
        return {each.index: each.message for each in msgspec.convert(detail, list[_Problem])}
    except msgspec.ValidationError:
        return {}
