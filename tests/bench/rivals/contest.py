"""Defines what is measured for each contestant, and how: the same bodies, the same clock, the same checks."""

from __future__ import annotations

import asyncio
import gc
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Protocol, TypeVar

import uvloop

from eventd.bench.latency import PAUSE_SECONDS, WARM_UP
from eventd.bench.ledger import differing
from eventd.bench.pouring import LOOK_SECONDS
from eventd.bench.wire import percentile
from tests.bench.rivals.servers import Server

BATCH, IN_FLIGHT = 64, 4
"""A publisher has four batches of 64 messages in flight: a window of 256."""
WINDOW = BATCH * IN_FLIGHT
STREAM_BATCH, STREAM_IN_FLIGHT = 256, 16
"""Our own batches on a stream; for the rivals, as many messages unacknowledged."""
STREAM_WINDOW = STREAM_BATCH * STREAM_IN_FLIGHT
PATIENCE_SECONDS = 60.0
Figures = dict[str, float]
T = TypeVar("T")


class NotMeasured(Exception):
    """The reason why a contestant has no figures, as text for the table."""


@dataclass(frozen=True, slots=True)
class Task:
    """The workload of every contestant."""

    events: int
    size: int
    singles: int


class Contestant(Protocol):
    """A program with the settings it runs under."""

    @property
    def name(self) -> str: ...

    @property
    def family(self) -> str: ...

    @property
    def durability(self) -> str: ...

    @property
    def settings(self) -> str: ...

    def version(self) -> str:
        """Return the version of the program. Raises `NotMeasured` if it is missing, or does not support its
        settings."""

    def client_version(self) -> str:
        """Return the version of the Python client; empty if none is measured. Raises `NotMeasured` if it is missing."""

    def measure(self, folder: Path, task: Task) -> Figures:
        """Run one round."""


@dataclass(frozen=True, slots=True)
class PythonClient:
    """The client with which Python programs publish to a rival; `publish` takes the port of A and the bodies."""

    package: str
    way: str
    publish: Callable[[int, Sequence[bytes]], Coroutine[Any, Any, Figures]]

    @property
    def installed(self) -> str:
        """Return its version; empty if it is not installed."""
        try:
            return version(self.package)
        except PackageNotFoundError:
            return ""


class Stopwatch:
    """Measures from its creation on the time, and this process's share of a core."""

    def __init__(self) -> None:
        self._begun, self._cpu = time.perf_counter(), time.process_time()

    def told(self, count: int) -> tuple[float, float]:
        """Return messages per second, and the share of a core."""
        seconds = time.perf_counter() - self._begun
        return count / seconds, (time.process_time() - self._cpu) / seconds


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run on the event loop of the product's commands: every client that needs a loop gets the same."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


class Pair(ABC):
    """Two running servers of a rival, A and B; B is down until `join`."""

    a: Server
    b: Server
    port: int
    """The port of A."""

    @abstractmethod
    def prepare(self, bodies: Sequence[bytes]) -> list[bytes]:
        """Encode the bodies in batches of `BATCH`, before the clock starts."""

    @abstractmethod
    def send(self, lot: bytes, count: int) -> None:
        """Send one batch of this number of messages to A."""

    @abstractmethod
    def take_answers(self, count: int) -> None:
        """Wait until A has acknowledged this number of further messages."""

    @abstractmethod
    def join(self) -> None:
        """Start B, and let it copy what A holds."""

    @abstractmethod
    def count(self) -> int:
        """Return the number of messages that are visible at B."""

    @abstractmethod
    def read(self, count: int) -> list[bytes]:
        """Return all bodies that B holds."""

    @abstractmethod
    def listen(self) -> None:
        """Start a client at B that receives each message from now on."""

    @abstractmethod
    def hear(self) -> bytes:
        """Return the next message that this client receives."""

    def read_at_a(self, count: int) -> list[bytes]:
        """Return all bodies that A holds. For rivals with a client of their own."""
        raise NotImplementedError

    def rest(self) -> None:
        """Wait between two polls of B."""
        time.sleep(LOOK_SECONDS)


class Rival:
    """A contestant whose servers are opened as a pair."""

    def __init__(
        self,
        family: str,
        name: str,
        durability: str,
        settings: str,
        open_pair: Callable[[ExitStack, Path], Pair],
        client: PythonClient | None = None,
    ) -> None:
        self.family, self.name, self.durability, self.settings = family, name, durability, settings
        self._open = open_pair
        self._client = client

    def version(self) -> str:
        raise NotMeasured("its version is unknown")

    def client_version(self) -> str:
        if self._client is None:
            return ""
        if not self._client.installed:
            raise NotMeasured(f"the Python package {self._client.package} is not installed")
        return f"{self._client.package} {self._client.installed}, {self._client.way}"

    def measure(self, folder: Path, task: Task) -> Figures:
        """Fill A while B is down, let B catch up, read all of it back, then send one message at a time."""
        bodies = make_bodies(task.events + WARM_UP + task.singles, task.size)
        stored = bodies[: task.events]
        figures = {}
        if self._client and self._client.installed:
            home = folder / "client"  # an A that has nothing else to do
            home.mkdir()
            with ExitStack() as stack:
                figures = through_client(self._open(stack, home), self._client, stored)
        home = folder / "stream"
        home.mkdir()
        with ExitStack() as stack:
            figures["stream"], figures["stream_core"] = publish(self._open(stack, home), stored, STREAM_WINDOW)
        with ExitStack() as stack:
            pair = self._open(stack, folder)
            figures["publish"], figures["core"] = publish(pair, stored, WINDOW)
            figures |= catch_up(pair, len(stored))
            _require_same(pair.read(len(stored)), stored, "B")
            return figures | one_by_one(pair, bodies[task.events :])


def _require_same(held: Sequence[bytes], sent: Sequence[bytes], name: str) -> None:
    """Raise `NotMeasured` if a server holds anything but what was sent, in its order."""
    for words in differing(held, sent, (name, "what was sent")):
        raise NotMeasured(words[:200])


def make_bodies(count: int, size: int) -> list[bytes]:
    """Return events as a node stores them, `size` bytes each, all different."""
    pad = "x" * max(0, size - len(_body(0, "")))
    return [_body(number, pad) for number in range(count)]


def _body(number: int, pad: str) -> bytes:
    place = f"10.88.{number // 250 % 250:03}.{number % 250:03}/32"
    return (
        f'{{"apiVersion":"federation.routerd.net/v1alpha1","group":"bench","id":"bench-{number:020}",'
        f'"kind":"FederationEvent","observedAt":"2026-01-01T00:00:00Z",'
        f'"payload":{{"number":"{number:010}","pad":"{pad}"}},'
        f'"sourceNode":"bench-a","subject":"{place}","type":"bench.client.t000"}}'
    ).encode()


def publish(pair: Pair, bodies: Sequence[bytes], window: int) -> tuple[float, float]:
    """Return messages per second that A acknowledges to one client here, and the client's share of a core."""
    lots = pair.prepare(bodies)
    sent = answered = 0
    gc.collect()
    gc.disable()
    try:
        stopwatch = Stopwatch()
        for lot in lots:
            if sent - answered == window:
                pair.take_answers(BATCH)
                answered += BATCH
            count = min(BATCH, len(bodies) - sent)
            pair.send(lot, count)
            sent += count
        pair.take_answers(sent - answered)
        return stopwatch.told(len(bodies))
    finally:
        gc.enable()


def through_client(pair: Pair, client: PythonClient, bodies: Sequence[bytes]) -> Figures:
    """Measure the same through a Python client, event by event. Reads back what A holds."""
    figures = run(client.publish(pair.port, bodies))
    _require_same(pair.read_at_a(len(bodies)), bodies, "A")
    return figures


def catch_up(pair: Pair, count: int) -> Figures:
    """Measure messages per second from the last poll of B that saw none to the first that saw all, and their cost."""
    before_a, before_b = pair.a.cpu_seconds, pair.b.cpu_seconds
    pair.join()
    begun = news = time.perf_counter()
    before = 0
    while True:
        at = time.perf_counter()
        have = pair.count()
        if have == 0:
            begun, before_b = at, pair.b.cpu_seconds
            before_a = pair.a.cpu_seconds
        if have > before:
            news, before = at, have
        if have >= count:
            break
        if at - news > PATIENCE_SECONDS:
            raise NotMeasured(f"{have:,} of {count:,} came to B, and then no more for {PATIENCE_SECONDS:g} s")
        pair.rest()
    seconds = time.perf_counter() - begun
    return {
        "catch_up": count / seconds,
        "cpu_a": (pair.a.cpu_seconds - before_a) / count * 1e6,
        "cpu_b": (pair.b.cpu_seconds - before_b) / count * 1e6,
    }


def one_by_one(pair: Pair, bodies: Sequence[bytes]) -> Figures:
    """Measure milliseconds from the first byte sent to A until a client at B has the message."""
    pair.listen()
    taken = []
    lots = [pair.prepare([body])[0] for body in bodies]
    for lot, body in zip(lots, bodies, strict=True):
        time.sleep(PAUSE_SECONDS)
        begun = time.perf_counter()
        pair.send(lot, 1)
        heard = pair.hear()
        taken.append(time.perf_counter() - begun)
        if heard != body:
            raise NotMeasured("a client at B heard of another message than the one that was sent")
        pair.take_answers(1)
    return {"p50": percentile(taken[WARM_UP:], 50), "p99": percentile(taken[WARM_UP:], 99)}
