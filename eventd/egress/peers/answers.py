"""The error that an unexpected answer of a peer means for the link to it."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from eventd.egress.loop.sink import Blocked, LinkError, LinkUnavailable
from eventd.egress.transport.retry_after import retry_after
from eventd.net.exchange import Answer
from eventd.text.quoting import shortened
from eventd.tls.plain_http import wants_tls
from eventd.tls.reasons import Reason
from federation.wire import read_error

LONGEST_DETAIL: Final = 1000
"""Maximum number of characters of a peer's message that an error repeats."""
_API = "a node's API and not a peer listener: use the port of `spec.listen` of its EventGroup"


def link_error(answer: Answer, endpoint: str, now: int, *, code: str = "", detail: str = "") -> LinkError:
    """Return the error that an unexpected answer means for the link to the peer at `endpoint`.

    That is `LinkUnavailable` for 429 and 5xx, and `Blocked` for others. `code` is the error code in the answer, if it
    has one: it becomes the reason, unless the answer shows that the endpoint is wrong. `now`: microseconds since 1970.
    """
    code, detail = shortened(code), shortened(detail, LONGEST_DETAIL)
    if wants_tls(answer.status, answer.body):
        return Blocked(Reason.REQUIRED, f"{endpoint} speaks TLS, but the endpoint begins with http://")
    if is_of_an_api(answer):
        return Blocked("not_a_listener", f"{endpoint} is {_API}")
    message = f"the peer answered {answer.status}" + (f" {code}" if code else "") + (f": {detail}" if detail else "")
    reason = code or f"http_{answer.status}"
    path = urlsplit(endpoint).path
    if answer.status == 404 and path:
        message += f"; the endpoint has the path {path!r}, but a peer serves its paths at the root: leave the path out"
        return Blocked("wrong_path", message)
    if answer.status == 429 or answer.status >= 500:
        return LinkUnavailable(reason, message, retry_after=retry_after(answer, now))
    return Blocked(reason, message)


def is_of_an_api(answer: Answer) -> bool:
    """Return whether a node's API answered instead of a group's listener: a common mistake in an endpoint."""
    if answer.status not in (401, 404):
        return False
    error = read_error(answer.body)
    code = error.code if error is not None else ""
    if answer.status == 404:
        return code == "no_such_route"
    # A peer listener has the same code, but does not ask for this kind of key; a proxy that does has no such code.
    return code == "unauthorized" and answer.headers.get("www-authenticate", "").startswith("Bearer")
