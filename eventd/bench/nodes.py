"""The nodes of a measurement: child processes in a temporary folder, or running nodes given by the operator."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from eventd.bench.children import bare_environment
from eventd.bench.machine import cpu_of
from eventd.bench.wire import NodeClient, now
from eventd.errors import Conflict, EventdError, NotFound, Unavailable
from eventd.net.address import Address
from eventd.runtime.chance import SYSTEM
from eventd.runtime.clock import SystemClock

START_SECONDS = 60.0
STOP_SECONDS = 20.0
LISTEN_SECONDS = 15.0
LOOK_SECONDS = 0.02
LOG_LINES = 12
API = "federation.routerd.net/v1alpha1"
_TIED = (
    "import runpy, sys; from eventd.processes.lifeline import end_with; end_with(int(sys.argv.pop(1)));"
    " runpy.run_module('eventd.cli.routerd_eventd', run_name='__main__')"
)
"""Runs `python -m eventd.cli.routerd_eventd` so that it ends when this process ends, even if that is killed."""

_clock = SystemClock()


async def pause(seconds: float) -> None:
    """Wait for this number of seconds without blocking the loop."""
    await _clock.sleep(seconds)


class Node:
    """A node that the operator runs. What the measurement declares on it is removed at the end.

    `client` gives access to its API, `listen` is the address where its group listens, `secret` the path of the group's
    secret; a node that only sends has no `listen`.
    """

    def __init__(
        self, name: str, client: NodeClient, *, listen: tuple[str, int] | None = None, secret: str = ""
    ) -> None:
        self.name = name
        self.client = client
        self.listen = listen
        self.secret = secret
        self._declared: list[str] = []

    @property
    def cpu_seconds(self) -> float | None:
        """Return the processor seconds that the node has used; None if that is unknown, as for an operator's node."""
        return None

    async def start(self) -> None:
        """Check that the node answers, or raise its error; a child process is started first."""
        await self.client.call("GET", "/api/v1/status")

    async def declare(self, *documents: dict[str, Any]) -> None:
        """Apply these resources to the node; `clear` removes them."""
        text = "\n---\n".join(json.dumps(document) for document in documents)
        self._declared += [f"/api/v1/resources/{one['kind']}/{one['metadata']['name']}" for one in documents]
        await self.client.call("POST", "/api/v1/resources/apply", {"sources": [{"name": "bench", "text": text}]})

    async def listening(self, group: str) -> None:
        """Wait until the node listens for a group. Raises `Unavailable` after `LISTEN_SECONDS`."""
        deadline = now() + LISTEN_SECONDS
        while (said := (await self.client.ask("GET", "/readyz")).decoded()["checks"].get(f"group {group}")) != "ok":
            if now() > deadline:
                raise Unavailable(
                    f"{self.client.address} does not listen for {group}: {said or 'the group is not applied yet'}",
                    hint="check that the node can read the secret, and listen at the address of the group",
                )
            await pause(LOOK_SECONDS)

    async def declare_topic(self, topic: str, config: dict[str, Any]) -> None:
        """Create a topic on the node; `clear` removes it."""
        path = f"/v0/topics/{topic}"
        self._declared.append(path)
        await self.client.call("PUT", path, config)

    async def clear(self) -> list[str]:
        """Remove everything that was declared on the node, last first. Returns what could not be removed, and why."""
        left = []
        for path in reversed(self._declared):
            try:
                await self.client.call("DELETE", path)
            except NotFound:
                continue
            except EventdError as error:
                left.append(f"{path.rpartition('/')[2]} on {self.client.address}: {error.message}")
        self._declared.clear()
        return left

    def stop(self) -> None:
        """Do nothing: a node that the operator runs is not stopped."""


class OwnNode(Node):
    """A node that the measurement runs as a child process, with a key and two ports for API and peers.

    An empty `database` means a SQLite file of its own.
    """

    def __init__(self, name: str, folder: Path, database: str, ports: tuple[int, int], secret: str) -> None:
        self.home = folder / name
        self.home.mkdir()
        self.key = SYSTEM.token(16).hex()
        api, port = ports
        client = NodeClient(Address(False, "127.0.0.1", api, ""), self.key)
        super().__init__(name, client, listen=("127.0.0.1", port), secret=secret)
        self.quic_listen = ""
        """The address at which the node listens for QUIC; empty: it does not. Set before the start."""
        self._database = database
        self._log = folder / f"{name}.log"
        self._child: subprocess.Popen[bytes] | None = None
        self._lifeline = -1

    @property
    def file(self) -> Path:
        """Return the path of the node's SQLite file, which exists only if no database was given."""
        return self.home / "eventd.db"

    @property
    def cpu_seconds(self) -> float | None:
        return cpu_of(self._child.pid) if self._child else None

    def launch(self) -> None:
        """Start the process without waiting until it answers."""
        ours, self._lifeline = os.pipe()
        environment = {
            **bare_environment(),
            "EVENTD_DATA_DIR": str(self.home),
            "EVENTD_API_LISTEN": f"127.0.0.1:{self.client.address.port}",
            "EVENTD_API_KEYS": self.key,
            "EVENTD_LOG_LEVEL": "warning",
            "EVENTD_LOG_FORMAT": "text",
            "EVENTD_MAX_CONNECTIONS": "4096",
            "EVENTD_CALLBACK_ALLOW": "127.0.0.1",
            **({"EVENTD_DATABASE_URL": self._database} if self._database else {}),
            **({"EVENTD_QUIC_LISTEN": self.quic_listen} if self.quic_listen else {}),
        }
        migrate = ["--migrate"] if self._database else []
        try:
            with self._log.open("ab") as log:
                self._child = subprocess.Popen(
                    [sys.executable, "-c", _TIED, str(ours), "serve", *migrate],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    cwd=self.home,
                    env=environment,
                    pass_fds=(ours,),
                    start_new_session=True,  # Ctrl-C is for this process: the node is needed for the removal
                )
        finally:
            os.close(ours)

    async def start(self) -> None:
        """Start the process and wait until it answers. Raises `Unavailable` with its last output if it does not.

        Raises `Conflict` if a given database is in use for something else.
        """
        if self._child is None:
            self.launch()
        deadline = now() + START_SECONDS
        while not await self._answers():
            if self._child is None or self._child.poll() is not None:
                raise Unavailable(f"the node {self.name} did not start; {self._last_words()}")
            if now() > deadline:
                raise Unavailable(f"the node {self.name} did not answer in {START_SECONDS:g} s; {self._last_words()}")
            await pause(LOOK_SECONDS)
        if self._database:
            await self._require_empty()

    async def _answers(self) -> bool:
        try:
            await self.client.call("GET", "/api/v1/status")
        except Unavailable:
            return False
        return True

    async def _require_empty(self) -> None:
        """Raise `Conflict` if the given database holds groups or topics: it is in use for something else."""
        groups = (await self.client.call("GET", "/api/v1/status"))["groups"]
        topics = (await self.client.call("GET", "/v0/topics"))["topics"]
        if groups or topics:
            raise Conflict(
                f"the database for {self.name} is in use: it already holds groups or topics",
                hint="give an empty database",
            )

    def _last_words(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines()[-LOG_LINES:] if self._log.exists() else []
        return "\n".join(["it said:", *(f"  {line}" for line in lines or ["(nothing)"])])

    async def clear(self) -> list[str]:
        """Like `Node.clear` if the database was given; else do nothing: a SQLite file is deleted with its folder."""
        return await super().clear() if self._database and self._child is not None else []

    def stop(self) -> None:
        """End the process. A SQLite file, which is deleted, needs no orderly stop; a given database does."""
        child, self._child = self._child, None
        if child is not None:
            if self._database:
                child.terminate()
                with suppress(subprocess.TimeoutExpired):
                    child.wait(STOP_SECONDS)
            child.kill()
            child.wait()
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1


def group_of(node: Node, name: str, *, listens: bool = False) -> dict[str, Any]:
    """Return the EventGroup to declare on a node; `listens`: with the node's address for its peers."""
    spec: dict[str, Any] = {"nodeName": node.name}
    if node.secret:
        spec["auth"] = {"secretFile": node.secret}
    if listens and node.listen is not None:
        spec["listen"] = {"address": node.listen[0], "port": node.listen[1]}
    return {"apiVersion": API, "kind": "EventGroup", "metadata": {"name": name}, "spec": spec}


def peer_of(group: str, name: str, host: str, port: int) -> dict[str, Any]:
    """Return the EventPeer for another node of the group. A peer that is down is retried at least every half second."""
    spec = {
        "groupRef": group,
        "nodeName": name,
        "endpoint": f"http://{f'[{host}]' if ':' in host else host}:{port}",
        "retry": {"baseBackoff": "50ms", "maxBackoff": "500ms"},
    }
    return {"apiVersion": API, "kind": "EventPeer", "metadata": {"name": f"{group}-{name}"}, "spec": spec}
