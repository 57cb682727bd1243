"""Requests to a node over HTTP: a request and its answer, with retries, or a stream of server-sent events."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from decimal import Decimal
from math import isfinite
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from eventd.client.refusals.answers import restore
from eventd.client.refusals.kinds import OTHER_SERVER, Lost, WrongTls
from eventd.client.transport import CONNECT_SECONDS, MOST_BYTES, Transport
from eventd.errors import EventdError, Invalid, NotFound, Unavailable
from eventd.net.address import Address
from eventd.net.web_socket import UpgradeRefused, WebSocket
from eventd.runtime.chance import SYSTEM, Chance
from eventd.runtime.clock import SystemClock
from eventd.tls.contexts import ClientTls
from eventd.tls.files import CertificateUnusable, ClientTlsConfig
from eventd.tls.reasons import HandshakeFailed

if TYPE_CHECKING:
    from aiohttp import BaseConnector, ClientSession, StreamReader

REQUEST_SECONDS = 60.0
MAX_ERROR_BYTES = 1 << 20
MAX_FRAME_BYTES = 256 << 20
"""Maximum bytes of one server-sent event of a stream."""
_NOT_NOW = (429, 502, 503, 504)
_ERRORS = 400

T = TypeVar("T")
Query = Mapping[str, str | int | bool | None]
Pause = Callable[[float], Awaitable[None]]


class Retry(NamedTuple):
    """How a request is retried: up to `tries` attempts in all; the delays double from `base` to `most` seconds.

    No retry begins later than `patience` seconds, plus those that the request lets the node wait, after the first
    attempt. `patience` must be below a topic's `idempotency_window_ms`: a write repeated later is another write.
    """

    tries: int = 10
    base: float = 0.1
    most: float = 5.0
    patience: float = 60.0

    def delay(self, failures: int, chance: float, wanted: float = 0.0) -> float:
        """Return the seconds to wait after `failures` failures in a row, but at least `wanted`, capped at an hour.

        `chance`, from 0 to 1, spreads the retries of many clients: at 0 the wait is a fifth shorter.
        """
        nominal = min(self.most, self.base * 2.0 ** min(failures - 1, 30))
        return max(nominal * (0.8 + 0.2 * chance), min(wanted, 3600.0))


USUAL = Retry()
ONCE = Retry(tries=1)


class Frame(NamedTuple):
    """One server-sent event, with its fields as the node sent them."""

    id: str
    event: str
    data: bytes


async def pause(seconds: float) -> None:
    """Wait for this number of seconds by the event loop's clock."""
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    timer = asyncio.get_running_loop().call_later(seconds, lambda: None if over.done() else over.set_result(None))
    try:
        await over
    finally:
        timer.cancel()


@contextmanager
def only_text() -> Iterator[None]:
    """In the block, raise `Invalid` if a text is encoded that has no UTF-8 form, such as one with lone surrogates."""
    try:
        yield
    except UnicodeEncodeError as error:
        raise Invalid(f"{error.object[:60]!r} is not text: it contains bytes that are not UTF-8") from None


def path_of(family: str, *parts: str) -> str:
    """Return the path `/v0/FAMILY/PART/…`, each part percent-encoded. Raises `Invalid` for an empty part."""
    if not all(parts):
        raise Invalid(f"a name in the path /v0/{family}/… of a request is empty", hint="give a name")
    with only_text():
        return "/".join(("/v0", family, *(quote(part, safe="") for part in parts)))


class SocketNotOffered(EventdError):
    """The server answered the request for a WebSocket, and offers none there."""


class Connection:
    """Sends requests to the node at `server` (`http://HOST:PORT`), over TCP or over a Unix `socket` of the node."""

    def __init__(
        self,
        server: str,
        key: str = "",
        *,
        socket: Path | None = None,
        tls: ClientTlsConfig | None = None,
        headers: Mapping[str, str] = MappingProxyType({}),
        retry: Retry = USUAL,
        pause: Pause = pause,
        chance: Chance = SYSTEM,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        """`most_bytes`: size of the largest answer that is accepted; a larger answer counts as no answer."""
        self.address = Address.parse(server)
        self.retry = retry
        self.pause = pause
        self.chance = chance
        self._key = key
        self._socket = socket
        self._headers = headers
        if tls is not None and not self.address.secure:
            raise Invalid(
                f"{self.address} is not reached over TLS", hint="write https:// in its address, or leave tls out"
            )
        of_tls = ClientTls(tls, None, SystemClock().now) if tls else None
        self._transport = Transport(self.address, key, socket, headers, of_tls, most_bytes)
        self._session: ClientSession | None = None

    def delay(self, failures: int, wanted: float = 0.0) -> float:
        """Return the seconds to wait after `failures` failures in a row; `wanted`: the seconds the node asked for."""
        return self.retry.delay(failures, self.chance.fraction(), wanted)

    async def ask(
        self,
        method: str,
        path: str,
        answer: type[T],
        body: Any = None,
        *,
        query: Query | None = None,
        wait: float = 0.0,
    ) -> T:
        """Send a request and return its answer, decoded as `answer`.

        `wait` extends the time limit of an attempt, and the patience, by that many seconds. The request is repeated
        within `retry` if no answer comes, or a 429, 502, 503 or 504, so it must be idempotent; not if the node is not
        the right one (`WrongTls`). Raises the `EventdError` that the answer denotes, and `Unavailable` after the last
        attempt.
        """
        with only_text():
            content = None if body is None else msgspec.json.encode(body)
            target = path + _tail(query)
        begun = asyncio.get_running_loop().time()
        for failures in itertools.count(1):
            try:
                reply = await self.send(method, target, content, REQUEST_SECONDS + wait)
                return self.decode(reply, answer)
            except (WrongTls, CertificateUnusable):  # another attempt would fail as well
                raise
            except Unavailable as error:
                delay = self.delay(failures, getattr(error, "retry_after", 0.0))
                late = asyncio.get_running_loop().time() - begun + delay > self.retry.patience + wait
                if failures >= self.retry.tries or late:
                    raise
            await self.pause(delay)
        raise AssertionError("unreachable")

    async def reach(self) -> None:
        """Check with one request, without retries, that the node answers. Raises `Unavailable` or its refusal."""
        await self.send("GET", "/v0/health", None, REQUEST_SECONDS)

    async def send(
        self,
        method: str,
        path: str,
        content: bytes | None,
        seconds: float,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> bytes:
        """Send a request once, with more headers, and return the body of its answer.

        Raises the `EventdError` of a refusal, and `Lost`.
        """
        answer = await self._transport.ask(method, path, content, seconds, headers)
        require_success(answer.status, answer.headers.get("retry-after", ""), answer.body)
        return answer.body

    async def open_socket(self, path: str) -> WebSocket:
        """Open a WebSocket, without retries.

        Raises `SocketNotOffered` if the node, or a proxy before it, offers none there, the `EventdError` of a refusal,
        and `Lost`.
        """
        try:
            return await self._transport.open_socket(path, self.chance.token)
        except UpgradeRefused as refused:
            answer = refused.answer
        error = restore(answer.status, answer.body)
        if answer.status in (401, 403, 502, 503, 504) or (isinstance(error, NotFound) and error.code == NotFound.code):
            require_success(answer.status, answer.headers.get("retry-after", ""), answer.body)
        raise SocketNotOffered(f"{self.address} answers a request for a WebSocket with status {answer.status}")

    def lost(self, words: str) -> EventdError:
        """Return the error for a connection that has ended; `words` say why."""
        return self._transport.lost(words)

    def decode(self, content: bytes, answer: type[T]) -> T:
        """Decode a body or an event from the node. Raises `EventdError` if it has another form than `answer`."""
        try:
            return _decode(content, answer)
        except (msgspec.DecodeError, ValueError, RecursionError):
            raise EventdError(f"{self.address} answers, but not as a routerd-eventd does", hint=OTHER_SERVER) from None

    @asynccontextmanager
    async def stream(
        self, path: str, *, query: Query | None = None, last_id: str = "", silence: float
    ) -> AsyncIterator[AsyncIterator[Frame]]:
        """Open a stream of server-sent events, without retries; after the event `last_id`, if the node knows it.

        Raises the `EventdError` of a refusal, and `Lost` if the stream breaks or is silent for `silence` seconds.
        """
        from aiohttp import ClientError, ClientSSLError, ClientTimeout

        headers = {"Accept": "text/event-stream", **({"Last-Event-ID": last_id} if last_id else {})}
        timeout = ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=silence)
        with only_text():
            target = path + _tail(query)
        try:
            async with self._open().get(
                self._url(target), headers=headers, timeout=timeout, allow_redirects=False, **await self._tls_options()
            ) as response:
                if response.status >= _ERRORS:
                    body = await response.content.read(MAX_ERROR_BYTES)
                    require_success(response.status, response.headers.get("Retry-After", ""), body)
                yield _frames(response.content)
        except _FrameTooLarge:
            raise Lost(
                f"{self.address} sent an event of more than {MAX_FRAME_BYTES >> 20} MiB in a stream", hint=OTHER_SERVER
            ) from None
        except TimeoutError:
            raise self._transport.lost(f"no answer within {silence:g} s") from None
        except HandshakeFailed as error:
            raise self._transport.failed(error) from None
        except ClientSSLError as error:
            raise self._transport.failed(error.os_error) from None
        except (ClientError, OSError) as error:
            inner = getattr(error, "os_error", error)
            words = getattr(inner, "strerror", None) or str(error) or type(error).__name__
            raise self._transport.lost(words) from None

    def _open(self) -> ClientSession:
        from aiohttp import ClientSession

        if self._session is None:
            headers = {"Accept": "application/json", "User-Agent": "routerd-eventd-client", **self._headers}
            if self._key:
                headers["Authorization"] = f"Bearer {self._key}"
            self._session = ClientSession(connector=self._connector(), headers=headers, auto_decompress=False)
        return self._session

    def _connector(self) -> BaseConnector:
        from aiohttp import TCPConnector, UnixConnector

        if self._socket:
            return UnixConnector(str(self._socket))
        if self._transport.tls is None:
            return TCPConnector(limit=0)
        from eventd.client.verifying import TlsCheck

        return TCPConnector(limit=0, ssl=TlsCheck(self._transport.tls))

    async def _tls_options(self) -> dict[str, Any]:
        """Return the options of an aiohttp request for TLS; empty without TLS. Raises `CertificateUnusable`."""
        tls = self._transport.tls
        if tls is None:
            return {}
        return {"ssl": (await tls.load()).context, "server_hostname": tls.server_name(self.address.host)}

    def _url(self, path: str) -> Any:
        from yarl import URL

        return URL(f"{self.address}{path}", encoded=True)

    async def close(self) -> None:
        """Close all connections to the node."""
        self._transport.close()
        if self._session is not None:
            await self._session.close()
            self._session = None


def _decode(content: bytes, answer: type[T]) -> T:
    try:
        return msgspec.json.decode(content, type=answer)
    except msgspec.DecodeError:
        # A node keeps numbers as written, and JSON allows numbers that no float represents.
        return msgspec.convert(json.loads(content, parse_float=_number), answer)


def _number(text: str) -> float | Decimal:
    number = float(text)
    return number if isfinite(number) else Decimal(text)


def require_success(status: int, retry_after: str, content: bytes) -> None:
    """Raise the `EventdError` of an answer that is a refusal; `retry_after` is that header, or empty."""
    if status < _ERRORS:
        return
    error = restore(status, content)
    if status in _NOT_NOW:
        vars(error)["retry_after"] = _seconds(retry_after)
    raise error


def _seconds(text: str) -> float:
    return float(text) if text.isascii() and text.isdigit() and len(text) < 9 else 0.0


def _tail(query: Query | None) -> str:
    fields = {name: value for name, value in (query or {}).items() if value not in (None, "")}
    texts = {name: str(value).lower() if isinstance(value, bool) else value for name, value in fields.items()}
    return f"?{urlencode(texts)}" if texts else ""


class _FrameTooLarge(Exception):
    """An event of a stream exceeds `MAX_FRAME_BYTES`."""


async def _frames(content: StreamReader) -> AsyncIterator[Frame]:
    """Yield the complete events of a stream that have data; comments and other events are skipped."""
    members: dict[bytes, bytes] = {}
    size = 0
    async for line in _lines(content):
        size = size + len(line) if line else 0
        if size > MAX_FRAME_BYTES:
            raise _FrameTooLarge
        if line:
            name, _, value = line.partition(b":")
            members[name] = value.removeprefix(b" ")
        else:
            if b"data" in members:
                id, event = members.get(b"id", b""), members.get(b"event", b"").decode(errors="replace")
                yield Frame(_id_of(id), event, members[b"data"])
            members = {}


def _id_of(value: bytes) -> str:
    """Return the id of a frame; empty if it is not UTF-8: a place that the node never named leads nowhere."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return ""


async def _lines(content: StreamReader) -> AsyncIterator[bytes]:
    """Yield complete lines without their line ends."""
    parts: list[bytes] = []
    size = 0
    async for chunk in content.iter_any():
        *whole, rest = chunk.split(b"\n")
        for line in whole:
            yield b"".join((*parts, line)).removesuffix(b"\r")
            parts.clear()
            size = 0
        if rest:
            parts.append(rest)
            size += len(rest)
        if size > MAX_FRAME_BYTES:
            raise _FrameTooLarge
