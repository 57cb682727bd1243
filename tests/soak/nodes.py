"""The nodes of a soak: a triangle with histories and retention, clients that emit at a fixed rate, and the faults."""

from __future__ import annotations

import itertools
import signal
import threading
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.chaos.load import FAILED
from tests.support.declared import group, peer
from tests.support.processes import Processes
from tests.support.running import NodeProcess

NAMES: Final = ("a", "b", "c")
STEADY: Final = "a"
"""The node that is never restarted, so that its figures are those of one process."""
KEPT_EVENTS: Final = 20_000
UNIT: Final = 5
"""Events that are emitted together."""
REMEMBERED: Final = 500
"""The last acknowledged events of each node, which must be everywhere at the end."""
FAULTS: Final = (("kill", "b"), ("freeze", "c"), ("restart", "c"), ("freeze", STEADY), ("kill", "c"), ("restart", "b"))
"""The faults in turn."""
FREEZE_SECONDS: Final = 3.0
DOWN_SECONDS: Final = 2.0


class SoakClient(threading.Thread):
    """Emits units at one node at a fixed rate, and repeats each until it is acknowledged."""

    def __init__(self, node: NodeProcess, events_per_second: float) -> None:
        super().__init__(name=f"client of {node.name}", daemon=True)
        self.node = node
        self.acknowledged = 0
        self.recent: deque[str] = deque(maxlen=REMEMBERED)
        self._pause = UNIT / events_per_second
        self._end = threading.Event()

    def run(self) -> None:
        due = time.monotonic()
        for number in itertools.count():
            ids = [f"{self.node.name}-{number * UNIT + at:08}" for at in range(UNIT)]
            while not self._end.is_set() and not self._emit(ids):
                self._end.wait(0.2)
            due = max(due + self._pause, time.monotonic() - 1.0)
            if self._end.wait(max(0.0, due - time.monotonic())):
                return

    def finish(self) -> None:
        """Stop emitting."""
        self._end.set()
        self.join(60)

    def _emit(self, ids: list[str]) -> bool:
        try:
            self.node.emit(*ids, payload={"text": "x" * 200})
        except FAILED:
            return False
        self.acknowledged += len(ids)
        self.recent.extend(ids)
        return True


class SoakNodes:
    """The nodes as processes. `faults` counts what happened to them."""

    def __init__(self, directory: Path) -> None:
        self.processes = Processes(directory)
        self.faults: dict[str, int] = {}
        self.nodes = {name: NodeProcess(self.processes, name, EVENTD_LOG_FORMAT="json") for name in NAMES}
        for node in self.nodes.values():
            others = [peer(other.name, other.port) for other in self.nodes.values() if other is not node]
            kept = {"maxEvents": KEPT_EVENTS}
            node.apply(group(node.name, port=node.port, secret=node.secret, retention=kept), *others)
            node.wait_listening()

    def inflict(self, kind: str, name: str) -> None:
        """Inflict a fault, and return when the node is ready again."""
        node = self.nodes[name]
        if kind == "freeze":
            node.process.send(signal.SIGSTOP)
            time.sleep(FREEZE_SECONDS)
            node.process.send(signal.SIGCONT)
        else:
            node.kill9() if kind == "kill" else node.stop()
            time.sleep(DOWN_SECONDS)
            node.start()
        self.faults[kind] = self.faults.get(kind, 0) + 1

    def rest(self, clients: list[SoakClient], seconds: float = 120.0) -> Iterator[str]:
        """Wait until all that was acknowledged last is everywhere; yield what is not, or is wrong in a log."""
        for node in self.nodes.values():
            node.wait_sent(*(name for name in NAMES if name != node.name), seconds=seconds)
        for node in self.nodes.values():
            there = {*node.ids()}
            for client in clients:
                lost = [each for each in client.recent if each not in there]
                if lost:
                    yield f"{node.name} misses {len(lost)} events of {client.node.name}: {', '.join(lost[:3])}"
            for line in node.process.log().splitlines():
                if "Traceback" in line or '"level": "error"' in line or '"level":"error"' in line:
                    yield f"{node.name} logged: {line[:500]}"
