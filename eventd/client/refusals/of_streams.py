"""The refusals that a node sends on a stream of requests, as exceptions."""

from __future__ import annotations

from typing import Final

from eventd.client.refusals.kinds import Lost, Throttled
from eventd.errors import EventdError, Forbidden, Full, Invalid, NotFound, TooLarge, Unauthorized


class OffsetUnavailable(NotFound):
    """The stream has no event at the offset `requested`: it is `too_old` or `in_future`, as `reason` says.

    `available` is the nearest offset to begin at.
    """

    code = "offset_unavailable"

    def __init__(self, reason: str, requested: int, available: int) -> None:
        has = "no longer has an event" if reason == "too_old" else "has no event yet"
        super().__init__(f"the stream {has} at offset {requested}", hint=f"the nearest offset is {available}")
        self.reason = reason
        self.requested = requested
        self.available = available


_NEW_TOKEN: Final = (
    "check the tenant and the token: it may have expired, or be for another tenant; the node's log has the reason"
)
_LATER: Final = "try again later, or send less at a time"
_TEXTS: Final[dict[str, tuple[type[EventdError], str]]] = {
    "auth failed": (Unauthorized, _NEW_TOKEN),
    "token expired": (Unauthorized, _NEW_TOKEN),
    "token revoked": (Unauthorized, "ask for another token"),
    "forbidden": (Forbidden, "the token does not allow it; use one with that permission"),
    "tenant mismatch": (Forbidden, "the token is for another tenant"),
    "topic full": (Full, "wait until records are evicted, or raise the limits of the topic"),
    "record too large": (TooLarge, "send smaller payloads, or fewer at a time: the topic may have caps"),
    "batch too large": (TooLarge, "send fewer payloads at a time"),
    "malformed publish batch": (Invalid, ""),
    "server overloaded": (Throttled, _LATER),
    "publish queue full": (Throttled, _LATER),
    "publish ingress byte budget exhausted": (Throttled, _LATER),
    "publish ingress per-connection byte budget exhausted": (Throttled, _LATER),
    "publish admission timed out": (Throttled, _LATER),
    "max subscriptions per connection exceeded": (Throttled, _LATER),
    "publish commit timeout": (Lost, "the records may be stored"),
}
_BEGINNINGS: Final[dict[str, type[EventdError]]] = {
    "stream not found": NotFound,
    "cache scope not found": NotFound,
    "value too large": TooLarge,
    "record too large": TooLarge,
    "batch too large": TooLarge,
}


def refusal(message: str) -> EventdError:
    """Return the error that the text of a refusal denotes; an unknown text is an `EventdError`."""
    found = _TEXTS.get(message)
    if found is not None:
        return found[0](message, hint=found[1])
    for beginning, kind in _BEGINNINGS.items():
        if message.startswith(beginning):
            return kind(message)
    return EventdError(f"the node refused the request: {message}")
