"""Measures the start of a node until it is ready, and a command from start to exit.

Each time is that of a new process, with the files of Python and of the database in the page cache, and with compiled
code. A node that starts again was killed before, as by a crash.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import count
from pathlib import Path

import eventd
from eventd.bench.children import free_ports
from eventd.bench.nodes import OwnNode, group_of, pause
from eventd.bench.pouring import held
from eventd.bench.wire import NodeClient
from eventd.errors import Unavailable
from eventd.log.core.eventlog import EventLog
from eventd.log.core.values import Draft
from eventd.resources.group_configuration import topic_of
from eventd.runtime.clock import SystemClock
from eventd.store.engine.database import Database
from federation.event import Event, encode, normalise
from tests.bench.yardsticks import plain_environment

GROUP = "bench"
APPENDED = 500
"""Stored events of one append."""
PADDING = 120
"""Bytes that pad an event to about 350."""
LOOK_SECONDS = 0.002
LONGEST_SECONDS = 30.0
CONTROL = str(Path(sys.executable).with_name("routerctl"))


class Starts:
    """Nodes in a folder: one with an empty group, one with many events, and a new one for each run."""

    def __init__(self, folder: Path, events: int) -> None:
        self._folder = folder
        self._events = events
        self._numbers = count()
        self._empty = self._make("empty")
        self._full = self._make("full")

    def _make(self, name: str) -> OwnNode:
        api, port = free_ports(2)
        return OwnNode(name, self._folder, "", (api, port), "")

    async def prepare(self) -> None:
        """Apply the group, and fill the second node."""
        for node in (self._empty, self._full):
            try:
                await node.start()
                await node.declare(group_of(node, GROUP))
            finally:
                node.stop()
        await _fill(self._full, self._events)

    async def of_new_node(self) -> float:
        """Return the seconds until a node is ready that has to create its database."""
        return await _until_ready(self._make(f"new-{next(self._numbers)}"), 0)

    async def of_empty_node(self) -> float:
        """Return the seconds until a node with a database without events is ready."""
        return await _until_ready(self._empty, 0)

    async def of_full_node(self) -> float:
        """Return the seconds until a node with many events is ready."""
        return await _until_ready(self._full, self._events)

    def of_version(self) -> float:
        """Return the seconds of `routerctl --version`."""
        return _run(["--version"], eventd.__version__)

    def of_get(self) -> float:
        """Return the seconds of `routerctl get EventGroup`, on the database."""
        return _run(["get", "EventGroup", "--data-dir", str(self._empty.home)], GROUP)

    async def of_asking(self) -> float:
        """Return the seconds of `routerctl get EventGroup`, answered by a running node."""
        node = self._empty
        try:
            await node.start()
            return _run(["get", "EventGroup", "--server", str(node.client.address), "--key", node.key], GROUP)
        finally:
            node.stop()


async def _until_ready(node: OwnNode, events: int) -> float:
    """Start a node, poll until it is ready, check what it holds, and kill it."""
    begun = time.perf_counter()
    try:
        node.launch()
        while not await _is_ready(node.client):
            if time.perf_counter() - begun > LONGEST_SECONDS:
                said = node.home.with_name(f"{node.name}.log").read_text(errors="replace").strip()
                raise Unavailable(f"the node {node.name} was not ready within {LONGEST_SECONDS:g} s; it said: {said}")
            await pause(LOOK_SECONDS)
        seconds = time.perf_counter() - begun
        if (found := await held(node.client, GROUP)) != events:
            raise RuntimeError(f"the node {node.name} holds {found} events after its start, and not {events}")
        return seconds
    finally:
        node.stop()


async def _is_ready(client: NodeClient) -> bool:
    try:
        return (await client.ask("GET", "/readyz")).status == 200
    except Unavailable:
        return False


def _run(arguments: Sequence[str], expected: str) -> float:
    begun = time.perf_counter()
    done = subprocess.run([CONTROL, *arguments], env=plain_environment(), capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - begun
    if done.returncode or expected not in done.stdout:
        said = (done.stderr or done.stdout).strip()
        raise RuntimeError(f"routerctl {' '.join(arguments)} ended with {done.returncode} and said: {said}")
    return seconds


# --- a log that is full from the first ------------------------------------------------------------------------------


async def _fill(node: OwnNode, events: int) -> None:
    """Write events into the log of a node that is down; it was started once before."""
    database = Database(f"sqlite:///{node.file}")
    try:
        log = await EventLog.open(database, SystemClock())
        topic = await log.topic(topic_of(GROUP))
        template = _template(node.name)
        for start in range(0, events, APPENDED):
            numbers = range(start, min(start + APPENDED, events))
            await log.append(topic, [_draft(template, node.name, f"{number:010d}") for number in numbers])
        await log.close()
    finally:
        database.close()


def _template(source: str) -> str:
    """Return the canonical form of all events, with a placeholder for the number: to encode a million takes long."""
    event = Event(
        id="bench-@@",
        group=GROUP,
        source_node=source,
        type="bench.client",
        subject="10.88.0.0/32",
        payload={"pad": "x" * PADDING},
    )
    return encode(normalise(event, now=SystemClock().now())).decode()


def _draft(template: str, source: str, number: str) -> Draft:
    return Draft(f"bench-{number}", source, "bench.client", None, "", template.replace("@@", number))
