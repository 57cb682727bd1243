"""RabbitMQ: a quorum queue at A and one at B, with a shovel that moves messages from the one to the other."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from eventd.bench.children import free_ports
from tests.bench.rivals.amqp import Wire, publish
from tests.bench.rivals.clients import through_pika
from tests.bench.rivals.contest import BATCH, NotMeasured, Pair, PythonClient, Rival
from tests.bench.rivals.servers import Server, program, split

PACKAGE = "rabbitmq-server"
HOME = "/usr/lib/rabbitmq/bin"
"""Debian's program on the PATH changes the user; this one does not."""
QUEUE = "ev"
CLIENT = PythonClient("pika", "`AsyncioConnection`, confirms", partial(through_pika, QUEUE))
PREFETCH = 1000
ON_LOOPBACK = "-kernel inet_dist_use_interface {127,0,0,1}"


class RabbitPair(Pair):
    """Two nodes outside a cluster: each has its own files, and its own name at a separate port mapper."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self._folder = folder
        mapper, self.port, self._port_b, dist_a, dist_b = free_ports(5)
        self._shared = {"ERL_EPMD_PORT": str(mapper), "ERL_EPMD_ADDRESS": "127.0.0.1"}
        epmd = [program("epmd"), "-port", str(mapper), "-address", "127.0.0.1"]
        Server(stack, "epmd", folder, epmd).start(mapper)
        (folder / "plugins").write_text("[rabbitmq_shovel].\n")
        (folder / "rabbitmq.conf").write_text("log.console = true\nlog.console.level = warning\n")
        self.a = self._server(stack, "a", self.port, dist_a)
        self.b = self._server(stack, "b", self._port_b, dist_b)
        self.a.start(self.port)
        self._at_a = Wire(self.port)
        self._at_a.declare(QUEUE)

    def _server(self, stack: ExitStack, name: str, port: int, dist: int) -> Server:
        home = self._folder / name
        environ = {
            "RABBITMQ_NODENAME": f"{name}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(port),
            "RABBITMQ_DIST_PORT": str(dist),
            "RABBITMQ_MNESIA_BASE": str(home),
            "RABBITMQ_LOG_BASE": str(home),
            "RABBITMQ_PID_FILE": str(home / "pid"),
            "RABBITMQ_CONFIG_FILE": str(self._folder / "rabbitmq.conf"),
            "RABBITMQ_CONF_ENV_FILE": str(self._folder / "none"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self._folder / "plugins"),
            "RUNNING_UNDER_SYSTEMD": "1",  # it is then one process, and not a shell that waits for another
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": ON_LOOPBACK,
        }
        return Server(stack, name, self._folder, [program(PACKAGE, HOME)], environ=self._shared | environ)

    def prepare(self, bodies: Sequence[bytes]) -> list[bytes]:
        return split([publish(QUEUE, body) for body in bodies], BATCH)

    def send(self, lot: bytes, count: int) -> None:
        self._at_a.send(lot, count)

    def take_answers(self, count: int) -> None:
        while self._at_a.confirmed < count:
            self._at_a.take()
        self._at_a.confirmed -= count

    def join(self) -> None:
        self.b.start(self._port_b)
        self._at_b = Wire(self._port_b)
        self._at_b.declare(QUEUE)
        told = {"src-protocol": "amqp091", "src-uri": f"amqp://127.0.0.1:{self.port}", "src-queue": QUEUE}
        told |= {"dest-protocol": "amqp091", "dest-uri": f"amqp://127.0.0.1:{self._port_b}", "dest-queue": QUEUE}
        shovel = json.dumps({**told, "ack-mode": "on-confirm", "src-prefetch-count": PREFETCH})
        command = [program("rabbitmqctl", HOME), "-n", "b@localhost", "set_parameter", "shovel", "take", shovel]
        environ = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(self._folder), **self._shared}
        done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120)
        if done.returncode:
            raise NotMeasured(f"rabbitmqctl: {' '.join((done.stdout + done.stderr).split())[-200:]}")

    def count(self) -> int:
        return self._at_b.declare(QUEUE, passive=True)

    def read(self, count: int) -> list[bytes]:
        self._at_b.consume(QUEUE)
        return [self.hear() for _ in range(count)]

    def read_at_a(self, count: int) -> list[bytes]:
        self._at_a.consume(QUEUE)
        return [self._at_a.hear() for _ in range(count)]

    def listen(self) -> None:
        """Reuse the consumer that has read."""

    def hear(self) -> bytes:
        return self._at_b.hear()


class RabbitMQ(Rival):
    """The contestant: a shovel between two quorum queues of one member each."""

    def __init__(self) -> None:
        durability = "flushed before each acknowledgement, at A and at B"
        settings = f"quorum queues of one member, shovel at B, `on-confirm`, prefetch {PREFETCH}"
        super().__init__("rabbitmq", "RabbitMQ shovel", durability, settings, RabbitPair, CLIENT)

    def version(self) -> str:
        if not all(program(name, HOME) for name in (PACKAGE, "rabbitmqctl", "epmd")):
            raise NotMeasured(f"{PACKAGE} is not installed")
        places = [*Path(HOME).parent.glob("lib/rabbitmq_server-*")]  # called, it would leave a port mapper running
        return places[-1].name.rpartition("-")[2] if places else "unknown"
