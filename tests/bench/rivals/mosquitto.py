"""Mosquitto: A has a bridge to B, where a client with a persistent session receives the messages. QoS 1 throughout."""

from __future__ import annotations

import select
import time
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import cycle
from pathlib import Path

from eventd.bench.children import free_ports
from eventd.bench.pouring import LOOK_SECONDS
from tests.bench.rivals.contest import BATCH, NotMeasured, Pair, Rival
from tests.bench.rivals.servers import Server, connect, first_line, program, split

PACKAGE = "mosquitto"
TOPIC = b"ev"
CONNECT, PUBLISH, SUBSCRIBE = 0x10, 0x32, 0x82
COMMON = """
listener {port} 127.0.0.1
allow_anonymous true
user root
persistence true
persistence_location {folder}/
max_queued_messages 0
max_inflight_messages 256
set_tcp_nodelay true
log_dest stderr
"""
BRIDGE = """
connection b
address 127.0.0.1:{port}
topic ev out 1
cleansession false
restart_timeout 1
notifications false
bridge_protocol_version mqttv311
"""


def text(data: bytes) -> bytes:
    """Encode a text with its length."""
    return len(data).to_bytes(2, "big") + data


def packet(kind: int, body: bytes) -> bytes:
    """Encode a packet with its kind and length."""
    length, left = b"", len(body)
    while True:
        left, seven = divmod(left, 128)
        length += bytes([seven | (128 if left else 0)])
        if not left:
            return bytes([kind]) + length + body


class Wire:
    """MQTT 3.1.1: messages are received and acknowledged in batches."""

    def __init__(self, port: int, client: bytes, *, clean: bool) -> None:
        self._link = connect(port)
        self._buffer = b""
        self.heard: deque[bytes] = deque()
        self.acknowledged = 0
        self.send(packet(CONNECT, text(b"MQTT") + bytes([4, 2 if clean else 0, 0, 0]) + text(client)))
        self.greeted = self.subscribed = False
        self._until("greeted")

    def send(self, data: bytes) -> None:
        self._link.sendall(data)

    def subscribe(self) -> None:
        self.send(packet(SUBSCRIBE, b"\0\1" + text(TOPIC) + b"\1"))
        self._until("subscribed")

    def _until(self, fact: str) -> None:
        while not getattr(self, fact):
            self.take(60)

    def take(self, seconds: float) -> None:
        """Receive what has arrived, or arrives within that time."""
        if not select.select([self._link], [], [], seconds)[0]:
            return
        data = self._link.recv(1 << 18)
        if not data:
            raise NotMeasured("Mosquitto closed the connection")
        data, at, receipts = self._buffer + data, 0, []
        while (place := _place(data, at)) and place[1] <= len(data):
            kind, (begin, end) = data[at] >> 4, place
            if kind == 3:
                begin += 2 + int.from_bytes(data[begin : begin + 2], "big")
                receipts.append(b"\x40\2" + data[begin : begin + 2])
                self.heard.append(data[begin + 2 : end])
            self.acknowledged += kind == 4
            self.greeted |= kind == 2
            self.subscribed |= kind == 9
            at = end
        self._buffer = data[at:]
        if receipts:
            self.send(b"".join(receipts))


def _place(data: bytes, at: int) -> tuple[int, int] | None:
    """Return the start and end of the body of the packet that begins here; None while it is incomplete."""
    length = 0
    for shift in range(4):
        if at + 1 + shift >= len(data):
            return None
        seven = data[at + 1 + shift]
        length |= (seven & 127) << 7 * shift
        if seven < 128:
            return at + 2 + shift, at + 2 + shift + length
    raise NotMeasured("Mosquitto sent no MQTT")


class MosquittoPair(Pair):
    """B knows its client's session before it goes down, and queues for it what the bridge delivers."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        port_a, self._port_b = free_ports(2)
        ports, more = {"a": port_a, "b": self._port_b}, {"a": BRIDGE.format(port=self._port_b), "b": ""}
        for name, port in ports.items():
            (folder / name).mkdir()
            told = COMMON.format(port=port, folder=folder / name) + more[name]
            (folder / f"{name}.conf").write_text(told)
        self.a, self.b = (Server(stack, name, folder, [program(PACKAGE), "-c", f"{name}.conf"]) for name in ports)
        self.b.start(self._port_b)
        Wire(self._port_b, b"observer", clean=False).subscribe()
        self.b.stop()
        self.a.start(port_a)
        self._at_a = Wire(port_a, b"publisher", clean=True)
        self._numbers = cycle(range(1, 65_536))

    def prepare(self, bodies: Sequence[bytes]) -> list[bytes]:
        head = text(TOPIC)
        numbered = zip(bodies, self._numbers, strict=False)
        return split([packet(PUBLISH, head + number.to_bytes(2, "big") + body) for body, number in numbered], BATCH)

    def send(self, lot: bytes, count: int) -> None:
        self._at_a.send(lot)

    def take_answers(self, count: int) -> None:
        while self._at_a.acknowledged < count:
            self._at_a.take(60)
        self._at_a.acknowledged -= count

    def join(self) -> None:
        self.b.start(self._port_b)
        self._observer = Wire(self._port_b, b"observer", clean=False)

    def count(self) -> int:
        return len(self._observer.heard)

    def rest(self) -> None:
        until = time.perf_counter() + LOOK_SECONDS
        while (left := until - time.perf_counter()) > 0:
            self._observer.take(left)

    def read(self, count: int) -> list[bytes]:
        return list(self._observer.heard)

    def listen(self) -> None:
        self._observer.heard.clear()

    def hear(self) -> bytes:
        while not self._observer.heard:
            self._observer.take(60)
        return self._observer.heard.popleft()


class Mosquitto(Rival):
    """The contestant: a bridge."""

    def __init__(self) -> None:
        durability = "in memory; written to the disk every 30 minutes and at the end"
        settings = "QoS 1, `persistence true`, `max_inflight_messages 256`, `max_queued_messages 0`"
        super().__init__("mosquitto", "Mosquitto bridge", durability, settings, MosquittoPair)

    def version(self) -> str:
        found = program(PACKAGE)
        if not found:
            raise NotMeasured(f"{PACKAGE} is not installed")
        return first_line([found, "-h"]).rpartition(" ")[2]
