"""Streams between the project's own server and client, over loopback."""

from __future__ import annotations

from pathlib import Path

import pytest

from eventd.quic import connection
from eventd.quic.limits import TransportLimits
from eventd.quic.link import NoStreamsLeft
from eventd.quic.trust import ServerTrust
from tests.support.quic_ends import StreamNotes, eventually, serve

MIB = 1 << 20


async def test_what_a_client_writes_comes_back_and_ends(tmp_path: Path) -> None:
    async with serve(tmp_path) as served:
        client = await served.dial()
        stream = client.open()
        stream.stream.write(b"hello ")
        stream.stream.write(b"world", end=True)
        await stream.until(lambda it: it.ended)
        assert stream.data == b"hello world"
        assert client.is_open
        assert not served.failures
        client.link.close()


async def test_ten_mebibytes_come_back_whole(tmp_path: Path) -> None:
    async with serve(tmp_path) as served:
        client = await served.dial()
        stream = client.open()
        sent = bytes(range(256)) * (10 * MIB // 256)
        stream.stream.write(sent, end=True)
        await stream.until(lambda it: it.ended)
        assert stream.data == sent
        client.link.close()


async def test_a_unidirectional_stream_of_each_end(tmp_path: Path) -> None:
    async with serve(tmp_path) as served:
        client = await served.dial()
        client.open(unidirectional=True).stream.write(b"up", end=True)
        server = await served.link()
        await server.until(lambda it: it.streams)
        await server.streams[0].until(lambda it: it.ended)
        assert (server.streams[0].data, server.streams[0].stream.is_unidirectional) == (b"up", True)
        server.open(unidirectional=True).stream.write(b"down", end=True)
        await client.until(lambda it: it.streams)
        await client.streams[0].until(lambda it: it.ended)
        assert client.streams[0].data == b"down"
        server.streams[0].stream.write(b"nothing is sent on the stream of the peer")
        client.link.close()


async def test_a_thousand_streams_are_open_at_once(tmp_path: Path) -> None:
    async with serve(tmp_path) as served:
        client = await served.dial()
        assert client.link.streams_left(unidirectional=False) == 1024
        streams = [client.open() for _ in range(1000)]
        for number, stream in enumerate(streams):
            stream.stream.write(b"%d" % number)
        for number, stream in enumerate(streams):
            text = b"%d" % number
            await stream.until(lambda it, text=text: it.data == text)
        assert client.link.streams_left(unidirectional=False) == 24
        client.link.close()


async def test_the_limit_of_the_peer_is_told_and_renewed_as_streams_end(tmp_path: Path) -> None:
    async with serve(tmp_path, TransportLimits(streams=3)) as served:
        client = await served.dial()
        streams = [client.open() for _ in range(3)]
        with pytest.raises(NoStreamsLeft):
            client.open()
        assert client.link.streams_left(unidirectional=True) == 3
        for stream in streams:
            stream.stream.write(b"x", end=True)
            await stream.until(lambda it: it.ended)
        for _ in range(30):
            stream = StreamNotes()
            # the grant may come after the end of the stream
            await eventually(lambda: client.link.streams_left(unidirectional=False))
            stream.stream = client.link.open_stream(stream)
            stream.stream.write(b"x", end=True)
            await stream.until(lambda it: it.ended)
        client.link.close()


async def test_a_reset_reaches_the_peer_with_its_code(tmp_path: Path) -> None:
    async with serve(tmp_path) as served:
        client = await served.dial()
        stream = client.open()
        stream.stream.write(b"x")
        await stream.until(lambda it: it.data)
        stream.stream.reset(42)
        stream.stream.write(b"nothing is sent after it")
        server = await served.link()
        await server.streams[0].until(lambda it: it.reset_code is not None)
        assert (server.streams[0].reset_code, server.streams[0].data) == (42, b"x")
        server.streams[0].stream.write(b"the other side lives", end=True)
        await stream.until(lambda it: it.ended)
        assert stream.data == b"xthe other side lives"
        client.link.close()


async def test_a_stream_that_the_peer_stops_sends_no_more(tmp_path: Path) -> None:
    async with serve(tmp_path) as served:
        client = await served.dial()
        stream = client.open()
        stream.stream.write(b"x")
        await stream.until(lambda it: it.data)
        stream.stream.stop_receiving(7)
        server = await served.link()
        await server.streams[0].until(lambda it: it.stop_code is not None)
        assert server.streams[0].stop_code == 7
        server.streams[0].stream.write(b"nothing is sent after it")
        assert server.streams[0].stream.unsent == 0
        other = client.open()
        other.stream.write(b"y", end=True)
        await other.until(lambda it: it.ended)
        assert stream.data == b"x"
        client.link.close()


async def test_a_stream_may_be_stopped_before_its_first_bytes_arrive(tmp_path: Path) -> None:
    async with serve(tmp_path) as served:
        client = await served.dial()
        stopped, other = client.open(), client.open()
        stopped.stream.stop_receiving(3)
        other.stream.write(b"x")
        await other.until(lambda it: it.data)
        stopped.stream.write(b"the answer to this is not wanted")
        server = await served.link()
        await server.until(lambda it: len(it.streams) == 2)
        other.stream.write(b"y", end=True)
        await other.until(lambda it: it.ended)
        assert [stream.stop_code for stream in server.streams] == [None, 3]
        assert (other.data, stopped.data, served.failures) == (b"xy", b"", [])
        client.link.close()


async def test_what_is_not_sent_yet_is_counted_and_room_is_told(tmp_path: Path) -> None:
    async with serve(tmp_path) as served:
        client = await served.dial()
        stream = client.open()
        stream.stream.write(b"x")
        await stream.until(lambda it: it.data)
        server = await served.link()
        client.link.pause()
        source = server.streams[0].stream
        source.write(b"y" * (3 * MIB))
        assert source.unsent == 3 * MIB
        other = server.open(unidirectional=True)
        other.stream.write(b"z" * (3 * MIB))
        assert server.link.unsent == 6 * MIB
        assert server.streams[0].rooms == 0
        client.link.resume()
        await server.streams[0].until(lambda it: it.rooms)
        assert source.unsent * 2 <= source.mark
        await stream.until(lambda it: len(it.data) == 3 * MIB + 1)
        await client.until(lambda it: it.streams)
        await client.streams[0].until(lambda it: len(it.data) == 3 * MIB)
        assert server.streams[0].rooms == 1
        assert server.link.unsent == source.unsent == 0
        client.link.close()


async def test_a_connection_that_is_paused_gets_no_more_than_its_window(tmp_path: Path) -> None:
    limits = TransportLimits(window=300_000, stream_window=100_000)
    async with serve(tmp_path, limits) as served:
        client = await served.dial()
        streams = [client.open(unidirectional=True) for _ in range(8)]
        streams[0].stream.write(b"x")
        server = await served.link()
        await server.until(lambda it: it.streams)
        server.link.pause()
        for stream in streams:
            stream.stream.write(b"y" * 90_000, end=True)
        await eventually(lambda: 720_000 - client.link.unsent >= 299_000)
        assert sum(len(stream.data) for stream in server.streams) == 1
        server.link.resume()
        await server.until(lambda it: len(it.streams) == 8)
        for arrived in server.streams:
            await arrived.until(lambda it: it.ended)
        assert sum(len(stream.data) for stream in server.streams) == 720_001
        client.link.close()


async def test_a_stalled_reader_of_one_stream_does_not_hold_up_another(tmp_path: Path) -> None:
    async with serve(tmp_path) as served:
        client = await served.dial()
        streams = [client.open() for _ in range(2)]
        streams[0].stream.write(b"x" * MIB)
        streams[1].stream.write(b"quick", end=True)
        await streams[1].until(lambda it: it.ended)
        await streams[0].until(lambda it: len(it.data) == MIB)
        client.link.close()


@pytest.mark.parametrize(("host", "size"), [("127.0.0.1", 65_507), ("::1", 65_488)])
async def test_the_largest_datagrams_are_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str, size: int
) -> None:
    monkeypatch.setattr(connection, "LOOPBACK_DATAGRAM", size)
    async with serve(tmp_path, host=host) as served:
        client = await served.dial(trust=ServerTrust(is_blind=True))
        stream = client.open()
        stream.stream.write(b"x" * MIB, end=True)
        await stream.until(lambda it: it.ended)
        assert stream.data == b"x" * MIB
        client.link.close()
