"""Frames of WebSocket clients have to be masked, in whatever pieces they arrive."""

from __future__ import annotations

import pytest

from eventd.api.listener.masking import _BROKEN, MaskedFrames


class Reader:
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.taken: list[bytes] = []
        self.size = 0

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        self.taken.append(data)
        self.size += len(data)
        return False, b""

    def feed_eof(self) -> None:
        self.taken.append(b"eof")


def frame(size: int, *, masked: bool = True) -> bytes:
    bit = 0x80 if masked else 0
    if size < 126:
        head = bytes([0x81, bit | size])
    elif size < 1 << 16:
        head = bytes([0x81, bit | 126]) + size.to_bytes(2, "big")
    else:
        head = bytes([0x81, bit | 127]) + size.to_bytes(8, "big")
    # A payload in which every byte would begin an unmasked frame.
    return head + (b"\x01\x02\x03\x04" if masked else b"") + b"\x00" * size


MASKED = b"".join(map(frame, (0, 1, 125, 126, 300, 70_000, 0, 0, 5)))


@pytest.mark.parametrize("piece", [1, 2, 3, 7, 13, 1000, len(MASKED)])
def test_masked_frames_are_handed_on_as_they_come(piece: int) -> None:
    reader = Reader()
    frames = MaskedFrames(reader)
    kept_back = 0
    for at in range(0, len(MASKED), piece):
        assert frames.feed_data(MASKED[at : at + piece]) == (False, b"")
        kept_back = max(kept_back, min(at + piece, len(MASKED)) - reader.size)
    frames.feed_eof()
    assert b"".join(reader.taken) == MASKED + b"eof"
    assert kept_back < 10, "no more than a part of a frame's head"


@pytest.mark.parametrize("size", [0, 5, 200, 70_000])
@pytest.mark.parametrize("piece", [1, 5, 10, 1 << 20])
def test_nothing_of_a_frame_that_is_not_masked_or_follows_it_is_read(size: int, piece: int) -> None:
    reader = Reader()
    frames = MaskedFrames(reader)
    text = frame(3) + frame(size, masked=False) + frame(3)
    for at in range(0, len(text), piece):
        frames.feed_data(text[at : at + piece])
    assert b"".join(reader.taken) == frame(3) + _BROKEN
