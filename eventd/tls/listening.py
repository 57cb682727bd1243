"""The TLS of one listener: its certificate, and the log of handshakes that fail."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from eventd.runtime.clock import Clock
from eventd.runtime.log_pause import LogPause
from eventd.tls.certificate import show_moment
from eventd.tls.contexts import LoadedTls, ServerTls
from eventd.tls.files import Reloaded, ServerTlsConfig
from eventd.tls.reasons import HandshakeFailed
from eventd.tls.transport import TlsTransport

logger = logging.getLogger("eventd.tls")


@dataclass(frozen=True, slots=True)
class TlsListener:
    """The TLS of a listener. `failed` gets each handshake that failed, and the address of its client."""

    tls: ServerTls
    failed: Callable[[HandshakeFailed, str], None]

    def wrap(self, raw: asyncio.Transport) -> TlsTransport:
        """Return the server's end of TLS over a connection, with the certificate that is in effect now."""
        return TlsTransport(raw, self.tls.value.context, self.tls.now)


async def open_api_tls(declared: ServerTlsConfig | None, credentials: Path | None, clock: Clock) -> TlsListener | None:
    """Return the TLS of the API, its files read; None for plain HTTP. Raises `CertificateUnusable`."""
    if declared is None:
        return None
    tls = ServerTls(declared, credentials, clock.now)
    await tls.load()
    return TlsListener(tls, FailureLog(clock).note)


async def read_again(tls: Reloaded[LoadedTls], about: Mapping[str, str], *, force: bool = False) -> None:
    """Read the files in a thread if they have changed, or if `force`, and log the outcome with the fields `about`."""
    before = tls.trouble
    if await asyncio.to_thread(tls.refresh, force=force):
        shown = tls.value.certificate
        logger.info("certificate loaded", extra={**about, **({"expires": show_moment(shown.expires)} if shown else {})})
    elif tls.trouble and tls.trouble != before:
        logger.error("certificate unusable", extra={**about, "error": tls.trouble})


class FailureLog:
    """Logs handshakes that fail, at most one a minute for each reason."""

    def __init__(self, clock: Clock) -> None:
        self._pause = LogPause(clock.monotonic)

    def note(self, failure: HandshakeFailed, address: str) -> None:
        """Log a failed handshake of a client at this address, unless one with this reason was logged within the last
        minute."""
        if self._pause.is_over(failure.reason):
            about = {"reason": str(failure.reason), "address": address, "error": failure.detail}
            logger.warning("handshake failed", extra=about)
