"""The codes of errors and their statuses, both ways. Loads no HTTP library: who is refused something needs none.

An answer is `{"error": {"code", "message", "hint"?, "detail"?}}`; `code` is a stable slug.
"""

from __future__ import annotations

import json
from typing import Any

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

PLUGIN_FAILED = "plugin_failed"
THROTTLED = "throttled"
"""A limit of the node is reached: the same request may succeed later."""


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

    def __init__(self, fields: dict[str, str], more: int = 0) -> None:
        """`more`: how many fields are wrong beside those that are named."""
        told = [f"{name} {message}" for name, message in fields.items()]
        several = "".join(f"\n  {line}" for line in [*told, *([f"and {more} more"] if more else [])])
        count = len(told) + more
        super().__init__(told[0] if count == 1 else f"{count} problems in the request:{several}")
        self.detail = {"fields": fields}


class Internal(EventdError):
    """A fault of the node; the incident's number stands in its log."""

    code = "internal"


_STATUS = {
    Invalid.code: 400,
    Unauthorized.code: 401,
    Forbidden.code: 403,
    NotFound.code: 404,
    WrongMethod.code: 405,
    SlowBody.code: 408,
    Conflict.code: 409,
    FenceLost.code: 409,
    TooLarge.code: 413,
    WrongMediaType.code: 415,
    CheckFailed.code: 422,
    THROTTLED: 429,
    EventdError.code: 500,
    PLUGIN_FAILED: 502,
    Unavailable.code: 503,
    DatabaseUnusable.code: 503,
    SecretUnreadable.code: 503,
    Full.code: 507,
}


def status_of(error: EventdError) -> int:
    """The status of the nearest class with a code of its own that is listed."""
    codes = [vars(kind).get("code") for kind in type(error).__mro__]
    return next(_STATUS[code] for code in codes if code in _STATUS)


def envelope(error: EventdError) -> dict[str, Any]:
    """The body of an error's answer."""
    told: dict[str, Any] = {"code": error.code, "message": error.message}
    if error.hint:
        told["hint"] = error.hint
    if detail := getattr(error, "detail", None):
        told["detail"] = detail
    return {"error": told}


def restore(status: int, body: bytes) -> EventdError:
    """The error a node answered with, for a client. An answer in another form still tells its status."""
    try:
        told = json.loads(body)["error"]
        code, message, hint = str(told["code"]), str(told["message"]), str(told.get("hint", ""))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        # Somebody else's 404 does not say that what was asked for is not there.
        kind = EventdError if status == 404 else _by_status(status)
        return kind(f"the server answered {status}", hint="is there a routerd-eventd at this address?")
    error = (_by_code(code) or _by_status(status))(message, hint=hint)
    vars(error).update(code=code, detail=told.get("detail"))  # a later version may have codes of its own
    return error


def _by_code(code: str) -> type[EventdError] | None:
    if code == PLUGIN_FAILED:
        from eventd.plugins.contract.contract import PluginFailed

        return PluginFailed
    known: list[type[EventdError]] = [NoSuchRoute, WrongMethod, WrongMediaType, SlowBody, Internal]
    known += [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, EventdError)]
    return next((kind for kind in known if kind.code == code), None)


def _by_status(status: int) -> type[EventdError]:
    # A 502 that does not say so in its body comes from a proxy, not from a plugin.
    codes = [code for code, number in _STATUS.items() if number == status and code != PLUGIN_FAILED]
    return (_by_code(codes[0]) if codes else None) or EventdError
