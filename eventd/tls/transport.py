"""The server's end of one TLS connection, between a transport of the event loop and the protocol of the application.

The event loop's own TLS tells a listener of a connection only after the handshake, and closes a failed one without the
alert that tells the client why. Here a connection is known from its first byte, the work of its handshake can be
accounted to its address, and every refusal reaches the client.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final, Protocol

from eventd.tls.certificate import Certificate, UnreadableCertificate
from eventd.tls.reasons import HandshakeFailed, Reason, failure_at_server

RECORD_BYTES: Final = 16 << 10
"""Maximum bytes of one decrypted TLS record (RFC 8446, section 5.1)."""
WRITE_BYTES: Final = 256 << 10
"""Maximum bytes that are encrypted at a time."""
HANDSHAKE: Final = 0x16
"""The first byte of every TLS connection: a record of the type handshake (RFC 8446, section 5.1)."""


def client_certificate(transport: asyncio.BaseTransport | None) -> Certificate | None:
    """Return the verified certificate of a connection's client; None without one, and if only OpenSSL can read it."""
    tls = None if transport is None else transport.get_extra_info("ssl_object")
    shown = None if tls is None else tls.getpeercert(binary_form=True)
    return None if shown is None else _read(shown)


@lru_cache(maxsize=256)
def _read(shown: bytes) -> Certificate | None:
    try:
        return Certificate.of_der(shown)
    except UnreadableCertificate:
        return None


class Receiver(Protocol):
    """The methods of the application's protocol that are called here."""

    def data_received(self, data: bytes) -> None: ...

    def eof_received(self) -> bool | None: ...


class TlsTransport(asyncio.Transport):
    """Encrypts and decrypts one connection over the transport `raw`.

    Pass what arrives there to `receive`, also during the handshake. Writing is possible once `established`.
    """

    def __init__(self, raw: asyncio.Transport, context: ssl.SSLContext, now: Callable[[], int]) -> None:
        """`now` returns the time in microseconds since 1970."""
        super().__init__()
        self._now = now
        self._raw = raw
        self._arrived, self._to_send = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._arrived, self._to_send, server_side=True)
        self._ended = False
        self.established = False

    # --- what arrives -----------------------------------------------------------------------------------------

    def shake_hands(self, data: bytes) -> bool:
        """Take bytes of the handshake; return whether it is complete.

        Raises `HandshakeFailed`; OpenSSL's alert, if it made one, is sent first.
        """
        self._arrived.write(data)
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return False
        except ssl.SSLError as error:
            self._flush()  # the alert
            raise failure_at_server(error) from None
        self._flush()
        self._check_resumed()
        self.established = True
        return True

    def _check_resumed(self) -> None:
        """Raise `HandshakeFailed` if a client resumes a session (TLS 1.2) that began with a certificate expired by now.

        OpenSSL checks it only in full handshakes. The CA is the same: a session ends with its context.
        """
        shown = self._tls.getpeercert() if self._tls.session_reused else None
        if shown and ssl.cert_time_to_seconds(str(shown["notAfter"])) * 1_000_000 <= self._now():
            raise HandshakeFailed(Reason.CLIENT_EXPIRED, "the client's certificate has expired")

    def receive(self, data: bytes, receiver: Receiver) -> None:
        """Decrypt bytes, and pass the text to the application. Ends the connection if they are not valid TLS.

        Empty `data` passes on what arrived with the end of the handshake.
        """
        self._arrived.write(data)
        texts: list[bytes] = []
        ended = broken = False
        try:
            while text := self._tls.read(RECORD_BYTES):
                texts.append(text)
            ended = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            ended = True
        except ssl.SSLError:
            broken = True
        self._flush()  # the answer to a change of keys, or an alert
        if texts:
            receiver.data_received(b"".join(texts))
        if broken:
            self.abort()
        elif ended and not self._raw.is_closing() and not receiver.eof_received():
            self.close()

    def _flush(self) -> None:
        if self._to_send.pending and not self._raw.is_closing():
            self._raw.write(self._to_send.read())

    # --- what is sent -----------------------------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not data or self._ended or self._raw.is_closing():
            return
        rest = memoryview(data)
        try:
            while rest:  # in parts: the encrypted copy of a large answer would double its memory
                self._tls.write(rest[:WRITE_BYTES])
                rest = rest[WRITE_BYTES:]
                self._flush()
        except ssl.SSLError:
            self.abort()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        """Send all written data and the end of the TLS connection, then close."""
        if not self._ended and not self._raw.is_closing():
            self._ended = True
            if self.established:
                with suppress(ssl.SSLError):  # it wants the client's answer, which nothing waits for
                    self._tls.unwrap()
                self._flush()
        self._raw.close()

    def abort(self) -> None:
        self._ended = True
        self._raw.abort()

    def is_closing(self) -> bool:
        return self._ended or self._raw.is_closing()

    def can_write_eof(self) -> bool:
        return False

    # --- what is the raw transport's --------------------------------------------------------------------------

    def pause_reading(self) -> None:
        self._raw.pause_reading()

    def resume_reading(self) -> None:
        self._raw.resume_reading()

    def is_reading(self) -> bool:
        return self._raw.is_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._raw.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return self._raw.get_write_buffer_size()

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._raw.get_write_buffer_limits()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return what the raw transport knows; also `ssl_object`, and `sslcontext`, by which aiohttp knows HTTPS."""
        if name == "ssl_object":
            return self._tls
        if name == "sslcontext":
            return self._tls.context
        return self._raw.get_extra_info(name, default)
