"""A light HTTP/1.1 client: requests are prepared bytes, answers are decoded after the clock has stopped.

A Python client is easily slower than the node that it measures, and shares the machine with it. This client spends some
microseconds on a request, and every run reports which share of a core it used (`busy`): near 1 the figures are those of
the client.
"""

from __future__ import annotations

import asyncio
import gc
import resource
import ssl
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar, cast

import msgspec

from eventd.api.errors.codes import restore
from eventd.errors import EventdError, Unavailable
from eventd.net.address import Address
from eventd.net.connecting import connect
from eventd.runtime.clock import SystemClock
from eventd.tls.contexts import ClientTls
from eventd.tls.files import SYSTEM_CAS, ClientTlsConfig
from eventd.tls.reasons import HandshakeFailed, describe, failure_at_client

P = TypeVar("P", bound=asyncio.BaseProtocol)

HEAD_END = b"\r\n\r\n"
_LENGTH = b"\r\ncontent-length:"
SECONDS = 600.0
"""Seconds after which a load that is not answered completely counts as failed."""
ASKING_SECONDS = 60.0
"""Seconds after which one request outside of a measurement counts as failed."""
LOOK_SECONDS = 0.1
"""Seconds between two reports of progress."""

now = SystemClock().monotonic


def cpu_now() -> float:
    """Return the processor seconds that this process has used."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


class HttpAnswer(NamedTuple):
    """The status and the body of an answer."""

    status: int
    body: bytes

    def json(self) -> Any:
        """Return the decoded body. Raises the node's error for any status but 200 and 201."""
        if self.status not in (200, 201):
            raise restore(self.status, self.body)
        return self.decoded()

    def decoded(self) -> Any:
        """Return the decoded body, also of an answer that reports a problem. Raises an error if it is not JSON."""
        try:
            return msgspec.json.decode(self.body)
        except msgspec.DecodeError:
            raise restore(self.status, self.body) from None


def read_answer(raw: bytes) -> HttpAnswer:
    """Return the status and the body of one complete answer."""
    head, _, body = raw.partition(HEAD_END)
    return HttpAnswer(int(head[9:12]), body)


def length_of(data: bytes | bytearray) -> int:
    """Return the length of the answer at the start of `data`, including its head; 0 if the head is incomplete."""
    end = data.find(HEAD_END)
    if end < 0:
        return 0
    at = data[:end].lower().find(_LENGTH)
    if at < 0:
        raise EventdError("an answer has no Content-Length", hint="give the node's own address, not that of a proxy")
    line = data.find(b"\r\n", at + 2)
    return end + len(HEAD_END) + int(data[at + len(_LENGTH) : line])


class HttpConnection(asyncio.Protocol):
    """One persistent HTTP connection, for one request at a time."""

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
        try:
            self._length = self._length or length_of(whole)
        except EventdError as error:
            self.failed(error)
            return
        if not self._length or len(whole) < self._length:
            if whole is data:
                self._buffer += data
            return
        answer = bytes(whole)
        self._buffer, self._length = bytearray(), 0
        self.answered(answer)

    def answered(self, raw: bytes) -> None:
        """Called when an answer has been received completely."""
        future, self._answer = self._answer, None
        if future is not None and not future.done():
            future.set_result(raw)

    def failed(self, error: Exception) -> None:
        """Called when no answer will come."""
        future, self._answer = self._answer, None
        if future is not None and not future.done():
            future.set_exception(error)

    def connection_lost(self, error: Exception | None) -> None:
        self.failed(_lost())

    def ask(self, asked: bytes) -> asyncio.Future[bytes]:
        """Send a request. Returns a future of the raw answer; it fails with `Unavailable` if the connection is lost."""
        if self.transport.is_closing():
            raise _lost()
        self._answer = self._loop.create_future()
        self.transport.write(asked)
        return self._answer

    def close(self) -> None:
        """Close the connection without waiting for unsent data."""
        self.transport.abort()


def _lost() -> Unavailable:
    return Unavailable("the connection to the node was lost", hint="check that the node is running")


class Caller(HttpConnection):
    """Sends a sequence of requests, each as soon as the previous one is answered, without waking a task.

    The first `keep` bytes of each answer are kept, 0 for all. An unsuccessful answer ends the sequence with an error.
    """

    def __init__(self, asked: Iterable[bytes], keep: int = 0) -> None:
        super().__init__()
        self.done: asyncio.Future[None] = self._loop.create_future()
        self.answers: list[bytes] = []
        self.latencies: list[float] = []
        self._ahead = iter(asked)
        self._keep = keep
        self._begun = 0.0

    def begin(self) -> None:
        """Send the next request, or end the sequence if none is left."""
        following = next(self._ahead, None)
        if following is None:
            self._end(None)
            return
        self._begun = now()
        self.transport.write(following)

    def answered(self, raw: bytes) -> None:
        self.latencies.append(now() - self._begun)
        if raw[9:12] not in (b"200", b"201"):
            self._end(restore(*read_answer(raw)))
            return
        self.answers.append(raw[: self._keep] if self._keep else raw)
        self.begin()

    def failed(self, error: Exception) -> None:
        self._end(error)

    def close(self) -> None:
        if not self.done.cancel() and not self.done.cancelled():
            self.done.exception()  # the first failure of all callers is reported
        super().close()

    def _end(self, error: Exception | None) -> None:
        if self.done.done():
            return
        if error is None:
            self.done.set_result(None)
        else:
            self.done.set_exception(error)


def nothing_sent() -> Unavailable:
    """Return the error of a measurement whose time was over before its first request."""
    return Unavailable("nothing was sent before the time was over", hint="give a longer --duration")


class LoadResult(NamedTuple):
    """The result of a load: answers by connection, seconds of each request, and seconds of the whole load.

    `busy` is the share of a core that this process used.
    """

    answers: list[list[bytes]]
    latencies: list[float]
    seconds: float
    busy: float

    @property
    def calls(self) -> int:
        return len(self.latencies)

    def jsons(self) -> list[list[Any]]:
        """Return the decoded bodies of all answers, by connection."""
        return [[read_answer(raw).json() for raw in answers] for answers in self.answers]


def percentile(seconds: Sequence[float], percent: float) -> float:
    """Return in milliseconds a percentile of times in seconds; 0 without times."""
    ordered = sorted(seconds)
    return round(ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))] * 1000, 3) if ordered else 0.0


class NodeClient:
    """Access to the API of one node: single requests, each over its own connection, and loads."""

    def __init__(self, address: Address, key: str = "", tls: ClientTlsConfig | None = None) -> None:
        """`tls` applies to an https address; without one, the system's CAs verify the node."""
        self.address = address
        self.key = key
        self.tls = tls
        self._verified = ClientTls(tls or SYSTEM_CAS, None, SystemClock().now) if address.secure else None
        host = f"[{address.host}]" if ":" in address.host else address.host
        lines = [f"Host: {host}:{address.port}", "Content-Type: application/json", "Accept: */*"]
        lines += [f"Authorization: Bearer {key}"] if key else []
        self._lines = "\r\n".join(lines)

    def request(self, method: str, path: str, body: Any = None) -> bytes:
        """Return the bytes of one request. A `body` that is not bytes is encoded as JSON."""
        content = b"" if body is None else body if isinstance(body, bytes) else msgspec.json.encode(body)
        head = f"{method} {self.address.prefix}{path} HTTP/1.1\r\n{self._lines}\r\nContent-Length: {len(content)}"
        return head.encode() + HEAD_END + content

    def head(self, path: str) -> str:
        """Return the head of a GET request, without the end of its last line."""
        return f"GET {self.address.prefix}{path} HTTP/1.1\r\n{self._lines}"

    async def open(self, make: Callable[[], P], **where: Any) -> P:
        """Open a connection; `where`, such as a connected `sock`, replaces the node's address. Raises `Unavailable`."""
        loop = asyncio.get_running_loop()
        try:
            if where:
                return (await loop.create_connection(make, **where))[1]
            return await connect(make, self.address.host, self.address.port, self._verified)
        except (ssl.SSLError, HandshakeFailed) as error:
            failure = failure_at_client(error)
            raise Unavailable(
                describe(failure, self.address), hint="check --ca-file, --server-name, --pin and --client-cert"
            ) from None
        except OSError as error:
            words = error.strerror or str(error) or type(error).__name__
            raise Unavailable(
                f"cannot reach {self.address}: {words}", hint="check that the node is running there"
            ) from None

    async def call(self, method: str, path: str, body: Any = None) -> Any:
        """Send one request outside of a measurement. Returns the answer's decoded JSON. Raises the node's error."""
        return (await self.ask(method, path, body)).json()

    async def ask(self, method: str, path: str, body: Any = None) -> HttpAnswer:
        """Send one request outside of a measurement. Returns the answer, also one that reports a problem."""
        line = await self.open(HttpConnection)
        try:
            async with asyncio.timeout(ASKING_SECONDS):
                raw = await line.ask(self.request(method, path, body))
        except TimeoutError:
            raise Unavailable(f"{self.address} did not answer {method} {path} in {ASKING_SECONDS:g} s") from None
        finally:
            line.close()
        return read_answer(raw)

    async def load(
        self, rows: Sequence[Iterable[bytes]], *, keep: int = 0, progress: Callable[[int], None] = lambda _: None
    ) -> LoadResult:
        """Send each sequence of requests over a connection of its own, concurrently, and return the answers and times.

        `progress` is called about ten times a second with the number of answers so far. Raises the first error, and
        `Unavailable` if no sequence had a request or after `SECONDS`.
        """
        callers: list[Caller] = []
        gc.collect()
        gc.disable()
        try:
            for some in rows:
                caller = await self.open(partial(Caller, some, keep))
                callers.append(caller)
            cpu, begun = cpu_now(), now()
            for caller in callers:
                caller.begin()
            await _all_done(callers, begun + SECONDS, progress)
            seconds, busy = now() - begun, cpu_now() - cpu
        finally:
            gc.enable()
            for caller in callers:
                caller.close()
        latencies = [seconds for caller in callers for seconds in caller.latencies]
        if rows and not latencies:
            raise nothing_sent()
        return LoadResult([caller.answers for caller in callers], latencies, seconds, round(busy / seconds, 2))


async def _all_done(callers: Sequence[Caller], deadline: float, progress: Callable[[int], None]) -> None:
    waiting = {caller.done for caller in callers}
    while waiting:
        done, waiting = await asyncio.wait(waiting, timeout=LOOK_SECONDS, return_when=asyncio.FIRST_EXCEPTION)
        for future in done:
            future.result()
        progress(sum(len(caller.latencies) for caller in callers))
        if now() > deadline:
            raise Unavailable(f"the node did not finish within {SECONDS:g} s")
