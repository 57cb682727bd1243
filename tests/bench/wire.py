"""A light HTTP/1.1 client: requests are bytes made beforehand, answers are looked at when the clock has stopped.

A Python client is easily slower than what it measures. This one spends some microseconds on a request, and every run
tells which share of a core it took (`busy`): near 1 the figures are those of the client.
"""

from __future__ import annotations

import asyncio
import gc
import json
import time
from collections.abc import Coroutine, Sequence
from typing import Any, NamedTuple, TypeVar, cast

import uvloop

T = TypeVar("T")

_HEAD_END = b"\r\n\r\n"
_LENGTH = b"\r\ncontent-length:"
SECONDS = 600.0
"""After which a run that does not end is taken for a fault."""


def run_alone(main: Coroutine[Any, Any, T]) -> T:
    """Run on a loop of the kind that the node has."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


def compact(value: Any) -> bytes:
    """As JSON, without white space."""
    return json.dumps(value, separators=(",", ":")).encode()


def request(method: str, path: str, body: Any = None, **headers: str) -> bytes:
    """One request. A `body` that is no bytes goes out as JSON."""
    content = b"" if body is None else body if isinstance(body, bytes) else compact(body)
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    lines.append(f"Content-Length: {len(content)}")
    return "\r\n".join(lines).encode() + _HEAD_END + content


class Answer(NamedTuple):
    """What came back."""

    status: int
    body: bytes

    def json(self) -> Any:
        """The body, of an answer that is none of an error."""
        assert self.status in (200, 201), f"{self.status}: {self.body[:500]!r}"
        return json.loads(self.body)


def read_answer(raw: bytes) -> Answer:
    """The parts of an answer."""
    head, _, body = raw.partition(_HEAD_END)
    return Answer(int(head[9:12]), body)


def length_of(data: bytes | bytearray) -> int:
    """Bytes of the answer that begins here; 0 while that cannot be told."""
    end = data.find(_HEAD_END)
    if end < 0:
        return 0
    at = data[:end].lower().find(_LENGTH)
    if at < 0:
        raise AssertionError(f"an answer without a length: {bytes(data[:end])!r}")
    line = data.find(b"\r\n", at + 2)
    return end + len(_HEAD_END) + int(data[at + len(_LENGTH) : line])


class Line(asyncio.Protocol):
    """One connection that stays open: one question at a time."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._buffer = bytearray()
        self._length = 0
        self._answer: asyncio.Future[bytes] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        whole: bytes | bytearray = data
        if self._buffer:
            self._buffer += data
            whole = self._buffer
        self._length = self._length or length_of(whole)
        if not self._length or len(whole) < self._length:
            if whole is data:
                self._buffer += data
            return
        answer = bytes(whole)
        self._buffer, self._length = bytearray(), 0
        self.answered(answer)

    def answered(self, raw: bytes) -> None:
        """A whole answer is here."""
        future, self._answer = self._answer, None
        assert future is not None, f"an answer that nobody asked for: {raw[:200]!r}"
        future.set_result(raw)

    def connection_lost(self, error: Exception | None) -> None:
        future, self._answer = self._answer, None
        if future is not None and not future.done():
            future.set_exception(ConnectionResetError("the connection was lost"))

    def ask(self, asked: bytes) -> asyncio.Future[bytes]:
        """Ask; the raw answer, or ConnectionResetError."""
        if self.transport.is_closing():
            raise ConnectionResetError("the connection was lost")
        self._answer = self._loop.create_future()
        self.transport.write(asked)
        return self._answer

    def close(self) -> None:
        """End it; without waiting for what was not sent."""
        self.transport.abort()


class _Caller(Line):
    """Asks a row of questions, each as soon as the one before is answered; no task is woken for it."""

    def __init__(self, asked: Sequence[bytes]) -> None:
        super().__init__()
        self.done: asyncio.Future[None] = self._loop.create_future()
        self.answers: list[bytes] = []
        self.latencies: list[float] = []
        self._ahead = iter(asked)
        self._begun = 0.0

    def begin(self) -> None:
        """Ask the next one, if there is any."""
        following = next(self._ahead, None)
        if following is None:
            self.done.set_result(None)
            return
        self._begun = time.perf_counter()
        self.transport.write(following)

    def answered(self, raw: bytes) -> None:
        self.latencies.append(time.perf_counter() - self._begun)
        self.answers.append(raw)
        self.begin()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(ConnectionResetError("the connection was lost"))


class Load(NamedTuple):
    """What a run of several clients gave: answers by client, seconds of each question, of all, and of a core."""

    answers: list[list[bytes]]
    latencies: list[float]
    seconds: float
    busy: float

    @property
    def calls(self) -> int:
        return len(self.latencies)

    @property
    def rate(self) -> float:
        """Calls a second."""
        return self.calls / self.seconds

    def percentile(self, percent: float) -> float:
        """Milliseconds."""
        return percentile(self.latencies, percent)

    def jsons(self) -> list[list[Any]]:
        """The bodies of all answers by client, none of which may be an error."""
        return [[read_answer(raw).json() for raw in answers] for answers in self.answers]


def percentile(seconds: Sequence[float], percent: float) -> float:
    """In milliseconds."""
    ordered = sorted(seconds)
    return round(ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))] * 1000, 3)


async def open_line(port: int) -> Line:
    """A connection to this machine."""
    _, line = await asyncio.get_running_loop().create_connection(Line, "127.0.0.1", port)
    return line


async def load(port: int, asked: Sequence[Sequence[bytes]]) -> Load:
    """As many clients as there are rows of questions, each with a connection of its own, all at once."""
    loop = asyncio.get_running_loop()
    callers = [
        (await loop.create_connection(lambda some=some: _Caller(some), "127.0.0.1", port))[1]  # type: ignore[misc]
        for some in asked
    ]
    gc.collect()
    gc.disable()
    try:
        cpu, begun = time.process_time(), time.perf_counter()
        for caller in callers:
            caller.begin()
        async with asyncio.timeout(SECONDS):
            await asyncio.gather(*(caller.done for caller in callers))
        seconds, busy = time.perf_counter() - begun, time.process_time() - cpu
    finally:
        gc.enable()
        for caller in callers:
            caller.close()
    latencies = [seconds for caller in callers for seconds in caller.latencies]
    return Load([caller.answers for caller in callers], latencies, seconds, round(busy / seconds, 2))


async def tell(port: int, method: str, path: str, body: Any = None) -> Any:
    """Ask one thing aside from the measurement: the JSON of its answer."""
    line = await open_line(port)
    try:
        return read_answer(await line.ask(request(method, path, body))).json()
    finally:
        line.close()
