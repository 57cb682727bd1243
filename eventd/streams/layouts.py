"""The binary layouts of payloads: batches of records to publish, their acknowledgements, and batches of events.

All numbers are big-endian; `u16 n  name[n]` is a name with its length in bytes. A payload may be empty.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from eventd.streams.frames import Flags, encode_frame

MAX_MESSAGE: Final = 512
"""Maximum bytes of the message of an acknowledgement."""
_U16, _U32, _U64 = struct.Struct(">H"), struct.Struct(">I"), struct.Struct(">Q")
_ACKNOWLEDGED: Final = struct.Struct(">QB")
ACKNOWLEDGED_BYTES: Final = _ACKNOWLEDGED.size
"""The bytes of an acknowledged publish before its names."""
_ACK: Final = struct.Struct(">BQ")
_PER_MESSAGE, _PER_BATCH = 1, 2


class BadLayout(ValueError):
    """A payload that does not have the layout that its flags say."""


class PublishBatch(NamedTuple):
    """Records for one stream: `u16 tenant  u16 namespace  u16 stream  u32 count  count × (u32 n  payload[n])`."""

    tenant: str
    namespace: str
    stream: str
    payloads: Sequence[bytes]


class AcknowledgedPublish(NamedTuple):
    """A batch that is answered: `u64 request_id  u8 mode`, then a `PublishBatch`, still encoded as `body`.

    The id comes first, so a wrong body can be answered, too.
    """

    request_id: int
    body: memoryview


class PublishAck(NamedTuple):
    """The answer to an acknowledged publish: `u8 status u64 request_id u16 n message[n]`.

    `error`: nothing was written.
    """

    request_id: int
    error: bool
    message: str = ""


class EventBatch(NamedTuple):
    """Consecutive events: `[u64 subscription_id]  [u64 base_offset]  u32 count  count × (u32 n  payload[n])`.

    Event `i` has the offset `base_offset + i`. The flags say which of the first two fields are present.
    """

    payloads: Sequence[bytes]
    subscription_id: int | None = None
    base_offset: int | None = None


# --- reading --------------------------------------------------------------------------------------------------------


class _Cursor:
    """Reads a payload from its beginning. Methods raise `BadLayout` where it is too short."""

    def __init__(self, data: bytes | memoryview) -> None:
        self._data = data
        self._at = 0

    def number(self, form: struct.Struct) -> int:
        return int(form.unpack(self.take(form.size))[0])

    def take(self, size: int) -> bytes | memoryview:
        found = self._data[self._at : self._at + size]
        if len(found) < size:
            raise BadLayout("the payload ends too early")
        self._at += size
        return found

    def text(self) -> str:
        try:
            return str(self.take(self.number(_U16)), "utf-8")
        except UnicodeDecodeError:
            raise BadLayout("a name is not UTF-8") from None

    def payloads(self) -> list[bytes]:
        """Read a count and that many payloads; each takes at least the four bytes of its length."""
        return read_publish_records(bytes(self._data), self._at)


_MANY: Final = 1024


@lru_cache(maxsize=64)  # the records of one program often have one size
def _alike(count: int, size: int) -> struct.Struct:
    return struct.Struct(">" + f"I{size}s" * count)


def _read_alike(data: bytes, at: int, count: int) -> list[bytes] | None:
    """Return the payloads from an index on, if all have the size of the first one; else None.

    This is faster than reading them one by one.
    """
    (size,) = _U32.unpack_from(data, at)
    if len(data) - at != count * (_U32.size + size):
        return None
    fields = _alike(count, size).unpack_from(data, at)
    return [*fields[1::2]] if fields[::2].count(size) == count else None


def read_publish_records(data: bytes, at: int) -> list[bytes]:
    """Decode, from an index on, a count and that many payloads. Raises `BadLayout`."""
    unpack, width, found = _U32.unpack_from, _U32.size, []
    try:
        (count,) = unpack(data, at)
        at += width
        if count > (len(data) - at) // width:
            raise BadLayout("the count is larger than the payload")
        if 1 < count <= _MANY and (alike := _read_alike(data, at, count)) is not None:
            return alike
        for _ in range(count):
            (size,) = unpack(data, at)
            at += width
            found.append(data[at : at + size])
            at += size
    except struct.error:
        raise BadLayout("the payload ends too early") from None
    if at > len(data):  # a slice is silently shorter
        raise BadLayout("the payload ends too early")
    return found


class PublishHead(NamedTuple):
    """The names of a publish, still encoded, and the index in the payload at which its records begin."""

    names: bytes
    at: int


def read_publish_head(payload: bytes, at: int = 0) -> PublishHead:
    """Find the names of a publish that begins at an index. Raises `BadLayout`."""
    end = at
    try:
        for _ in range(3):
            end += _U16.size + (payload[end] << 8 | payload[end + 1])
    except IndexError:
        raise BadLayout("the payload ends too early") from None
    return PublishHead(payload[at:end], end)


def read_publish_names(names: bytes) -> tuple[str, str, str]:
    """Decode tenant, namespace and stream. Raises `BadLayout`."""
    cursor = _Cursor(names)
    return cursor.text(), cursor.text(), cursor.text()


def read_publish_count(payload: bytes, at: int) -> int:
    """Decode the number of records of a publish, which begin at an index. Raises `BadLayout`."""
    try:
        return int(_U32.unpack_from(payload, at)[0])
    except struct.error:
        raise BadLayout("the payload ends too early") from None


def read_publish(body: bytes | memoryview) -> PublishBatch:
    """Decode the payload of a publish; bytes after its last record are ignored. Raises `BadLayout`."""
    data = bytes(body)
    head = read_publish_head(data)
    return PublishBatch(*read_publish_names(head.names), read_publish_records(data, head.at))


def read_request_id(payload: bytes) -> int:
    """Decode the id of an acknowledged publish. Raises `BadLayout`, also for an unknown mode."""
    if len(payload) < ACKNOWLEDGED_BYTES:
        raise BadLayout("the payload ends too early")
    request_id, mode = _ACKNOWLEDGED.unpack_from(payload)
    if mode not in (_PER_MESSAGE, _PER_BATCH):
        raise BadLayout(f"unknown mode {mode}")
    return int(request_id)


def read_acknowledged(payload: bytes) -> AcknowledgedPublish:
    """Decode the head of an acknowledged publish. Raises `BadLayout`, also for an unknown mode."""
    return AcknowledgedPublish(read_request_id(payload), memoryview(payload)[ACKNOWLEDGED_BYTES:])


def read_ack(payload: bytes) -> PublishAck:
    """Decode an acknowledgement. Raises `BadLayout`."""
    cursor = _Cursor(payload)
    status, request_id = _ACK.unpack(cursor.take(_ACK.size))
    if status > 1:
        raise BadLayout(f"unknown status {status}")
    return PublishAck(request_id, bool(status), cursor.text())


def read_events(flags: int, payload: bytes) -> EventBatch:
    """Decode a batch of events. Raises `BadLayout`."""
    cursor = _Cursor(payload)
    subscription_id = cursor.number(_U64) if flags & Flags.EVENTS else None
    base_offset = cursor.number(_U64) if flags & Flags.OFFSETS else None
    return EventBatch(cursor.payloads(), subscription_id, base_offset)


# --- writing --------------------------------------------------------------------------------------------------------


def write_publish(batch: PublishBatch, request_id: int | None = None) -> bytes:
    """Return the frame of a publish; with a `request_id` it is acknowledged. Raises ValueError if it is too large."""
    names = b"".join(_name(name) for name in (batch.tenant, batch.namespace, batch.stream))
    body = names + _listed(batch.payloads)
    if request_id is None:
        return encode_frame(Flags.PUBLISH, body)
    mode = _PER_MESSAGE if len(batch.payloads) == 1 else _PER_BATCH
    return encode_frame(Flags.PUBLISH | Flags.ACKNOWLEDGED, _ACKNOWLEDGED.pack(request_id, mode) + body)


def write_ack(ack: PublishAck) -> bytes:
    """Return the frame of an acknowledgement; a long message is cut at a character."""
    message = ack.message.encode()
    if len(message) > MAX_MESSAGE:
        message = message[:MAX_MESSAGE].decode(errors="ignore").encode()
    return encode_frame(Flags.PUBLISH_ACK, _ACK.pack(ack.error, ack.request_id) + _U16.pack(len(message)) + message)


def write_events(batch: EventBatch) -> bytes:
    """Return the frame of a batch of events.

    Without a subscription id it has the form that several subscriptions can share.
    """
    flags, head = (
        (Flags.SHARED_EVENTS, b"")
        if batch.subscription_id is None
        else (Flags.EVENTS, _U64.pack(batch.subscription_id))
    )
    if batch.base_offset is not None:
        flags, head = flags | Flags.OFFSETS, head + _U64.pack(batch.base_offset)
    return encode_frame(flags, head + _listed(batch.payloads))


def _name(text: str) -> bytes:
    name = text.encode()
    if len(name) > 0xFFFF:
        raise ValueError(f"a name of {len(name)} bytes is too long")
    return _U16.pack(len(name)) + name


def _listed(payloads: Sequence[bytes]) -> bytes:
    parts = [_U32.pack(len(payloads))]
    for payload in payloads:
        parts += (_U32.pack(len(payload)), payload)
    return b"".join(parts)
