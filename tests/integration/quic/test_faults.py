"""A fault of the library, or of the user of a connection, ends that connection alone."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eventd.quic.certificate import QuicCertificate
from eventd.quic.trust import ServerTrust, Untrusted
from eventd.runtime.clock import SystemClock
from eventd.tls.files import CertificateUnusable
from tests.support.certificates import Authority
from tests.support.quic_ends import LinkNotes, Served, eventually, serve


def broken(*_: Any, **__: Any) -> Any:
    raise RuntimeError("packet builder capacity exhausted")


async def two_clients(served: Served) -> tuple[LinkNotes, LinkNotes, LinkNotes]:
    """Return the clients of two connections, and the server's end of the first."""
    bad = await served.dial()
    server = await served.link(0)
    return bad, await served.dial(), server


async def check_alone(served: Served, bad: LinkNotes, good: LinkNotes, server: LinkNotes) -> None:
    """Check that the first connection has ended, was counted once, and that the second one works."""
    await server.until(lambda it: it.end)
    assert server.end == (1, "internal error")
    assert served.failures == ["RuntimeError"]
    stream = good.open()
    stream.stream.write(b"still here", end=True)
    await stream.until(lambda it: it.ended)
    good.link.close()
    bad.link.close()


@pytest.mark.parametrize("method", ["receive", "outgoing", "deliver", "handle_timer", "send_stream_data"])
async def test_an_exception_of_the_library_ends_one_connection(
    tmp_path: Path, method: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with serve(tmp_path) as served:
        bad, good, server = await two_clients(served)
        stream = bad.open()
        stream.stream.write(b"x")
        await stream.until(lambda it: it.data)
        setattr(server.link._connection, method, broken)
        stream.stream.write(b"y")
        if method == "handle_timer":
            server.streams[0].stream.write(b"z")  # an answer, whose acknowledgement is overdue once the client is gone
            server.link._timer._at = 0.0
            server.link._timer._due = lambda: 0.0
            server.link._timer._ring()
        with caplog.at_level(logging.WARNING):
            await check_alone(served, bad, good, server)
        assert len([line for line in caplog.records if line.message == "a fault ended a QUIC connection"]) <= 1


async def test_an_exception_of_the_user_ends_one_connection(tmp_path: Path) -> None:
    async with serve(tmp_path) as served:
        bad, good, server = await two_clients(served)
        server.stream_opened = broken  # type: ignore[method-assign]
        bad.open().stream.write(b"x")
        await check_alone(served, bad, good, server)


async def test_a_fault_of_many_connections_is_logged_once_and_counted_each_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serve(tmp_path) as served:
        for number in range(5):
            client = await served.dial()
            server = await served.link(number)
            server.stream_opened = broken  # type: ignore[method-assign]
            client.open().stream.write(b"x")
            await server.until(lambda it: it.end)
            client.link.close()
        assert served.failures == ["RuntimeError"] * 5
        assert [line.message for line in caplog.records if line.levelno >= logging.WARNING] == [
            "a fault ended a QUIC connection"
        ]


@pytest.mark.parametrize(
    "make",
    [
        lambda: b"",
        lambda: b"\x00",
        lambda: b"\xc0",
        lambda: b"\xff" * 1200,
        lambda: b"\xc3\x00\x00\x00\x01\x08" + b"\x07" * 1300,
        lambda: b"\xc0\x00\x00\x00\x01\xff" + b"\x00" * 1300,
        lambda: b"\xc0\x0a\x0a\x0a\x0a\x08" + b"\x00" * 1300,
        lambda: b"\x40" + b"\x01" * 60_000,
    ],
)
async def test_noise_harms_nobody(tmp_path: Path, make: Callable[[], bytes]) -> None:
    async with serve(tmp_path) as served:
        client = await served.dial()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as noise:
            for _ in range(50):
                noise.sendto(make(), served.server.address)
        stream = client.open()
        stream.stream.write(b"still here", end=True)
        await stream.until(lambda it: it.ended)
        client.link.close()
        await eventually(lambda: served.server.connections <= 2)


async def test_a_new_certificate_is_shown_to_new_connections(tmp_path: Path) -> None:
    async with serve(tmp_path) as served:
        first = await served.dial()
        other = Authority(tmp_path / "other")
        files = other.issue("new")
        served.server.use(QuicCertificate.of_files(files.cert, files.key, SystemClock().now()))
        with pytest.raises(Untrusted, match="cannot be verified"):
            await served.dial()
        second = await served.dial(trust=ServerTrust(ca=other.file.read_bytes()))
        stream = first.open()
        stream.stream.write(b"still here", end=True)
        await stream.until(lambda it: it.ended)
        with pytest.raises(CertificateUnusable):
            served.server.use(QuicCertificate(b"nothing", b"nothing"))
        third = await served.dial(trust=ServerTrust(pin=files.pin))
        for client in (first, second, third):
            client.link.close()


async def test_an_untrusted_server_gets_nothing_but_the_handshake(tmp_path: Path) -> None:
    async with serve(tmp_path) as served:
        with pytest.raises(Untrusted, match="cannot be verified"):
            await served.dial(trust=ServerTrust())
        server = await served.link()
        await server.until(lambda it: it.end)
        assert server.end == (0x100 + 42, "the certificate is not trusted")
        assert not server.streams
