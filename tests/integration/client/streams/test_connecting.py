"""How a client of streams verifies the server, connects again, and reads its token."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes

from eventd.client import Lost, StreamClient
from eventd.errors import EventdError, Invalid, MissingExtra, SecretUnreadable, Unavailable
from eventd.streams.frames import Flags, encode_frame
from eventd.streams.messages import CacheOk, write_message
from tests.support.certificates import Authority
from tests.support.ports import free_port
from tests.support.scripted_streams import ScriptedServer, listen


async def test_the_certificate_is_verified_unless_a_ca_a_pin_or_the_program_says_otherwise(
    server: ScriptedServer, tmp_path: Path
) -> None:
    other = Authority(tmp_path, "other").file
    for wrong in ({}, {"ca": other}, {"pin": "0" * 64}, {"ca": tmp_path / "missing"}):
        async with StreamClient(server.address, "t1", **wrong) as streams:  # type: ignore[arg-type]
            async with asyncio.timeout(10):
                with pytest.raises(Lost):
                    await streams.publish("default/orders", b"a")
                with pytest.raises(Lost):
                    await streams.reach()
                with pytest.raises(Lost):
                    await anext(streams.subscribe("default/orders"))
                with pytest.raises(Lost):
                    await streams.publish("default/orders", b"a", ack=False)
    assert server.records["t1/default/orders"] == []
    assert server.tokens == []
    digest = x509.load_pem_x509_certificate(server.certificate.chain).fingerprint(hashes.SHA256()).hex()
    for right in ({"ca": server.ca}, {"pin": server.pin}, {"pin": digest}, {"verify": False}):
        async with StreamClient(server.address, "t1", **right) as streams:  # type: ignore[arg-type]
            await streams.reach()


@pytest.mark.parametrize(
    "garbage",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        encode_frame(0, b"[]"),
        encode_frame(0, b'{"type":"unknown"}'),
        encode_frame(0, write_message(CacheOk(request_id=1))),
        encode_frame(Flags.PUBLISH_ACK, b""),
        encode_frame(Flags.SHARED_EVENTS, bytes(4)),
    ],
)
async def test_a_server_that_answers_something_else_is_an_error(server: ScriptedServer, garbage: bytes) -> None:
    async with StreamClient(server.address, "t1", ca=server.ca, patience=0) as streams:
        server.garbage = garbage
        async with asyncio.timeout(10):
            for call in (
                streams.publish("default/orders", b"a"),
                streams.cache("default/primary").get("k"),
                anext(streams.subscribe("default/orders")),
            ):
                with pytest.raises(EventdError, match="cannot be read"):
                    await call


async def test_an_answer_that_cannot_be_read_ends_the_stream_alone(server: ScriptedServer) -> None:
    async with StreamClient(server.address, "t1", ca=server.ca) as streams:
        cache = streams.cache("default/primary")
        await cache.put("k", b"v")
        server.garbage = encode_frame(0, b"{}")
        waiting = asyncio.ensure_future(cache.get("k"))
        await server.until(lambda: any(stream.has_failed for stream in server.streams))
        server.garbage = b""
        assert await waiting == b"v"
    assert len(server.links) == 1


async def test_a_client_that_does_not_verify_reaches_loopback_alone() -> None:
    async with StreamClient("192.0.2.1:5000", "t1", verify=False) as streams:
        with pytest.raises(Invalid, match="must be verified"):
            await streams.publish("default/orders", b"a")


async def test_a_server_that_is_away_is_waited_for(server: ScriptedServer) -> None:
    async with StreamClient(server.address, "t1", ca=server.ca) as streams:
        await streams.publish("default/orders", b"a")
        port = server.server.address[1]
        await server.server.close(0, "restart")
        calls = [
            asyncio.ensure_future(streams.publish("default/orders", b"b")),
            asyncio.ensure_future(streams.publish("default/other", b"c", ack=False)),
            asyncio.ensure_future(streams.cache("default/primary").get("k")),
        ]
        await asyncio.sleep(0.2)
        assert not any(call.done() for call in calls)
        server.server = await listen(server, port)
        async with asyncio.timeout(20):
            await asyncio.gather(*calls)
    assert server.records == {"t1/default/orders": [b"a", b"b"], "t1/default/other": [b"c"]}


async def test_a_server_that_stays_away_is_lost_after_the_patience() -> None:
    async with StreamClient(f"127.0.0.1:{free_port()}", "t1", verify=False, patience=0) as streams:
        async with asyncio.timeout(20):
            for call in (
                streams.publish("default/orders", b"a"),
                streams.publish("default/orders", b"a", ack=False),
                streams.cache("default/primary").get("k"),
                anext(streams.subscribe("default/orders")),
                streams.reach(),
            ):
                with pytest.raises(Unavailable, match="cannot reach"):
                    await call


async def test_a_token_is_read_from_a_file_or_a_function_for_each_stream(
    server: ScriptedServer, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text("one\n")
    async with StreamClient(server.address, "t1", file, ca=server.ca) as streams:
        await streams.publish("default/orders", b"a")
        file.write_text("two\n")
        server.cut()
        await streams.publish("default/orders", b"b")
        file.unlink()
        with pytest.raises(SecretUnreadable, match="cannot read"):
            await streams.reach()

    async def renew() -> str:
        await asyncio.sleep(0)
        return "three"

    async with StreamClient(server.address, "t1", renew, ca=server.ca) as streams:
        await streams.publish("default/orders", b"c")
    assert server.tokens == ["one", "two", "three"]


async def test_what_a_token_function_raises_reaches_the_caller(server: ScriptedServer) -> None:
    def fail() -> str:
        raise KeyError("no token")

    async with StreamClient(server.address, "t1", fail, ca=server.ca) as streams:
        with pytest.raises(Exception, match="no token"):
            await streams.publish("default/orders", b"a")


@pytest.mark.parametrize(
    "server", ["", "host:", "host:0", "host:99999", "::1:5000", "host:5000:6000", "[::1", "host:x"]
)
def test_a_text_that_is_no_address_is_invalid(server: str) -> None:
    with pytest.raises(Invalid, match="HOST:PORT"):
        StreamClient(server, "t1")


def test_the_extra_is_named_if_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eventd.quic.library.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"StreamClient needs the extra quic.*pip install"):
        StreamClient("127.0.0.1:5000", "t1")


async def test_a_client_is_used_as_a_context_manager(server: ScriptedServer) -> None:
    streams = StreamClient(server.address, "t1", ca=server.ca)
    with pytest.raises(Invalid, match="async with"):
        await streams.publish("default/orders", b"a")
