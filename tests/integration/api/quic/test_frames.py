"""Frames and messages that cannot be served: what is answered, and what becomes of the stream."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support import felix_wire as wire
from tests.support.stream_channels import StreamsInMemory, auth

STREAM = "t1/n/s"
GOOD = wire.publish_acked(9, STREAM, b"x")


def publish_with(**members: Any) -> bytes:
    """Return a publish with other members; None leaves one out."""
    whole = {**wire.scope(STREAM), "payload": "eA==", "request_id": 1, **members}
    return wire.message("publish", **{name: value for name, value in whole.items() if value is not None})


@pytest.mark.parametrize(
    ("frame", "text"),
    [
        (wire.frame(0, b"{}", magic=b"FLX2"), "invalid magic number"),
        (wire.frame(0, b"{}", version=2), "unsupported version 2"),
        (wire.frame(1, b"", length=(16 << 20) + 1), "frame too large"),
        (wire.frame(0, b'{"type":"publish"'), "malformed message"),
        (wire.frame(0, b'{"type":"publish"} x'), "malformed message"),
        (wire.frame(0, b'{"type":"publish","stream":"\xff"}'), "malformed message"),
        (wire.frame(0, b""), "malformed message"),
        (wire.frame(0, b"[]"), "malformed message"),
        (wire.message("dance"), "unknown message type"),
        (publish_with(payload="!"), "malformed message"),
        (publish_with(request_id=7.0), "malformed message"),
        (publish_with(request_id=2**64), "malformed message"),
        (publish_with(tenant_id=None), "malformed message"),
        (publish_with(namespace=None), "malformed message"),
        (wire.frame(0x0008, b"x"), "malformed message"),
        (wire.frame(0x0010, b"x"), "malformed message"),
        (wire.message("ok"), "unexpected message type"),
        (wire.message("publish_ok", request_id=1), "unexpected message type"),
        (wire.message("event_stream_hello", subscription_id=1), "unexpected message type"),
        (wire.frame(0x0001, b"\x00\x02t"), "malformed publish batch"),
        (wire.frame(0x0001, wire.body(STREAM, [b"x"], count=2)), "malformed publish batch"),
        (wire.frame(0x0009, b"\x00" * 8), "malformed publish batch"),
        (wire.publish_acked(1, STREAM, b"x", mode=0), "malformed publish batch"),
        (wire.publish_acked(1, STREAM, b"x", mode=3), "malformed publish batch"),
        (wire.publish("t2/n/s", b"x"), "tenant mismatch"),
    ],
)
async def test_a_frame_ends_the_stream_with_an_error(streams: StreamsInMemory, frame: bytes, text: str) -> None:
    stream = await streams.stream()
    stream.send(frame, GOOD)
    assert await stream.error() == text
    assert await streams.records("stream:t1:n:s") == []


async def test_an_error_of_a_client_ends_the_stream_silently(streams: StreamsInMemory) -> None:
    stream = await streams.stream()
    stream.send(wire.message("error", message="no"))
    assert await stream.ended()


async def test_unknown_flags_are_answered_and_the_stream_continues(streams: StreamsInMemory) -> None:
    stream = streams.fresh()
    error = {"type": "error", "message": "unsupported frame flags"}
    assert await stream.ask(wire.frame(0x0040, b"anything")) == error
    assert (await stream.ask(auth()))["type"] == "auth_ok"
    assert await stream.ask(wire.frame(0x8001, b"")) == error
    stream.send(GOOD)
    assert (await stream.ack()).status == 0


@pytest.mark.parametrize("flags", [0x0002, 0x0008, 0x0009, 0x0021, 0x0040])
async def test_a_unidirectional_stream_ends_for_flags_it_has_no_use_for(streams: StreamsInMemory, flags: int) -> None:
    stream = await streams.stream(is_unidirectional=True)
    stream.send(wire.frame(flags, wire.body(STREAM, [b"x"])))
    assert await stream.ended()


async def test_flags_of_events_beside_a_publish_are_ignored(streams: StreamsInMemory) -> None:
    stream = await streams.stream()
    stream.send(wire.frame(0x0029, b"\x00" * 7 + b"\x05\x01" + wire.body(STREAM, [b"x"])))
    assert await stream.ack() == (0, 5, "")


async def test_a_malformed_body_is_answered_by_its_id_and_the_stream_continues(streams: StreamsInMemory) -> None:
    stream = await streams.stream()
    stream.send(wire.frame(0x0009, b"\x00" * 7 + b"\x05\x01" + wire.body(STREAM, [b"x"], count=9)), GOOD)
    assert await stream.ack() == (1, 5, "malformed publish batch")
    assert (await stream.ack())[:2] == (0, 9)


async def test_bytes_after_the_last_record_are_ignored(streams: StreamsInMemory) -> None:
    stream = await streams.stream()
    stream.send(wire.frame(0x0009, b"\x00" * 7 + b"\x05\x01" + wire.body(STREAM, [b"x"]) + b"more"))
    assert (await stream.ack())[:2] == (0, 5)


async def test_frames_are_read_from_any_pieces(streams: StreamsInMemory) -> None:
    stream = streams.fresh()
    for byte in auth() + GOOD:
        stream.send(bytes([byte]))
    assert (await stream.message())["type"] == "auth_ok"
    assert (await stream.ack()).status == 0


async def test_the_end_inside_a_header_is_a_clean_end(streams: StreamsInMemory) -> None:
    stream = await streams.stream()
    stream.send(GOOD, GOOD[:11], end=True)
    assert (await stream.ack()).status == 0
    assert await stream.ended()


async def test_the_end_inside_a_payload_is_an_error(streams: StreamsInMemory) -> None:
    stream = await streams.stream()
    stream.send(GOOD[:-1], end=True)
    assert await stream.error() == "the stream ends within a frame"


async def test_a_message_nested_too_deeply_is_malformed(streams: StreamsInMemory) -> None:
    stream = await streams.stream()
    text = b'{"type":"ok","x":' + b"[" * 5000 + b"]" * 5000 + b"}"
    stream.send(wire.frame(0, text))
    assert await stream.error() == "malformed message"


async def test_a_message_with_far_too_many_payloads_is_not_decoded(streams: StreamsInMemory) -> None:
    stream = await streams.stream()
    members = {"type": "publish_batch", **wire.scope(STREAM), "payloads": [""] * 100_000, "request_id": 1}
    stream.send(wire.frame(0, json.dumps(members).encode()))
    assert await stream.error() == "malformed message"


async def test_requests_before_an_error_are_answered_first(streams: StreamsInMemory) -> None:
    stream = await streams.stream()
    stream.send(GOOD, wire.publish_json(STREAM, b"y", request_id=2), wire.message("dance"), GOOD)
    assert (await stream.ack())[:2] == (0, 9)
    assert (await stream.message())["type"] == "publish_ok"
    assert await stream.error() == "unknown message type"


async def test_a_client_that_resets_its_side_gets_the_answers_that_are_under_way(streams: StreamsInMemory) -> None:
    stream = await streams.stream()
    stream.send(GOOD, GOOD[:20])
    stream.stream.was_reset(0)
    assert (await stream.ack()).status == 0
    assert await stream.ended()
