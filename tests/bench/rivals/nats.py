"""NATS JetStream: a stream at A, and at B its mirror, or a stream that sources it, over a leaf node."""

from __future__ import annotations

import json
import secrets
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from eventd.bench.children import free_ports
from tests.bench.rivals.clients import through_nats_py
from tests.bench.rivals.contest import BATCH, NotMeasured, Pair, PythonClient, Rival
from tests.bench.rivals.servers import Server, connect, first_line, program, split

PACKAGE = "nats-server"
READ = 1000
STREAM, SUBJECT = "EV", "ev"
CLIENT = PythonClient("nats-py", "`publish_async`", partial(through_nats_py, SUBJECT))


class Wire:
    """The text protocol of NATS, as far as it is needed."""

    def __init__(self, port: int) -> None:
        self._link = connect(port)
        self.inbox = f"_INBOX.{secrets.token_hex(8)}"  # replies travel over the leaf to every subscriber of the subject
        self._file = self._link.makefile("rb")
        self._file.readline()  # INFO
        self.send(
            b'CONNECT {"verbose":false,"headers":true,"no_responders":true}\r\nSUB %s 1\r\n' % self.inbox.encode()
        )

    def send(self, data: bytes) -> None:
        self._link.sendall(data)

    def subscribe(self, subject: str) -> None:
        self.send(b"SUB %s 2\r\n" % subject.encode())

    def take(self) -> bytes:
        """Return the body of the next message."""
        while True:
            line = self._file.readline()
            if line.startswith(b"MSG "):
                return self._file.read(int(line.rpartition(b" ")[2]) + 2)[:-2]
            if line.startswith(b"HMSG "):
                head, whole = map(int, line.split()[-2:])
                return self._file.read(whole + 2)[head:-2]
            if line.startswith(b"PING"):
                self.send(b"PONG\r\n")
            if not line or line.startswith(b"-ERR"):
                raise NotMeasured(f"NATS said {line.decode().strip() or 'nothing'}")

    def ask(self, subject: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """Send one request to JetStream."""
        data = json.dumps(body).encode() if body else b""
        self.send(b"PUB $JS.API.%s %s %d\r\n%s\r\n" % (subject.encode(), self.inbox.encode(), len(data), data))
        told = json.loads(self.take() or b'{"error":{"description":"nobody answers"}}')
        if "error" in told:
            raise NotMeasured(f"JetStream refused {subject}: {told['error']['description']}")
        return dict(told)

    def read(self, count: int) -> list[bytes]:
        """Return the first bodies of the stream."""
        reader = {"durable_name": "reader", "ack_policy": "none", "deliver_policy": "all"}
        self.ask(f"CONSUMER.DURABLE.CREATE.{STREAM}.reader", {"stream_name": STREAM, "config": reader})
        bodies: list[bytes] = []
        while len(bodies) < count:
            want = min(READ, count - len(bodies))
            asked = json.dumps({"batch": want}).encode()
            subject = f"$JS.API.CONSUMER.MSG.NEXT.{STREAM}.reader {self.inbox}"
            self.send(b"PUB %s %d\r\n%s\r\n" % (subject.encode(), len(asked), asked))
            bodies += [self.take() for _ in range(want)]
        return bodies


class NatsPair(Pair):
    """Two servers, B as a leaf of A, each with JetStream in a domain of its own."""

    def __init__(self, kind: str, sync: str, stack: ExitStack, folder: Path) -> None:
        self._kind, self._folder = kind, folder
        self.port, leaf, self._port_b = free_ports(3)
        more = {
            "a": f'leafnodes {{ listen: "127.0.0.1:{leaf}" }}',
            "b": f'leafnodes {{ reconnect: 1, remotes: [ {{ url: "nats://127.0.0.1:{leaf}" }} ] }}',
        }
        ports = {"a": self.port, "b": self._port_b}
        for name, port in ports.items():
            (folder / f"{name}.conf").write_text(config(name, port, folder, sync) + more[name] + "\n")
        servers = [Server(stack, name, folder, [program(PACKAGE), "-c", f"{name}.conf"]) for name in ports]
        self.a, self.b = servers
        self.a.start(self.port)
        self._at_a = Wire(self.port)
        self._at_a.ask(f"STREAM.CREATE.{STREAM}", {"name": STREAM, "subjects": [SUBJECT], "storage": "file"})

    def prepare(self, bodies: Sequence[bytes]) -> list[bytes]:
        head = f"PUB {SUBJECT} {self._at_a.inbox} ".encode()
        return split([b"%s%d\r\n%s\r\n" % (head, len(body), body) for body in bodies], BATCH)

    def send(self, lot: bytes, count: int) -> None:
        self._at_a.send(lot)

    def take_answers(self, count: int) -> None:
        for _ in range(count):
            if b'"error"' in (told := self._at_a.take()):
                raise NotMeasured(f"JetStream refused a message: {told.decode()}")

    def join(self) -> None:
        self.b.start(self._port_b)
        self._at_b = Wire(self._port_b)
        time.sleep(1.0)  # the leaf connects before B is configured to copy, because otherwise B retries much later
        origin = {"name": STREAM, "external": {"api": "$JS.a.API", "deliver": ""}}
        way = {"mirror": origin} if self._kind == "mirror" else {"sources": [origin]}
        self._at_b.ask(f"STREAM.CREATE.{STREAM}", {"name": STREAM, "storage": "file", **way})

    def count(self) -> int:
        return int(self._at_b.ask(f"STREAM.INFO.{STREAM}")["state"]["messages"])

    def read(self, count: int) -> list[bytes]:
        return self._at_b.read(count)

    def read_at_a(self, count: int) -> list[bytes]:
        return self._at_a.read(count)

    def listen(self) -> None:
        self._ears = Wire(self._port_b)
        self._ears.subscribe("heard")
        new = {"deliver_subject": "heard", "ack_policy": "none", "deliver_policy": "new"}
        self._ears.ask(f"CONSUMER.CREATE.{STREAM}", {"stream_name": STREAM, "config": new})

    def hear(self) -> bytes:
        return self._ears.take()


def config(name: str, port: int, folder: Path, sync: str) -> str:
    """Return the part of a server's configuration that both have in common."""
    always = f", sync_interval: {sync}" if sync else ""
    store = f'jetstream {{ store_dir: "{folder}/{name}", domain: {name}{always} }}'
    return f'listen: "127.0.0.1:{port}"\nserver_name: {name}\n{store}\n'


class Nats(Rival):
    """The contestant: one way to copy a stream, with one way to flush it."""

    def __init__(self, kind: str, sync: str = "") -> None:
        self._sync = sync
        durability = (
            "flushed before each acknowledgement"
            if sync
            else "written to the system before it is acknowledged; flushed every 2 minutes"
        )
        settings = f"file storage, leaf node, `sync_interval` {sync or 'default'}"
        name = f"NATS JetStream, {kind}{f', sync {sync}' if sync else ''}"
        super().__init__("nats", name, durability, settings, partial(NatsPair, kind, sync), CLIENT)

    def version(self) -> str:
        found = program(PACKAGE)
        if not found:
            raise NotMeasured(f"{PACKAGE} is not installed")
        version = first_line([found, "--version"]).rpartition(" ")[2]
        with tempfile.TemporaryDirectory(prefix="eventd-bench-") as folder:
            file = Path(folder) / "t.conf"
            file.write_text(config("t", 4222, Path(folder), self._sync))
            tried = subprocess.run([found, "-t", "-c", str(file)], capture_output=True, text=True)
        if tried.returncode:
            raise NotMeasured(f"NATS {version} does not know `sync_interval`: it always flushes every 2 minutes")
        return version
