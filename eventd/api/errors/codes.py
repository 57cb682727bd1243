"""Error codes, their HTTP statuses and the two JSON forms of an error.

Clients import this module, too, so it loads no HTTP library.

`/v0` answers `{"error": {"code", "message", "detail"?}}`, where the message includes the hint. All other paths answer
`{"error": {"code", "message", "hint"?, "detail"?}}`. `code` is a stable slug.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar, Final, NamedTuple

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
from eventd.text.quoting import shortened
from eventd.tls.plain_http import wants_tls

LONGEST_MESSAGE: Final = 16_000
"""Maximum number of characters of the message, and of the hint, of an answer that a client takes over."""
PLUGIN_FAILED = "plugin_failed"
THROTTLED = "throttled"
"""The code for a limit of the node that is reached: the same request may succeed later."""
WEBSOCKET_VERSION = "13"
"""The WebSocket version of RFC 6455; versions 7 and 8 are drafts of it."""


class NoSuchRoute(NotFound):
    """Nothing is served at this path."""

    code = "no_such_route"


class WrongMethod(Invalid):
    """The path is served, but not with the method of the request."""

    code = "method_not_allowed"


class WrongMediaType(Invalid):
    """The body is not declared as JSON."""

    code = "unsupported_media_type"


class SlowBody(Invalid):
    """The body did not arrive in time."""

    code = "slow_body"


class NotAcceptable(Invalid):
    """The route answers with server-sent events, which the client does not accept."""

    code = "not_acceptable"


class WrongNode(Invalid):
    """A request over the local socket is meant for another node, or for a node with another database."""

    code = "wrong_node"


class UnsupportedVersion(Invalid):
    """The client speaks another WebSocket version than `WEBSOCKET_VERSION`."""

    headers: ClassVar = {"Sec-WebSocket-Version": WEBSOCKET_VERSION}


class BadParams(Invalid):
    """Fields of a request are wrong; `detail["fields"]` holds the problem of each named one, by its name."""

    code = "invalid_params"

    def __init__(self, fields: dict[str, str], more: int = 0) -> None:
        """`more`: the number of wrong fields besides the named ones."""
        problems = [f"{name} {message}" for name, message in fields.items()]
        several = "".join(f"\n  {line}" for line in [*problems, *([f"and {more} more"] if more else [])])
        count = len(problems) + more
        super().__init__(problems[0] if count == 1 else f"{count} problems in the request:{several}")
        self.detail = {"fields": fields}


class Internal(EventdError):
    """A fault of the node; its log has the details under the incident number."""

    code = "internal"


def internal(incident: str) -> Internal:
    """Return the error for a fault that the node's log describes under the incident number."""
    return Internal(f"internal error; the node's log describes it as incident {incident}", hint="please report it")


_STATUS = {
    Invalid.code: 400,
    Unauthorized.code: 401,
    Forbidden.code: 403,
    NotFound.code: 404,
    WrongMethod.code: 405,
    NotAcceptable.code: 406,
    SlowBody.code: 408,
    Conflict.code: 409,
    FenceLost.code: 409,
    TooLarge.code: 413,
    WrongMediaType.code: 415,
    WrongNode.code: 421,
    CheckFailed.code: 422,
    "topic_full": 422,
    THROTTLED: 429,
    EventdError.code: 500,
    PLUGIN_FAILED: 502,
    Unavailable.code: 503,
    DatabaseUnusable.code: 503,
    SecretUnreadable.code: 503,
    Full.code: 507,
}


class ErrorForm(NamedTuple):
    """The JSON form of errors of one part of the API: its own statuses and codes, and where the hint is shown."""

    statuses: Mapping[str, int]
    codes: Mapping[str, str]
    hint_in_message: bool
    line_end: bytes

    def status(self, error: EventdError) -> int:
        """Return the HTTP status of the error's nearest class that has one in this form, else in the general table."""
        codes = _codes_of(error)
        own = next((self.statuses[code] for code in codes if code in self.statuses), None)
        return own or next(_STATUS[code] for code in codes if code in _STATUS)

    def code(self, error: EventdError) -> str:
        """Return the code that this form writes for the error: the error's own code, or this form's replacement for
        it.

        A replacement for the code of a base class counts, too.
        """
        return next((self.codes[code] for code in _codes_of(error) if code in self.codes), error.code)

    def body(self, error: EventdError) -> dict[str, Any]:
        """Return the JSON object of a response that reports the error."""
        problem: dict[str, Any] = {"code": self.code(error), "message": error.message}
        if error.hint and self.hint_in_message:
            problem["message"] = f"{error.message}; {error.hint}"
        elif error.hint:
            problem["hint"] = error.hint
        if detail := getattr(error, "detail", None):
            problem["detail"] = detail
        return {"error": problem}


API_FORM = ErrorForm({}, {}, hint_in_message=False, line_end=b"\n")
TOPICS_FORM = ErrorForm(
    {Full.code: 429},
    {
        NoSuchRoute.code: "not_found",
        TooLarge.code: "payload_too_large",
        Full.code: THROTTLED,
        Unavailable.code: "not_ready",
    },
    hint_in_message=True,
    line_end=b"",
)


def _codes_of(error: EventdError) -> list[str]:
    """Return the codes that the error's classes define, its own class first and base classes last."""
    return [vars(kind)["code"] for kind in type(error).__mro__ if "code" in vars(kind)]


def restore(status: int, body: bytes) -> EventdError:
    """Return the error of a response, for a client.

    A response without an error in either form gives an error of its status, or an `EventdError` for 404.
    """
    if wants_tls(status, body):
        return Invalid("the server speaks TLS", hint="write https:// in its address")
    try:
        problem = json.loads(body)["error"]
        code, message, hint = str(problem["code"]), str(problem["message"]), str(problem.get("hint", ""))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        # The 404 of another server does not mean that the resource is missing.
        kind = EventdError if status == 404 else _by_status(status)
        return kind(f"the server answered {status}", hint="check that a routerd-eventd serves this address")
    code, message, hint = shortened(code), shortened(message, LONGEST_MESSAGE), shortened(hint, LONGEST_MESSAGE)
    error = (_by_code(code) or _by_status(status))(message, hint=hint)
    vars(error).update(code=code, detail=problem.get("detail"))  # a later version may have more codes
    return error


def _by_code(code: str) -> type[EventdError] | None:
    if code == PLUGIN_FAILED:
        from eventd.plugins.contract.contract import PluginFailed

        return PluginFailed
    known: list[type[EventdError]] = [
        NoSuchRoute,
        WrongMethod,
        WrongMediaType,
        SlowBody,
        NotAcceptable,
        WrongNode,
        Internal,
    ]
    known += [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, EventdError)]
    return next((kind for kind in known if kind.code == code), None)


def _by_status(status: int) -> type[EventdError]:
    # A 502 without a code in its body comes from a proxy, not from a plugin.
    codes = [code for code, number in _STATUS.items() if number == status and code != PLUGIN_FAILED]
    return (_by_code(codes[0]) if codes else None) or EventdError
