"""What a failed request says of the link, and the time to wait from an answer's `Retry-After`."""

from __future__ import annotations

import asyncio
import errno
import socket
from contextlib import ExitStack

import pytest

from eventd.egress.loop.sink import Blocked, LinkUnavailable
from eventd.egress.peers.transport import Transport, is_of_an_api
from eventd.net.exchange import Answer
from eventd.testing import ManualClock
from tests.support.ports import free_port

NOON = 1_795_176_000_000_000
"""2026-11-20T12:00:00Z, a Friday, in microseconds."""


def asked(text: str, status: int = 503) -> float | None:
    clock = ManualClock()
    clock.set_wall(NOON)
    held = Transport(clock).link_error(Answer(status, {"retry-after": text}, b""), "http://b")
    assert isinstance(held, LinkUnavailable)
    return held.retry_after


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("http://user:pw@127.0.0.1:{port}/v2/events?a=b", "127.0.0.1:{port}"),
        ("http://[::1]:{port}", "[::1]:{port}"),
    ],
)
async def test_a_connection_that_is_refused_names_host_and_port_and_no_secret(url: str, place: str) -> None:
    transport, port = Transport(ManualClock()), free_port()
    try:
        with pytest.raises(LinkUnavailable) as caught:
            await transport.post(url.format(port=port), b"", {}, seconds=10)
    finally:
        await transport.close()
    assert caught.value.detail.startswith(f"cannot connect to {place.format(port=port)}: ")
    assert "pw" not in caught.value.detail


@pytest.mark.parametrize("seconds", [30, 0.2])
async def test_a_connection_that_is_not_made_in_time_is_no_late_answer(
    monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    monkeypatch.setattr("eventd.egress.peers.transport.CONNECT_SECONDS", 0.2)
    transport = Transport(ManualClock())
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server, ExitStack() as clients:
        place = server.getsockname()
        for _ in range(3):  # nobody accepts: when the queue is full, the next one hears nothing
            client = clients.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(place)
        try:
            with pytest.raises(LinkUnavailable) as caught:
                await transport.post(f"http://127.0.0.1:{place[1]}", b"", {}, seconds=seconds)
        finally:
            await transport.close()
    assert (caught.value.reason, caught.value.detail) == (
        "timeout",
        f"no connection to 127.0.0.1:{place[1]} within 0.2 s",
    )


async def test_a_connection_that_the_system_gives_up_is_told_with_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    async def give_up(*_: object, **__: object) -> None:
        raise TimeoutError(errno.ETIMEDOUT, "Connection timed out")

    monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", give_up)
    transport = Transport(ManualClock())
    with pytest.raises(LinkUnavailable) as caught:
        await transport.post("http://[fd00::1]:8787", b"", {}, seconds=30)
    await transport.close()
    assert (caught.value.reason, caught.value.detail) == (
        "unreachable",
        "cannot connect to [fd00::1]:8787: Connection timed out",
    )


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("25", 25.0),
        (" 25 ", 25.0),
        ("9" * 400, 999_999_999.0),
        ("Fri, 20 Nov 2026 12:00:25 GMT", 25.0),
        ("Fri, 20 Nov 2026 12:00:25 -0000", 25.0),
        ("Fri, 20 Nov 2026 13:00:25 +0100", 25.0),
        ("Fri, 20 Nov 2026 11:00:00 GMT", 0.0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 251_607_124_799.0),
        ("Fri, 31 Dec 9999 23:59:59 -2359", 251_607_211_139.0),
        ("Mon, 01 Jan 0001 00:00:00 +2359", 0.0),
    ],
)
def test_a_time_to_wait(text: str, seconds: float) -> None:
    assert asked(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "soon",
        "-5",
        "1e9",
        "25 s",
        "Fri, 20 Nov 99999 12:00:25 GMT",
        f"Fri, 20 Nov {10**30} 12:00:25 GMT",
        f"Fri, {'9' * 5000} Nov 2026 12:00:25 GMT",
        "Fri, 20 Nov 2026 99:00:25 GMT",
        "Fri, 20 Nov 2026 12:00:25 +9999",
        f"Fri, 20 Nov 2026 12:00:25 +{'9' * 50}",
        "\x00" * 100,
        "Fri,,,,::::" * 1000,
    ],
)
def test_what_is_no_time_says_nothing(text: str) -> None:
    assert asked(text) is None


def test_a_refusal_asks_for_no_time() -> None:
    assert isinstance(Transport(ManualClock()).link_error(Answer(403, {"retry-after": "25"}, b""), "http://b"), Blocked)


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
