"""How connections end, and what each end is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from eventd.quic.client import connect
from eventd.quic.limits import TransportLimits
from eventd.quic.link import NoStreamsLeft
from eventd.quic.trust import ServerTrust, Unreachable
from eventd.runtime.clock import SystemClock
from tests.support.ports import free_port
from tests.support.quic_ends import LinkNotes, serve


async def test_a_client_closes_with_a_code_and_a_reason(tmp_path: Path) -> None:
    async with serve(tmp_path) as served:
        client = await served.dial()
        stream = client.open()
        stream.stream.write(b"x")
        await stream.until(lambda it: it.data)
        client.link.close(7, "enough")
        server = await served.link()
        await server.until(lambda it: it.end)
        assert server.end == (7, "enough")
        assert server.streams[0].is_lost
        await client.until(lambda it: it.end)
        assert client.end == (7, "enough")
        assert stream.is_lost
        with pytest.raises(NoStreamsLeft):
            client.open()
        stream.stream.write(b"nothing is sent any more")
        assert client.link.unsent == stream.stream.unsent == 0
        client.link.ping()
        client.link.close(8, "again")
        assert client.end == (7, "enough")


async def test_a_server_that_closes_tells_every_client(tmp_path: Path) -> None:
    async with serve(tmp_path) as served:
        clients = [await served.dial() for _ in range(3)]
        await served.link(2)
        await served.server.close(0, "broker shutting down")
        for client in clients:
            await client.until(lambda it: it.end)
            assert client.end == (0, "broker shutting down")
        assert [link.end for link in served.links] == [(0, "broker shutting down")] * 3
        assert served.server.connections == 0


async def test_a_server_that_stops_accepting_keeps_its_connections(tmp_path: Path) -> None:
    async with serve(tmp_path) as served:
        client = await served.dial()
        served.server.stop_accepting()
        with pytest.raises(Unreachable, match="the server is shutting down"):
            await served.dial(seconds=5.0)
        stream = client.open()
        stream.stream.write(b"x", end=True)
        await stream.until(lambda it: it.ended)
        client.link.close()


async def test_more_connections_than_allowed_are_refused(tmp_path: Path) -> None:
    async with serve(tmp_path, TransportLimits(most_connections=2)) as served:
        clients = [await served.dial() for _ in range(2)]
        with pytest.raises(Unreachable, match="too many connections"):
            await served.dial(seconds=5.0)
        for client in clients:
            client.link.close()


async def test_silence_ends_a_connection_and_a_ping_prevents_it(tmp_path: Path) -> None:
    async with serve(tmp_path, TransportLimits(idle_seconds=1.5)) as served:
        quiet, alive = await served.dial(), await served.dial()
        clock = SystemClock()
        while quiet.end is None:
            alive.link.ping()
            await clock.sleep(0.2)
        assert quiet.end[1] == "Idle timeout"
        assert alive.end is None
        alive.link.close()


async def test_an_address_where_nothing_listens_fails_at_once() -> None:
    began = SystemClock().monotonic()
    with pytest.raises(Unreachable, match="Connection refused"):
        await connect("127.0.0.1", free_port(), LinkNotes(), trust=ServerTrust(is_blind=True), clock=SystemClock())
    assert SystemClock().monotonic() - began < 5


async def test_a_server_that_dies_is_noticed_when_a_packet_is_sent(tmp_path: Path) -> None:
    async with serve(tmp_path) as served:
        client = await served.dial()
        served.server._socket.close()  # without a word, as a process that is killed
        client.link.ping()
        await client.until(lambda it: it.end)
        assert client.end == (0, "connection refused")


async def test_a_server_that_is_started_again_says_that_it_does_not_know_the_connection(tmp_path: Path) -> None:
    async with serve(tmp_path) as served:
        client = await served.dial()
        await served.link()
        for link in list(served.server._links):
            link.abandon("as if the server had lost its memory")
        client.link.ping()
        await client.until(lambda it: it.end)
        assert client.end == (0, "")
