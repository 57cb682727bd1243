"""The node's errors under /v0, as exceptions here: each with the node's `code` and, where it gave facts, `detail`."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

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


class _Problem(Struct):
    index: int
    message: str


class Throttled(Unavailable):
    """A limit of the node is reached, or it asks us to come back later."""

    code = "throttled"


class Lost(Unavailable):
    """The connection broke, or nobody answered in time. What was asked may have been done."""

    code = "unavailable"


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
    """The error that an answer tells. One in another form comes from something else than a node of ours."""
    try:
        told = msgspec.json.decode(body)["error"]
        code, message, detail = str(told["code"]), str(told["message"]), told.get("detail")
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError, AttributeError, RecursionError):
        # Somebody else's 404 does not say that what was asked for is not there.
        kind = _KINDS.get(status, EventdError) if status != 404 else EventdError
        return kind(f"the server answered {status}", hint="is there a routerd-eventd at this address?")
    hint = told.get("hint", "")
    error = _KINDS.get(status, EventdError)(message, hint=hint if isinstance(hint, str) else "")
    vars(error).update(code=code, detail=detail)
    return error


def another(error: EventdError, message: str) -> EventdError:
    """The same error once more, with a message of its own: several who wait must not share one."""
    same = type(error)(message, hint=error.hint)
    vars(same).update(code=error.code)
    return same


def detail_of(error: EventdError) -> dict[str, Any]:
    """The facts an error came with, by name; none for one of our own."""
    detail = getattr(error, "detail", None)
    return detail if isinstance(detail, dict) else {}


def problems_of(error: EventdError) -> dict[int, str]:
    """What is wrong with which of several events that were sent together, by index; nothing where all are meant."""
    detail = getattr(error, "detail", None)
    try:
        return {each.index: each.message for each in msgspec.convert(detail, list[_Problem])}
    except msgspec.ValidationError:
        return {}
