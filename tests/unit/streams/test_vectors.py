"""The test data of the protocol's own implementation: every frame is read, and written again byte for byte."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from eventd.streams.frames import Frame, StreamFrameReader, encode_frame
from eventd.streams.layouts import PublishAck, read_ack, read_acknowledged, read_publish, write_ack, write_publish
from eventd.streams.messages import read_message, write_message

FOLDER = Path(__file__).parents[2] / "vectors" / "felix"
VECTORS = sorted(path.stem for path in FOLDER.glob("*.json"))


def read(name: str) -> tuple[dict[str, Any], bytes, Frame]:
    known = json.loads((FOLDER / f"{name}.json").read_text())
    data = bytes.fromhex((FOLDER / f"{name}.hex").read_text().strip())
    (frame,) = StreamFrameReader().feed(data)
    return known, data, frame


def test_vectors_are_there() -> None:
    assert len(VECTORS) == 13


@pytest.mark.parametrize("name", VECTORS)
def test_frame(name: str) -> None:
    known, data, frame = read(name)
    assert data.hex() == known["frame_hex"]
    assert frame == Frame(known.get("flags", 0), bytes.fromhex(known["payload_hex"]))
    assert encode_frame(frame.flags, frame.payload) == data


@pytest.mark.parametrize("name", [name for name in VECTORS if not name.startswith("binary_")])
def test_message(name: str) -> None:
    known, _, frame = read(name)
    message = read_message(frame.payload)
    assert write_message(message) == frame.payload == known["payload_json"].encode()


def test_acknowledged_publish() -> None:
    known, data, frame = read("binary_publish_acked")
    head = read_acknowledged(frame.payload)
    batch = read_publish(head.body)
    assert head.request_id == known["request_id"]
    assert batch == ("t1", "default", "demo", [b"hello"])
    # It is a batch of one that its writer calls a batch: the mode is another than ours, and all else is the same.
    ours = write_publish(batch, known["request_id"])
    assert ours[:20] + b"\x02" + ours[21:] == data


@pytest.mark.parametrize("name", ["binary_publish_ack_ok", "binary_publish_ack_error"])
def test_publish_ack(name: str) -> None:
    known, data, frame = read(name)
    ack = read_ack(frame.payload)
    assert ack == PublishAck(known["request_id"], known["status"] == "error", known.get("message") or "")
    assert write_ack(ack) == data
