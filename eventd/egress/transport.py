"""One POST to a peer, and what its answer says about the link.

Only three kinds of answers are about the link as a whole here: no answer, "not now", and "not you". What an answer says
about a record is read by the protocols.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

import aiohttp

from eventd.clock import SECOND, Clock
from eventd.egress.sink import Blocked, HeldUp, Unavailable

MAX_ANSWER = 64 << 10
"""Bytes of an answer that are read, where what was asked does not make it longer."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back. Header names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Transport:
    """The node's client side: one connection pool for all peers, without cookies and without redirects."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ttl_dns_cache=30),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            skip_auto_headers=("User-Agent", "Accept-Encoding"),
        )

    async def post(
        self, url: str, body: bytes, headers: Mapping[str, str], *, seconds: float, most: int = MAX_ANSWER
    ) -> Answer:
        """POST with a Content-Length. Raises `Unavailable` without an answer of at most so many bytes in that time."""
        limits = aiohttp.ClientTimeout(total=seconds, sock_connect=min(seconds, 10.0))
        try:
            async with self._session.post(
                url, data=body, headers=headers, timeout=limits, allow_redirects=False
            ) as answer:
                read = await _read(answer, most)
                lowered = {name.lower(): value for name, value in answer.headers.items()}
                return Answer(answer.status, lowered, read)
        except TimeoutError:
            raise Unavailable("timeout", f"no answer within {seconds:g} s") from None
        except ssl.SSLError as error:
            raise Unavailable("tls", f"TLS failed: {error.reason or 'handshake'}") from None
        except (aiohttp.ClientError, OSError, asyncio.IncompleteReadError) as error:
            raise Unavailable("unreachable", _words(error)) from None

    def hold_up(self, answer: Answer, *, code: str = "", detail: str = "") -> HeldUp:
        """What an answer other than 2xx says about the link."""
        said = f"the peer answered {answer.status}" + (f" {code}" if code else "") + (f": {detail}" if detail else "")
        reason = code or f"http_{answer.status}"
        if answer.status == 429 or answer.status >= 500:
            return Unavailable(reason, said, retry_after=self._retry_after(answer))
        return Blocked(reason, said)

    def _retry_after(self, answer: Answer) -> float | None:
        """Seconds, from either form of the header (RFC 9110, 10.2.3)."""
        text = answer.headers.get("retry-after", "").strip()
        if text.isascii() and text.isdigit():
            return float(text[:9])
        try:
            return max(0.0, parsedate_to_datetime(text).timestamp() - self._clock.now() / SECOND)
        except ValueError:
            return None

    async def close(self) -> None:
        """Drop every connection."""
        await self._session.close()


async def _read(answer: aiohttp.ClientResponse, most: int) -> bytes:
    chunks: list[bytes] = []
    size = 0
    async for chunk in answer.content.iter_any():
        size += len(chunk)
        if size > most:
            answer.close()
            raise Unavailable("answer_too_large", f"the peer's answer is larger than {most} bytes")
        chunks.append(chunk)
    return b"".join(chunks)


def _words(error: BaseException) -> str:
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return f"the name {error.host!r} cannot be resolved"
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"cannot connect: {os.strerror(error.os_error.errno) if error.os_error.errno else error.os_error}"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "the peer closed the connection without an answer"
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
