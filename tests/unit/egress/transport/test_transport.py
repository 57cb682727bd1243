"""What a failed request says of the link."""

from __future__ import annotations

import asyncio
import errno
import socket
from contextlib import ExitStack

import pytest

from eventd.egress.loop.sink import Blocked, LinkUnavailable
from eventd.egress.transport.transport import Transport
from eventd.testing import ManualClock
from tests.support.ports import free_port


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


@pytest.mark.parametrize(("seconds", "connect_seconds"), [(30, 0.2), (0.2, 10)])
async def test_a_connection_that_is_not_made_in_time_is_no_late_answer(seconds: float, connect_seconds: float) -> None:
    transport = Transport(ManualClock())
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server, ExitStack() as clients:
        place = server.getsockname()
        for _ in range(3):  # nobody accepts: when the queue is full, the next one hears nothing
            client = clients.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(place)
        try:
            with pytest.raises(LinkUnavailable) as caught:
                await transport.post(
                    f"http://127.0.0.1:{place[1]}", b"", {}, seconds=seconds, connect_seconds=connect_seconds
                )
        finally:
            await transport.close()
    assert caught.value.reason == "timeout"
    told, within = caught.value.detail.removesuffix(" s").split(" within ")
    assert told == f"no connection to 127.0.0.1:{place[1]}"
    # Of the time for the whole request, some is over when the connection begins.
    assert float(within) == 0.2 if connect_seconds == 0.2 else 0 < float(within) <= 0.2


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
    "url",
    [
        f"https://user:pw@a.example:{'1' * 5000}/",
        "https://user:pw@a.example:\uff14\uff14\uff13/",
        "https://user:pw@[::::]/",
        "https://user:pw@[127.0.0.1]/",
        "https://user:pw@[::1/",
        "https:///pw",
        "https://a.example/\ud800pw",
    ],
)
@pytest.mark.parametrize("bounded", [False, True])
async def test_a_url_that_leads_nowhere_blocks_the_link_and_is_not_shown(url: str, bounded: bool) -> None:
    transport = Transport(ManualClock())
    try:
        with pytest.raises(Blocked) as caught:
            await transport.post(url, b"", {}, seconds=10, bounded=bounded)
    finally:
        await transport.close()
    assert caught.value.reason == "invalid_url"
    assert "pw" not in caught.value.detail
