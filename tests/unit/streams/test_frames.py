"""Frames are cut from bytes that arrive in any pieces; what cannot be a frame ends the stream with its answer."""

from __future__ import annotations

import struct
from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventd.streams.frames import MAX_PAYLOAD, BadFrame, Frame, StreamFrameReader, encode_frame

FRAMES = st.lists(st.tuples(st.integers(0, 0xFFFF), st.binary(max_size=60)), max_size=6)


@given(FRAMES, st.lists(st.integers(0, 400), max_size=8))
def test_frames_arrive_in_any_pieces(frames: list[tuple[int, bytes]], cuts: list[int]) -> None:
    data = b"".join(encode_frame(flags, payload) for flags, payload in frames)
    at = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    reader = StreamFrameReader()
    found = [frame for start, end in pairwise(at) for frame in reader.feed(data[start:end])]
    assert found == [Frame(*frame) for frame in frames]
    assert (reader.held, reader.is_inside_payload) == (0, False)


@given(st.binary(max_size=200))
def test_garbage_is_refused_or_waits_for_more(data: bytes) -> None:
    reader = StreamFrameReader()
    with suppress(BadFrame):
        list(reader.feed(data))
    assert reader.held <= len(data)


@pytest.mark.parametrize(
    ("header", "answer"),
    [
        (b"FLX2" + struct.pack(">HHI", 1, 0, 0), "invalid magic number"),
        (b"FLX1" + struct.pack(">HHI", 2, 0, 0), "unsupported version 2"),
        (b"FLX1" + struct.pack(">HHI", 1, 0, MAX_PAYLOAD + 1), "frame too large"),
    ],
)
def test_wrong_header(header: bytes, answer: str) -> None:
    before = encode_frame(0, b"{}")
    frames = StreamFrameReader().feed(before + header)
    assert next(frames) == Frame(0, b"{}")
    with pytest.raises(BadFrame, match=answer):
        next(frames)


def test_an_announced_length_takes_no_memory() -> None:
    reader = StreamFrameReader()
    assert list(reader.feed(b"FLX1" + struct.pack(">HHI", 1, 0, MAX_PAYLOAD) + b"abc")) == []
    assert (reader.held, reader.is_inside_payload) == (15, True)


def test_the_limit_may_change_between_frames() -> None:
    reader = StreamFrameReader(most=8)
    assert list(reader.feed(encode_frame(0, b"12345678"))) == [Frame(0, b"12345678")]
    with pytest.raises(BadFrame, match="frame too large"):
        list(reader.feed(encode_frame(0, b"123456789")))
    reader = StreamFrameReader(most=8)
    reader.most = 9
    assert list(reader.feed(encode_frame(0, b"123456789"))) == [Frame(0, b"123456789")]


def test_the_end_within_a_header_is_clean() -> None:
    reader = StreamFrameReader()
    assert list(reader.feed(b"FLX1\0\1\0\0\0\0\0")) == []
    assert not reader.is_inside_payload


def test_a_payload_over_the_limit_is_not_written() -> None:
    with pytest.raises(ValueError, match="is over 16777216"):
        encode_frame(0, bytes(MAX_PAYLOAD + 1))
