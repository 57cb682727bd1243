"""Redis: a stream at A, and a replica of A at B."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from eventd.bench.children import free_ports
from tests.bench.rivals.contest import BATCH, NotMeasured, Pair, Rival
from tests.bench.rivals.servers import START_SECONDS, Server, connect, first_line, program, split

PACKAGE = "redis-server"
READ = 1000
STREAM = b"ev"


def command(*parts: bytes) -> bytes:
    """Encode a command as RESP."""
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)


class Wire:
    """RESP, version 2."""

    def __init__(self, port: int) -> None:
        self._link = connect(port)
        self._file = self._link.makefile("rb")

    def send(self, data: bytes) -> None:
        self._link.sendall(data)

    def take(self) -> Any:
        """Return the next answer."""
        line = self._file.readline()
        kind, rest = line[:1], line[1:-2]
        if kind == b"$":
            return None if rest == b"-1" else self._file.read(int(rest) + 2)[:-2]
        if kind == b"*":
            return [self.take() for _ in range(int(rest))]
        if kind in (b"+", b":"):
            return rest
        raise NotMeasured(f"Redis said {line.decode().strip() or 'nothing'}")

    def ask(self, *parts: bytes) -> Any:
        """Send one command."""
        self.send(command(*parts))
        return self.take()

    def facts(self, section: bytes) -> dict[str, str]:
        """Return a section of the server's INFO."""
        lines = self.ask(b"INFO", section).decode().splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)


class RedisPair(Pair):
    """A replica that was in sync once, and is then stopped and disconnected: it resumes where it was."""

    def __init__(self, sync: str, stack: ExitStack, folder: Path) -> None:
        port_a, self._port_b = free_ports(2)
        common = ["--bind", "127.0.0.1", "--appendonly", "yes", "--appendfsync", sync, "--save", ""]
        common += ["--repl-backlog-size", "1gb", "--repl-timeout", "3600", "--repl-diskless-sync-delay", "0"]
        servers = []
        for name, port, more in (("a", port_a, []), ("b", self._port_b, ["--replicaof", "127.0.0.1", str(port_a)])):
            (folder / name).mkdir()
            told = ["--port", str(port), "--dir", str(folder / name), *common, *more]
            servers.append(Server(stack, name, folder, [program(PACKAGE), *told]))
            servers[-1].start(port)
        self.a, self.b = servers
        self._at_a, self._at_b = Wire(port_a), Wire(self._port_b)
        deadline = time.monotonic() + START_SECONDS
        while self._at_b.facts(b"replication").get("master_link_status") != "up":
            if time.monotonic() > deadline:
                raise NotMeasured("the replica does not come into step")
            time.sleep(0.05)
        self.b.signal(signal.SIGSTOP)
        self._at_a.ask(b"CLIENT", b"KILL", b"TYPE", b"REPLICA")

    def prepare(self, bodies: Sequence[bytes]) -> list[bytes]:
        return split([command(b"XADD", STREAM, b"*", b"d", body) for body in bodies], BATCH)

    def send(self, lot: bytes, count: int) -> None:
        self._at_a.send(lot)

    def take_answers(self, count: int) -> None:
        for _ in range(count):
            self._at_a.take()

    def join(self) -> None:
        self.b.signal(signal.SIGCONT)

    def count(self) -> int:
        return int(self._at_b.ask(b"XLEN", STREAM))

    def read(self, count: int) -> list[bytes]:
        if self._at_a.facts(b"stats")["sync_partial_ok"] != "1":
            raise NotMeasured("the replica took a copy of the whole, and did not resume where it was")
        bodies: list[bytes] = []
        after = b"-"
        while page := self._at_b.ask(b"XRANGE", STREAM, after, b"+", b"COUNT", b"%d" % READ):
            bodies += [fields[1] for _, fields in page]
            after = b"(" + page[-1][0]
        return bodies

    def listen(self) -> None:
        self._ears = Wire(self._port_b)
        ((last, _),) = self._ears.ask(b"XREVRANGE", STREAM, b"+", b"-", b"COUNT", b"1")
        self._wait_after(last)

    def _wait_after(self, last: bytes) -> None:
        self._ears.send(command(b"XREAD", b"BLOCK", b"0", b"STREAMS", STREAM, last))

    def hear(self) -> bytes:
        ((_, ((last, fields),)),) = self._ears.take()
        self._wait_after(last)
        return bytes(fields[1])


class Redis(Rival):
    """The contestant: a replica, with one way to flush."""

    def __init__(self, sync: str) -> None:
        durability = {
            "always": "flushed at A before each acknowledgement; B flushes, but A does not wait for it",
            "everysec": "flushed every second",
        }[sync]
        settings = f"`appendfsync {sync}`, backlog 1 GiB"
        super().__init__("redis", f"Redis replica, {sync}", durability, settings, partial(RedisPair, sync))

    def version(self) -> str:
        found = program(PACKAGE)
        if not found:
            raise NotMeasured(f"{PACKAGE} is not installed")
        told = first_line([found, "--version"])
        return next((word[2:] for word in told.split() if word.startswith("v=")), told)
