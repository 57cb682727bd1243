"""The three nodes of the demo: local processes, their files in one temporary folder, and their reported state."""

from __future__ import annotations

import hashlib
import json
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec

import aiohttp

from eventd.bench.children import bare_environment, free_ports
from eventd.errors import EventdError
from eventd.runtime.chance import SYSTEM
from eventd.runtime.clock import Clock

P = ParamSpec("P")

GROUP = "sites"
NAMES = ("site-a", "site-b", "site-c")

PATIENCE_SECONDS = 30.0
"""Seconds that the demo waits for any one condition before it fails."""
LOG_LINES = 15


class DemoFailed(EventdError):
    """The demo could not complete a step, or was interrupted."""

    code = "demo_failed"


class DemoLink(NamedTuple):
    """One direction between two nodes, as its sender reports it.

    `lag_events` is the number of waiting events, `lag_seconds` the age of the oldest.
    """

    state: str
    reason: str
    error: str
    protocol: str
    lag_events: int
    lag_seconds: float


@dataclass(frozen=True, slots=True)
class NodeState:
    """The last reported state of a node. `ids` counts its events, `records` all that it ever stored, refreshes too."""

    ids: int = 0
    records: int = 0
    links: Mapping[str, DemoLink] = field(default_factory=dict)


class Contents(NamedTuple):
    """All events of a node: the number by source, the ids, and one digest over all ids and contents."""

    by_source: dict[str, int]
    ids: frozenset[str]
    digest: str


class DemoNode:
    """One node: its folder, its ports for peers and for its API (0: any), and its process while it runs."""

    def __init__(self, name: str, home: Path, port: int, env: Mapping[str, str], api_port: int = 0) -> None:
        self.name = name
        self._api_port = api_port
        self._env = env
        self.home = home
        self.port = port
        self.api = ""
        self.seen = NodeState()
        self.log_path = home.with_suffix(".log")
        self._port_file = home.with_suffix(".api")
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        return self._child is not None and self._child.poll() is None

    @property
    def pid(self) -> int:
        return self._child.pid if self._child else 0

    def start(self) -> None:
        """Start `routerd-eventd serve` without waiting for it."""
        self._port_file.unlink(missing_ok=True)  # the file of an earlier start would be believed
        self.api = ""
        listen = f"127.0.0.1:{self._api_port}"
        where = ("--data-dir", str(self.home), "--api-listen", listen, "--port-file", str(self._port_file))
        with self.log_path.open("ab") as log:
            self._child = subprocess.Popen(
                [sys.executable, "-m", "eventd.cli.routerd_eventd", "serve", *where, "--log-format", "text"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.home.parent,
                env={**bare_environment(), **self._env},
            )

    def kill(self) -> None:
        """Kill the process with SIGKILL, so that it cannot write anything more. May be called again."""
        if self._child is not None:
            self._child.kill()
            self._child.wait()
            self._child = None

    def listens(self) -> bool:
        """Return whether the API listens; `api` then has its address."""
        if not self.api and self._port_file.exists():
            self.api = self._port_file.read_text().strip()
        return bool(self.api)

    def require_running(self) -> None:
        """Raise `DemoFailed` if the process has ended without `kill`."""
        if self._child is not None and not self.running:
            raise DemoFailed(f"{self.name} ended with status {self._child.returncode}; {self.log_tail()}")

    def log_tail(self) -> str:
        """Return the last lines of the node's log, for an error message."""
        text = self.log_path.read_text(errors="replace") if self.log_path.exists() else ""
        lines = [f"  {line}" for line in text.splitlines()[-LOG_LINES:]] or ["  (nothing)"]
        return "\n".join([f"the log of {self.name} ends with:", *lines])


class Stage:
    """The nodes `names` in a temporary folder, each with the variables `env`.

    `fixed`: the API of a node has the same port after each start. `tick` is called up to 20 times a second during
    waits. Use it as a context manager: at its end every process and the folder are gone.
    """

    def __init__(
        self,
        clock: Clock,
        tick: Callable[[], Awaitable[None]],
        *,
        names: Sequence[str] = NAMES,
        env: Mapping[str, str] = {},
        fixed: bool = False,
    ) -> None:
        self.clock = clock
        self.folder = Path(tempfile.mkdtemp(prefix="routerd-eventd-demo-"))
        count = len(names)
        ports = free_ports(2 * count if fixed else count)
        api = ports[count:] or [0] * count
        self.nodes = {
            name: DemoNode(name, self.folder / name, port, env, api_port)
            for name, port, api_port in zip(names, ports[:count], api, strict=True)
        }
        self._tick = tick
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10))
        self._commands: list[subprocess.Popen[bytes]] = []

    async def __aenter__(self) -> Stage:
        return self

    async def __aexit__(self, *_: object) -> None:
        for child in self._commands:
            child.kill()
            child.wait()
        for node in self.nodes.values():
            node.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
        await self._session.close()

    # --- files ------------------------------------------------------------------------------------------------

    def write_key(self) -> Path:
        """Write a new secret to a file that only this user can read; returns its path."""
        path = self.folder / "sites.key"
        path.touch(0o600)
        path.write_text(SYSTEM.token(32).hex() + "\n")
        return path

    def write_declaration(self, name: str, key: Path) -> Path:
        """Write an EventGroup, and an EventPeer for each other node, to `NAME.yaml`; returns its path."""
        documents = [_group(self.nodes[name], key)]
        documents += [_peer(other) for other in self.nodes.values() if other.name != name]
        path = self.folder / f"{name}.yaml"
        path.write_text("---\n".join(documents))
        return path

    # --- commands ---------------------------------------------------------------------------------------------

    async def routerctl(self, node: str, *arguments: str, stdin: str = "", data_dir: bool = True) -> str:
        """Run `routerctl` on the database of a node, running or not. Returns its output. Raises `DemoFailed`.

        Without `data_dir`, the command needs no node.
        """
        (output,) = await self.routerctl_each([(node if data_dir else "", arguments, stdin)])
        return output

    async def routerctl_each(self, calls: Iterable[tuple[str, Sequence[str], str]]) -> list[str]:
        """Like `routerctl`, but several at a time, each given as node, arguments and input; returns their outputs."""
        started = [self._start(node, arguments, stdin) for node, arguments, stdin in calls]
        for child, words, _ in started:
            await self.until(f"{words} to end", _has_ended, child)
        outputs = []
        for child, words, output in started:
            self._commands.remove(child)
            text = output.read_text(errors="replace")
            if child.returncode != 0:
                raise DemoFailed(f"{words} ended with status {child.returncode}:\n{text.rstrip()}")
            outputs.append(text)
        return outputs

    async def open_console(self) -> str:
        """Run `routerctl console` for all contexts until the end; return the link that it prints."""
        child, words, output = self._start("", ("console", "--all"), "")

        def has_link() -> bool:
            if child.poll() is not None:
                raise DemoFailed(f"{words} ended with status {child.returncode}:\n{output.read_text().rstrip()}")
            return output.read_text().startswith("http://") and "\n" in output.read_text()

        await self.until("the console to listen", has_link)
        return output.read_text().splitlines()[0]

    def _start(self, node: str, arguments: Sequence[str], stdin: str) -> tuple[subprocess.Popen[bytes], str, Path]:
        number = SYSTEM.token(4).hex()
        given, output = self.folder / f"{number}.in", self.folder / f"{number}.out"
        given.write_text(stdin)
        place = ("--data-dir", str(self.nodes[node].home)) if node else ()
        with given.open("rb") as source, output.open("wb") as target:
            child = subprocess.Popen(
                [sys.executable, "-m", "eventd.cli.routerctl", *arguments, *place],
                stdin=source,
                stdout=target,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env={**bare_environment(), "XDG_CONFIG_HOME": str(self.folder / "config")},
            )
        self._commands.append(child)
        return child, f"routerctl {shlex.join(arguments)}", output

    # --- asking -----------------------------------------------------------------------------------------------

    async def ask(self, node: DemoNode, path: str) -> Any:
        """Return the JSON with which the node's API answers GET `path`. Raises `DemoFailed` for an error.

        A node that is not ready yet is no error: `/readyz` then answers with its checks.
        """
        try:
            async with self._session.get(f"http://{node.api}{path}") as answer:
                body = await answer.json(content_type=None)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            node.require_running()
            raise DemoFailed(
                f"{node.name} does not answer {path} ({type(error).__name__}); {node.log_tail()}"
            ) from None
        if answer.status >= 400 and path != "/readyz":
            raise DemoFailed(f"{node.name} answered {answer.status} to {path}: {body}")
        return body

    async def emit(self, node: DemoNode, event: Mapping[str, Any]) -> bool:
        """Emit an event over the API of a node. Returns False if the node does not answer."""
        return await self.post(node, f"/api/v1/groups/{GROUP}/events", {"events": [event]})

    async def post(self, node: DemoNode, path: str, body: Mapping[str, Any]) -> bool:
        """Send a request to the API of a node. Returns False if the node does not answer, or refuses it."""
        try:
            async with self._session.post(f"http://{node.api}{path}", json=body) as answer:
                return answer.status == 200
        except (aiohttp.ClientError, OSError, TimeoutError):
            return False

    async def look(self) -> None:
        """Read the state of every running node, with its links, into its `seen`."""
        for node in self.nodes.values():
            if node.running and node.api:
                node.seen = await self._see(node)

    async def _see(self, node: DemoNode) -> NodeState:
        status = await self.ask(node, "/api/v1/status")
        mine = [group for group in status["groups"] if group["group"] == GROUP]
        if not mine:
            return NodeState()
        links = await self.ask(node, f"/api/v1/groups/{GROUP}/links")
        return NodeState(mine[0]["events"], mine[0]["seq"], {link["peer"]: _link(link) for link in links["outbound"]})

    async def is_ready(self, node: DemoNode) -> bool:
        """Return whether the node's group is ready, and so listens for its peers."""
        if not node.listens():
            return False
        return bool((await self.ask(node, "/readyz"))["checks"].get(f"group {GROUP}") == "ok")

    async def holding(self, node: DemoNode) -> Contents:
        """Return the contents of the node, read page by page, with expired events."""
        events: list[dict[str, Any]] = []
        after: str | None = ""
        while after is not None:
            page = await self.ask(node, f"/api/v1/groups/{GROUP}/events?limit=1000&includeExpired=true&after={after}")
            events += page["events"]
            after = page["next"]
        return _hold(events)

    async def until(
        self, what: str, condition: Callable[P, bool | Awaitable[bool]], *args: P.args, **kw: P.kwargs
    ) -> None:
        """Wait until `condition(*args)` is true; `what` completes "waited for".

        Raises `DemoFailed` after `PATIENCE_SECONDS`, and when a node ends by itself.
        """
        deadline = self.clock.monotonic() + PATIENCE_SECONDS
        while True:
            for node in self.nodes.values():
                node.require_running()
            answer = condition(*args, **kw)
            if await answer if isinstance(answer, Awaitable) else answer:
                return
            if self.clock.monotonic() > deadline:
                logs = "\n".join(node.log_tail() for node in self.nodes.values())
                raise DemoFailed(f"waited {PATIENCE_SECONDS:g} s for {what}\n{logs}")
            await self._tick()
            await self.clock.sleep(0.05)


def _has_ended(child: subprocess.Popen[bytes]) -> bool:
    return child.poll() is not None


def _group(node: DemoNode, key: Path) -> str:
    return (
        "apiVersion: federation.routerd.net/v1alpha1\n"
        "kind: EventGroup\n"
        f"metadata: {{name: {GROUP}}}\n"
        "spec:\n"
        f"  nodeName: {node.name}\n"
        f"  listen: {{address: 127.0.0.1, port: {node.port}}}\n"
        f"  auth: {{secretFile: {json.dumps(str(key))}}}\n"
    )


def _peer(node: DemoNode) -> str:
    return (
        "apiVersion: federation.routerd.net/v1alpha1\n"
        "kind: EventPeer\n"
        f"metadata: {{name: {node.name}}}\n"
        "spec:\n"
        f"  groupRef: {GROUP}\n"
        f"  nodeName: {node.name}\n"
        f"  endpoint: http://127.0.0.1:{node.port}\n"
    )


def _link(row: Mapping[str, Any]) -> DemoLink:
    names = ("state", "reason", "lastError", "protocol", "lagEvents", "lagSeconds")
    return DemoLink(*(row[name] for name in names))


def _hold(events: Sequence[Mapping[str, Any]]) -> Contents:
    """Return the `Contents` of these events. The digest ignores where and when the node stored an event."""
    local = ("recordedAt", "seq", "path")
    portable = [{name: value for name, value in event.items() if name not in local} for event in events]
    digest = hashlib.sha256()
    by_source: dict[str, int] = {}
    for event in sorted(portable, key=lambda event: str(event["id"])):
        digest.update(json.dumps(event, sort_keys=True, ensure_ascii=False).encode() + b"\n")
        by_source[event["sourceNode"]] = by_source.get(event["sourceNode"], 0) + 1
    return Contents(by_source, frozenset(event["id"] for event in portable), digest.hexdigest())
