"""One POST to a peer, and what its answer says about the link.

Three outcomes concern the link as a whole: no answer, "not now" (429, 5xx), and a refusal (other statuses). Answers
about a record are read by the protocols.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from functools import lru_cache, partial
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, urlsplit

from eventd.egress.loop.sink import Blocked, LinkError, LinkUnavailable
from eventd.net.connecting import connect
from eventd.net.exchange import Answer, AnswerTooLarge, Exchange, NoAnswer, Pool
from eventd.runtime.clock import SECOND, Clock
from eventd.tls.contexts import ClientTls
from eventd.tls.files import SYSTEM_CAS, CertificateUnusable, ClientTlsConfig
from eventd.tls.plain_http import wants_tls
from eventd.tls.reasons import HandshakeFailed, Reason, failure_at_client
from federation.event import micros
from federation.wire import read_error

MAX_ANSWER = 64 << 10
"""Maximum bytes of an answer's body, unless the request allows more."""
CONNECT_SECONDS = 10.0


class ConnectionOrigin(NamedTuple):
    """Where a connection leads: host and port; if `secure`, over TLS as `tls` declares, to the node `node`."""

    secure: bool
    host: str
    port: int
    tls: ClientTlsConfig = SYSTEM_CAS
    node: str = ""


@dataclass(slots=True)
class _Attempt:
    """One request, which may take that many `seconds` in all."""

    origin: ConnectionOrigin
    seconds: float
    is_connecting: bool = False

    @property
    def connect_seconds(self) -> float:
        return min(self.seconds, CONNECT_SECONDS)

    def overdue(self) -> str:
        """Return a message that names what was late: the connection, or the answer."""
        if self.is_connecting:
            kind = "TLS connection" if self.origin.secure else "connection"
            return f"no {kind} to {_address(self.origin)} within {self.connect_seconds:g} s"
        return f"no answer within {self.seconds:g} s"


class Transport:
    """An HTTP client with persistent connections to peers, without cookies and redirects."""

    def __init__(self, clock: Clock, credentials: Path | None = None) -> None:
        """`credentials` is the folder of the service manager's secrets."""
        self._clock = clock
        self._credentials = credentials
        self._pools: defaultdict[ConnectionOrigin, Pool] = defaultdict(lambda: Pool(clock.monotonic))
        self._tls: dict[ClientTlsConfig, ClientTls] = {}
        self._closed = False

    def tls_of(self, declared: ClientTlsConfig) -> ClientTls:
        """Return the TLS of connections that are declared like this; its files are read when it is first used."""
        if declared not in self._tls:
            self._tls[declared] = ClientTls(declared, self._credentials, self._clock.now)
        return self._tls[declared]

    def forget_tls(self, declared: Collection[ClientTlsConfig]) -> None:
        """Forget the TLS of all peers but these, which are the ones declared now."""
        self._tls = {one: tls for one, tls in self._tls.items() if one in declared}

    async def post(
        self,
        url: str,
        body: bytes,
        headers: Mapping[str, str],
        *,
        seconds: float,
        most: int = MAX_ANSWER,
        tls: ClientTlsConfig = SYSTEM_CAS,
        node: str = "",
    ) -> Answer:
        """POST, and return the answer. Over https, verify the other end by `tls`, and that it is `node`.

        Raises `LinkUnavailable` without an answer of up to `most` bytes in time, `Blocked` if the other end is another
        one or refuses this node, and `LinkError` if a file of `tls` cannot be used.
        """
        origin, begin = _read_url(url)
        if origin.secure:
            origin = origin._replace(tls=tls, node=node)
        fields = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
        head = f"{begin}{fields}Content-Length: {len(body)}\r\n\r\n".encode()
        attempt = _Attempt(origin, seconds)
        try:
            async with asyncio.timeout(seconds):
                return await self._ask(attempt, head, body, most)
        except (ssl.SSLError, HandshakeFailed) as error:
            failure = failure_at_client(error)
            if failure.reason is Reason.NOT_SPOKEN and not attempt.is_connecting:  # it spoke TLS, and then did not
                raise LinkUnavailable(Reason.FAILED, f"{_address(origin)} answered with invalid TLS") from None
            raise _blocked(failure, origin) from None
        except CertificateUnusable as error:
            raise LinkError(Reason.FILES, str(error)) from None
        except AnswerTooLarge:
            raise LinkUnavailable("answer_too_large", f"the peer's answer is larger than {most} bytes") from None
        except TimeoutError as error:
            if error.errno is None:
                raise LinkUnavailable("timeout", attempt.overdue()) from None
            raise LinkUnavailable("unreachable", _words(error, origin)) from None  # the system gave up first
        except (NoAnswer, OSError) as error:
            raise LinkUnavailable("unreachable", _words(error, origin)) from None

    async def _ask(self, attempt: _Attempt, head: bytes, body: bytes, most: int) -> Answer:
        pool = self._pools[attempt.origin]
        try:
            return await pool.ask(partial(self._connect, attempt), head, body, most)
        finally:
            if self._closed:  # another attempt may have connected meanwhile
                pool.close()

    async def _connect(self, attempt: _Attempt) -> Exchange:
        origin = attempt.origin
        attempt.is_connecting = True
        tls = self.tls_of(origin.tls) if origin.secure else None
        async with asyncio.timeout(attempt.connect_seconds):
            exchange = await connect(Exchange, origin.host, origin.port, tls, origin.node)
        attempt.is_connecting = False
        return exchange

    def link_error(self, answer: Answer, endpoint: str, *, code: str = "", detail: str = "") -> LinkError:
        """Return the error that an unexpected answer means for the link to the peer at `endpoint`.

        That is `LinkUnavailable` for 429 and 5xx, and `Blocked` for others. `code` is the error code in the answer, if
        it has one: it becomes the reason, unless the answer shows that the endpoint is wrong.
        """
        if wants_tls(answer.status, answer.body):
            return Blocked(Reason.REQUIRED, f"{endpoint} speaks TLS, but the endpoint begins with http://")
        if is_of_an_api(answer):
            return Blocked("not_a_listener", f"{endpoint} is {_API}")
        message = (
            f"the peer answered {answer.status}" + (f" {code}" if code else "") + (f": {detail}" if detail else "")
        )
        reason = code or f"http_{answer.status}"
        path = urlsplit(endpoint).path
        if answer.status == 404 and path:
            message += (
                f"; the endpoint has the path {path!r}, but a peer serves its paths at the root: leave the path out"
            )
            return Blocked("wrong_path", message)
        if answer.status == 429 or answer.status >= 500:
            return LinkUnavailable(reason, message, retry_after=self._retry_after(answer))
        return Blocked(reason, message)

    def _retry_after(self, answer: Answer) -> float | None:
        """Return the seconds in `Retry-After`, in either form (RFC 9110, 10.2.3); None without a valid header."""
        text = answer.headers.get("retry-after", "").strip()
        if text.isascii() and text.isdigit():
            return float(text[:9])
        try:
            when = parsedate_to_datetime(text)
        except (ValueError, OverflowError):  # the latter for a year or an offset beyond the system's integers
            return None
        when = when.replace(tzinfo=UTC) if when.tzinfo is None else when  # "-0000": a time in an unspecified zone
        return max(0.0, (micros(when) - self._clock.now()) / SECOND)

    async def close(self) -> None:
        """Close every connection."""
        self._closed = True
        for pool in self._pools.values():
            pool.close()


_API = "a node's API and not a peer listener: use the port of `spec.listen` of its EventGroup"


def is_of_an_api(answer: Answer) -> bool:
    """Return whether a node's API answered instead of a group's listener: a common mistake in an endpoint."""
    if answer.status not in (401, 404):
        return False
    error = read_error(answer.body)
    code = error.code if error is not None else ""
    if answer.status == 404:
        return code == "no_such_route"
    # A peer listener has the same code, but does not ask for this kind of key; a proxy that does has no such code.
    return code == "unauthorized" and answer.headers.get("www-authenticate", "").startswith("Bearer")


@lru_cache(maxsize=1024)
def _read_url(url: str) -> tuple[ConnectionOrigin, str]:
    """Return where a URL leads to, without its TLS, and the request line and `Host` of a POST to it."""
    parts = urlsplit(url)
    secure, host = parts.scheme == "https", parts.hostname or ""
    path = quote(parts.path or "/", safe="/%:@!$&'()*+,;=~")
    port = parts.port or (443 if secure else 80)
    return ConnectionOrigin(secure, host, port), f"POST {path} HTTP/1.1\r\nHost: {parts.netloc}\r\n"


def _blocked(failure: HandshakeFailed, origin: ConnectionOrigin) -> LinkError:
    """Return the error for a failed handshake: only one without a known reason may pass by itself."""
    detail = f"TLS with {_address(origin)} failed: {failure.detail}"
    if failure.reason is Reason.FAILED:
        return LinkUnavailable(failure.reason, detail)
    return Blocked(failure.reason, detail)


def _words(error: Exception, origin: ConnectionOrigin) -> str:
    if isinstance(error, NoAnswer):
        return str(error)
    if isinstance(error, socket.gaierror):
        return f"the name {origin.host!r} cannot be resolved"
    number = error.errno if isinstance(error, OSError) else None
    return f"cannot connect to {_address(origin)}: {os.strerror(number) if number and number > 0 else error}"


def _address(origin: ConnectionOrigin) -> str:
    """Return host and port as a URL writes them, without the user and password that it may contain."""
    host = f"[{origin.host}]" if ":" in origin.host else origin.host
    return f"{host}:{origin.port}"
