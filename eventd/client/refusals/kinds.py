"""Errors that only clients have."""

from __future__ import annotations

from eventd.errors import Unavailable

OTHER_SERVER = "check that a routerd-eventd serves this address"
"""The hint for an answer that cannot come from a node, but from another server."""


class Throttled(Unavailable):
    """The node answered 429: one of its limits is reached, and the request may succeed later."""

    code = "throttled"


class Lost(Unavailable):
    """The connection failed or broke, or no usable answer came in time. The request may have been carried out."""

    code = "unavailable"


class WrongTls(Lost):
    """TLS with the node failed for a reason that another attempt does not change. Nothing was sent."""
