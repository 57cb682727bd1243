"""The light client of `routerctl bench`, for a node of this machine that requires no key."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from functools import cache
from typing import Any, TypeVar

import msgspec
import uvloop

from eventd.bench import wire
from eventd.bench.wire import HEAD_END, HttpConnection, NodeClient, percentile, read_answer
from eventd.net.address import Address

__all__ = [
    "HttpConnection",
    "LoadResult",
    "call",
    "client_of",
    "compact",
    "load",
    "open_line",
    "percentile",
    "read_answer",
    "request",
]

T = TypeVar("T")


class LoadResult(wire.LoadResult):
    """The result of several clients, with the figures that the measurements of this folder report."""

    @property
    def rate(self) -> float:
        """Return the requests per second."""
        return self.calls / self.seconds

    def percentile(self, percent: float) -> float:
        """Return a percentile of the latencies in milliseconds."""
        return percentile(self.latencies, percent)


def run_alone(main: Coroutine[Any, Any, T]) -> T:
    """Run on an event loop of the kind that the node uses."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


def compact(value: Any) -> bytes:
    """Return a value as JSON without white space."""
    return msgspec.json.encode(value)


def request(method: str, path: str, body: Any = None, **headers: str) -> bytes:
    """Return one request. A `body` that is not bytes is sent as JSON."""
    head, _, content = client_of(80).request(method, path, body).partition(HEAD_END)
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([head.decode(), *lines]).encode() + HEAD_END + content


async def open_line(port: int) -> HttpConnection:
    """Return a connection to this machine."""
    return await client_of(port).open(HttpConnection)


async def load(port: int, asked: Sequence[Sequence[bytes]]) -> LoadResult:
    """Run as many concurrent clients as there are rows of requests, each with a connection of its own."""
    return LoadResult(*await client_of(port).load(asked))


async def call(port: int, method: str, path: str, body: Any = None) -> Any:
    """Send one request outside the measurement; return the JSON of its answer."""
    return await client_of(port).call(method, path, body)


@cache
def client_of(port: int) -> NodeClient:
    """Return the client of a node of this machine."""
    return NodeClient(Address(False, "127.0.0.1", port, ""))
