"""A subset of AMQP 0-9-1: publish with confirms, inspect a queue, consume."""

from __future__ import annotations

import struct
from collections import deque

from tests.bench.rivals.contest import NotMeasured
from tests.bench.rivals.servers import connect

METHOD, HEADER, BODY = 1, 2, 3
START, TUNE, OPEN_OK, CLOSE = (10, 10), (10, 30), (10, 41), (10, 50)
CHANNEL_OK, CHANNEL_CLOSE, CONFIRM_OK = (20, 11), (20, 40), (85, 11)
DECLARE_OK, CONSUME_OK, DELIVER, ACK, NACK = (50, 11), (60, 21), (60, 60), (60, 80), (60, 120)
KIND = {"x-queue-type": "quorum"}
PERSISTENT = b"\x10\0\2"
"""The properties of a message: of all fields only its delivery mode."""


def short(text: str) -> bytes:
    """Encode a text with its length."""
    return bytes([len(text)]) + text.encode()


def long(data: bytes) -> bytes:
    """Encode bytes with their length."""
    return struct.pack(">I", len(data)) + data


def table(told: dict[str, str]) -> bytes:
    """Encode names and texts."""
    return long(b"".join(short(name) + b"S" + long(value.encode()) for name, value in told.items()))


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    """Encode one frame."""
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + b"\xce"


def method(channel: int, number: tuple[int, int], rest: bytes = b"") -> bytes:
    """Encode one call."""
    return frame(METHOD, channel, struct.pack(">HH", *number) + rest)


def publish(queue: str, body: bytes) -> bytes:
    """Encode a durable message to a queue."""
    head = struct.pack(">HHQ", 60, 0, len(body)) + PERSISTENT
    call = method(1, (60, 40), b"\0\0" + short("") + short(queue) + b"\0")
    return call + frame(HEADER, 1, head) + frame(BODY, 1, body)


class Wire:
    """A connection with one channel in confirm mode."""

    def __init__(self, port: int) -> None:
        self._link = connect(port)
        self._file = self._link.makefile("rb")
        self._bodies: deque[bytes] = deque()
        self.confirmed = 0
        self._published = 0
        self._open: set[int] = set()
        self.send(b"AMQP\0\0\x09\x01")
        self._until(START)
        self.send(method(0, (10, 11), table({}) + short("PLAIN") + long(b"\0guest\0guest") + short("en_US")))
        most, largest, _ = struct.unpack(">HIH", self._until(TUNE))
        self.send(method(0, (10, 31), struct.pack(">HIH", most, largest, 0)))
        self.send(method(0, (10, 40), short("/") + short("") + b"\0"))
        self._until(OPEN_OK)
        self.send(method(1, (20, 10), short("")))
        self._until(CHANNEL_OK)
        self.send(method(1, (85, 10), b"\0"))
        self._until(CONFIRM_OK)

    def send(self, data: bytes, messages: int = 0) -> None:
        """Send encoded bytes that contain this number of messages."""
        self._open.update(range(self._published + 1, self._published + messages + 1))
        self._published += messages
        self._link.sendall(data)

    def declare(self, queue: str, *, passive: bool = False) -> int:
        """Create a quorum queue, or inspect it; return the number of ready messages."""
        self.send(method(1, (50, 10), b"\0\0" + short(queue) + bytes([3 if passive else 2]) + table(KIND)))
        told = self._until(DECLARE_OK)
        return int(struct.unpack_from(">I", told, 1 + told[0])[0])

    def consume(self, queue: str) -> None:
        """Consume all present and future messages of a queue."""
        self.send(method(1, (60, 20), b"\0\0" + short(queue) + short("reader") + b"\2" + table({})))
        self._until(CONSUME_OK)

    def hear(self) -> bytes:
        """Return the next consumed message."""
        while not self._bodies:
            self.take()
        return self._bodies.popleft()

    def _until(self, number: tuple[int, int]) -> bytes:
        while True:
            called, rest = self.take()
            if called == number:
                return rest

    def take(self) -> tuple[tuple[int, int], bytes]:
        """Return the next frame: its method and arguments. Bodies and confirms are recorded."""
        head = self._file.read(7)
        if len(head) < 7:
            raise NotMeasured("RabbitMQ closed the connection")
        kind, _, size = struct.unpack(">BHI", head)
        payload = self._file.read(size + 1)[:-1]
        if kind == BODY:
            self._bodies.append(payload)
        if kind != METHOD:
            return (0, 0), payload
        number, rest = struct.unpack_from(">HH", payload), payload[4:]
        if number == ACK:
            self._confirm(*struct.unpack(">QB", rest))
        if number in (CLOSE, CHANNEL_CLOSE, NACK):
            words = rest[3 : 3 + rest[2]].decode(errors="replace") if number != NACK else "no to a message"
            raise NotMeasured(f"RabbitMQ said {words}")
        return (number[0], number[1]), rest

    def _confirm(self, number: int, multiple: int) -> None:
        done = {one for one in self._open if one <= number} if multiple else {number}
        self._open -= done
        self.confirmed += len(done)
