"""What an answer of a peer says of the link."""

from __future__ import annotations

import pytest

from eventd.egress.loop.sink import Blocked, LinkUnavailable
from eventd.egress.peers.answers import is_of_an_api, link_error
from eventd.net.exchange import Answer

PAUSE = {"retry-after": "25"}


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_peer_that_needs_time_gets_the_time_that_it_asks_for(status: int) -> None:
    error = link_error(Answer(status, PAUSE, b""), "http://b", 0)
    assert isinstance(error, LinkUnavailable)
    assert error.retry_after == 25.0


def test_a_refusal_asks_for_no_time() -> None:
    error = link_error(Answer(403, PAUSE, b""), "http://b", 0)
    assert isinstance(error, Blocked)
    assert error.retry_after is None


def test_a_long_message_of_a_peer_is_cut() -> None:
    error = link_error(Answer(403, {}, b""), "http://b", 0, code="c" * 5000, detail="d" * 1_000_000)
    assert len(error.detail) < 1500
    assert len(error.reason) < 300


BEARER = {"www-authenticate": "Bearer"}


@pytest.mark.parametrize(
    ("status", "headers", "code", "is_api"),
    [
        (404, {}, "no_such_route", True),
        (404, {}, "not_found", False),
        (404, {}, "", False),
        (401, BEARER, "unauthorized", True),
        (401, {}, "unauthorized", False),
        (401, BEARER, "", False),
        (503, BEARER, "unauthorized", False),
    ],
    ids=[
        "no route",
        "a peer's 404",
        "a web server",
        "a key",
        "a peer's 401",
        "a proxy that wants a key",
        "other status",
    ],
)
def test_the_api_of_a_node_is_told_from_peers_and_proxies(
    status: int, headers: dict[str, str], code: str, is_api: bool
) -> None:
    body = b'{"error":{"code":"%b","message":"no"}}' % code.encode() if code else b"<html>"
    assert is_of_an_api(Answer(status, headers, body)) is is_api
