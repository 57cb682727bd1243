"""Frames of streams, written and read byte by byte, without the code of the node: so that it does not prove itself."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

HEADER = struct.Struct(">4sHHI")
ALL_FLAGS = 0x003F


class RawFrame(NamedTuple):
    """A frame as it came."""

    flags: int
    payload: bytes


class WireEvents(NamedTuple):
    """A batch of events; `base` is None where no offsets are told."""

    base: int | None
    payloads: list[bytes]

    @property
    def offsets(self) -> list[int]:
        """Return the offset of each payload."""
        assert self.base is not None
        return [*range(self.base, self.base + len(self.payloads))]


class WireAck(NamedTuple):
    """The answer to an acknowledged binary publish."""

    status: int
    request_id: int
    message: str


def frame(flags: int, payload: bytes, *, magic: bytes = b"FLX1", version: int = 1, length: int | None = None) -> bytes:
    """Return a frame; `length`: what its header says, if it is to lie."""
    return HEADER.pack(magic, version, flags, len(payload) if length is None else length) + payload


def message(kind: str, **members: Any) -> bytes:
    """Return a frame with a JSON message."""
    return frame(0, json.dumps({"type": kind, **members}, ensure_ascii=False, separators=(",", ":")).encode())


def name(text: str | bytes) -> bytes:
    """Return a name with its length."""
    raw = text.encode() if isinstance(text, str) else text
    return struct.pack(">H", len(raw)) + raw


def body(where: str, payloads: Sequence[bytes], *, count: int | None = None) -> bytes:
    """Return the layout of a publish to `TENANT/NAMESPACE/STREAM`; `count`: what it says, if it is to lie."""
    listed = b"".join(struct.pack(">I", len(each)) + each for each in payloads)
    return b"".join(map(name, where.split("/"))) + struct.pack(">I", len(payloads) if count is None else count) + listed


def publish(where: str, *payloads: bytes) -> bytes:
    """Return a publish without acknowledgement."""
    return frame(0x0001, body(where, payloads))


def publish_acked(id: int, where: str, *payloads: bytes, mode: int = 2) -> bytes:
    """Return a publish with one."""
    return frame(0x0009, struct.pack(">QB", id, mode) + body(where, payloads))


def publish_json(where: str, *payloads: bytes, **members: Any) -> bytes:
    """Return a JSON publish: of one payload, or a batch."""
    texts = [b64(each) for each in payloads]
    data = {"payload": texts[0]} if len(texts) == 1 else {"payloads": texts}
    return message("publish" if len(texts) == 1 else "publish_batch", **scope(where), **data, **members)


def scope(where: str, last: str = "stream") -> dict[str, str]:
    """Return the members that name a stream, or a cache."""
    return dict(zip(("tenant_id", "namespace", last), where.split("/"), strict=True))


def b64(data: bytes) -> str:
    """Return bytes as text."""
    return base64.b64encode(data).decode()


def read_json(payload: bytes) -> dict[str, Any]:
    """Return a message, which must be compact JSON with its type first."""
    found: dict[str, Any] = json.loads(payload)
    assert next(iter(found)) == "type", payload
    assert payload == json.dumps(found, ensure_ascii=False, separators=(",", ":")).encode(), payload
    return found


def read_ack(each: RawFrame) -> WireAck:
    """Return the answer to a binary publish."""
    assert each.flags == 0x0010, each
    status, id, length = struct.unpack_from(">BQH", each.payload)
    text = each.payload[11:]
    assert len(text) == length <= 512, each
    return WireAck(status, id, text.decode())


def read_events(each: RawFrame) -> WireEvents:
    """Return a batch of events in the form that several subscribers share; others are not expected."""
    assert each.flags in (0x0004, 0x0024), each
    at = 0
    base = None
    if each.flags & 0x0020:
        (base,), at = struct.unpack_from(">Q", each.payload), 8
    (count,) = struct.unpack_from(">I", each.payload, at)
    at += 4
    payloads = []
    for _ in range(count):
        (size,) = struct.unpack_from(">I", each.payload, at)
        payloads.append(each.payload[at + 4 : at + 4 + size])
        at += 4 + size
    assert at == len(each.payload), "bytes after the last event"
    return WireEvents(base, payloads)
