"""Binary layouts: what is written is read again, and no bytes make a reader fail otherwise than by `BadLayout`."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventd.streams.frames import Flags, StreamFrameReader
from eventd.streams.layouts import (
    MAX_MESSAGE,
    BadLayout,
    EventBatch,
    PublishAck,
    PublishBatch,
    read_ack,
    read_acknowledged,
    read_events,
    read_publish,
    write_ack,
    write_events,
    write_publish,
)

U64 = st.integers(0, 2**64 - 1)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
PAYLOADS = st.lists(st.binary(max_size=30), max_size=6)
BATCHES = st.builds(PublishBatch, NAMES, NAMES, NAMES, PAYLOADS)


@given(BATCHES, st.none() | U64)
def test_publish(batch: PublishBatch, request_id: int | None) -> None:
    (frame,) = StreamFrameReader().feed(write_publish(batch, request_id))
    if request_id is None:
        assert frame.flags == Flags.PUBLISH
        assert read_publish(frame.payload + b"ignored") == batch
    else:
        assert frame.flags == Flags.PUBLISH | Flags.ACKNOWLEDGED
        head = read_acknowledged(frame.payload)
        assert (head.request_id, read_publish(head.body)) == (request_id, batch)


@given(PAYLOADS, st.none() | U64, st.none() | U64)
def test_events(payloads: list[bytes], subscription: int | None, offset: int | None) -> None:
    batch = EventBatch(payloads, subscription, offset)
    (frame,) = StreamFrameReader().feed(write_events(batch))
    wanted = (Flags.SHARED_EVENTS if subscription is None else Flags.EVENTS) | (0 if offset is None else Flags.OFFSETS)
    assert (frame.flags, read_events(frame.flags, frame.payload)) == (wanted, batch)


@given(U64, st.booleans(), st.text(st.characters(exclude_categories=["Cs"]), max_size=400))
def test_ack(request_id: int, error: bool, message: str) -> None:
    (frame,) = StreamFrameReader().feed(write_ack(PublishAck(request_id, error, message)))
    found = read_ack(frame.payload)
    assert found[:2] == (request_id, error)
    assert message.startswith(found.message)
    assert len(found.message.encode()) <= MAX_MESSAGE
    assert found.message == message or len(found.message.encode()) > MAX_MESSAGE - 4


@given(st.binary(max_size=100), st.integers(0, 0x3F))
def test_no_bytes_break_a_reader(data: bytes, flags: int) -> None:
    for read in (read_publish, read_acknowledged, read_ack, lambda data: read_events(flags, data)):
        try:
            read(data)
        except BadLayout:
            continue


@pytest.mark.parametrize("count", [1, 2**32 - 1])
def test_a_count_beyond_the_payload_allocates_nothing(count: int) -> None:
    with pytest.raises(BadLayout, match="the count is larger than the payload"):
        read_publish(b"\0\0\0\0\0\0" + struct.pack(">I", count) + b"abc")


def test_a_name_that_is_not_utf_8() -> None:
    with pytest.raises(BadLayout, match="a name is not UTF-8"):
        read_publish(b"\0\1\xff\0\0\0\0\0\0\0\0")


@pytest.mark.parametrize("mode", [0, 3])
def test_unknown_mode(mode: int) -> None:
    with pytest.raises(BadLayout, match=f"unknown mode {mode}"):
        read_acknowledged(bytes(8) + bytes([mode]))


def test_unknown_status() -> None:
    with pytest.raises(BadLayout, match="unknown status 2"):
        read_ack(b"\2" + bytes(10))


def test_a_name_of_more_than_64_kib_is_not_written() -> None:
    with pytest.raises(ValueError, match="is too long"):
        write_publish(PublishBatch("t", "n", "s" * 65536, []))
