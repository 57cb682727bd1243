"""Persistent connections to one node, each for one request at a time."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar
from urllib.parse import quote

from eventd.client.refusals.kinds import Lost, WrongTls
from eventd.errors import Invalid
from eventd.net.address import Address
from eventd.net.connecting import connect
from eventd.net.exchange import Answer, AnswerTooLarge, Exchange, NoAnswer, Pool
from eventd.net.web_socket import WebSocket
from eventd.runtime.clock import SystemClock
from eventd.tls.contexts import ClientTls
from eventd.tls.files import SYSTEM_CAS
from eventd.tls.reasons import HandshakeFailed, Reason, describe, failure_at_client

P = TypeVar("P", bound=asyncio.BaseProtocol)
CONNECT_SECONDS = 10.0
MOST_BYTES = 1 << 30
"""Maximum bytes of an answer."""


class Transport:
    """Sends requests to one node, over TCP or a Unix `socket`; any number of requests may be under way."""

    def __init__(
        self,
        address: Address,
        key: str,
        socket: Path | None,
        headers: Mapping[str, str],
        tls: ClientTls | None = None,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        """`tls` applies to an https address; without one, the system's CAs verify the node.

        `most_bytes`: size of the largest answer that is accepted.
        """
        self._most_bytes = most_bytes
        if not key.isprintable():
            raise Invalid(
                "the API key contains a line break or another unprintable character", hint="give the key without it"
            )
        self._address = address
        self._socket = socket
        self._prefix = quote(address.prefix, safe="/%:@!$&'()*+,;=~")
        host = f"[{address.host}]" if ":" in address.host else address.host
        lines = [f"Host: {host}:{address.port}", "Accept: application/json", "User-Agent: routerd-eventd-client"]
        lines += [f"Authorization: Bearer {key}"] if key else []
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self._lines = "\r\n".join(lines)
        self._pool = Pool(lambda: asyncio.get_running_loop().time())  # a client may be created before there is a loop
        self.tls = (tls or ClientTls(SYSTEM_CAS, None, SystemClock().now)) if address.secure else None

    async def ask(
        self,
        method: str,
        path: str,
        content: bytes | None,
        seconds: float,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> Answer:
        """Send one request, with more headers, and return its answer, of any status.

        Raises `Lost` if none is complete within `seconds`.
        """
        content_headers = (
            "" if content is None else f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n"
        )
        more = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        head = f"{method} {self._prefix}{path} HTTP/1.1\r\n{self._lines}\r\n{more}{content_headers}\r\n".encode()
        try:
            async with asyncio.timeout(seconds):
                exchange = self._pool.take() or await self._connect()
                return await self._pool.ask(exchange, head, content or b"", self._most_bytes)
        except TimeoutError:
            raise self.lost(f"no answer within {seconds:g} s") from None
        except AnswerTooLarge:
            raise self.lost(f"its answer is larger than {self._most_bytes} bytes") from None
        except (ssl.SSLError, HandshakeFailed) as error:
            raise self.failed(error) from None
        except (NoAnswer, OSError, UnicodeError) as error:
            raise self.lost(_words(error)) from None

    async def open_socket(self, path: str, token: Callable[[int], bytes]) -> WebSocket:
        """Open a WebSocket; `token` returns random bytes. Raises `Lost`, and `UpgradeRefused` with another answer."""
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                socket = await self._open(partial(WebSocket, token))
                await socket.open(f"GET {self._prefix}{path} HTTP/1.1\r\n{self._lines}")
                return socket
        except TimeoutError:
            raise self.lost(f"no answer within {CONNECT_SECONDS:g} s") from None
        except (ssl.SSLError, HandshakeFailed) as error:
            raise self.failed(error) from None
        except (NoAnswer, AnswerTooLarge, OSError, UnicodeError) as error:
            raise self.lost(_words(error)) from None

    async def _connect(self) -> Exchange:
        async with asyncio.timeout(CONNECT_SECONDS):
            return await self._open(Exchange)

    async def _open(self, make: Callable[[], P]) -> P:
        if not self._socket:
            return await connect(make, self._address.host, self._address.port, self.tls)
        _, made = await asyncio.get_running_loop().create_unix_connection(make, str(self._socket))
        return made

    def failed(self, error: Exception) -> Lost:
        """Return the error for a failed TLS handshake: `WrongTls` if another attempt would fail as well."""
        failure = failure_at_client(error)
        kind = Lost if failure.reason is Reason.FAILED else WrongTls
        return kind(
            describe(failure, self._address),
            hint="check the CA, the server name, the pin and the client certificate; see docs/how-to/tls.md",
        )

    def lost(self, words: str) -> Lost:
        """Return the error for a request without an answer, or a broken stream; `words` say why."""
        return Lost(
            f"cannot reach {self._address}: {words}",
            hint="check that the node is running and that this is the address of its API",
        )

    def close(self) -> None:
        """Close all connections to the node."""
        self._pool.close()


def _words(error: Exception) -> str:
    number = getattr(error, "errno", None)
    if number and number > 0:
        return os.strerror(number)
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
