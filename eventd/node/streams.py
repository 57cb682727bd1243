"""The QUIC listener of a running node: its certificate, and the declared tenants and caches."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from eventd.api.keys.valid_keys import Keys
from eventd.api.listener.addresses import cannot_listen, patiently
from eventd.api.quic.access import StreamAccess, may_be_open, require_access
from eventd.api.quic.cache import Caches
from eventd.api.quic.listener import StreamListener
from eventd.api.quic.options import StreamOptions
from eventd.api.quic.tenant_keys import TenantKeys
from eventd.api.topics.calls import V0
from eventd.errors import EventdError
from eventd.node.certificates import Certificates
from eventd.observe.stream_figures import StreamMetrics
from eventd.quic.certificate import QuicCertificate
from eventd.quic.library import require
from eventd.resources.stream_configuration import stream_caches, stream_tenants
from eventd.settings.model import Settings
from eventd.settings.values import Endpoint
from eventd.store.rows.registry import StoredResource
from eventd.tls.contexts import LoadedTls, ServerTls
from eventd.tls.files import ServerTlsConfig, place

STREAMS: Final = "(streams)"
"""The name that takes the place of a group's name in metrics and logs of this listener; no group can have such a
name."""
LOOK_SECONDS: Final = 1.0
"""Seconds between two checks whether another certificate was read."""

logger = logging.getLogger("eventd.streams")


class NodeStreams:
    """The streams and caches of a node. `address` is where it listens, None before `start`."""

    def __init__(
        self,
        settings: Settings,
        listen: Endpoint,
        v0: V0,
        keys: Keys,
        tenant_keys: TenantKeys,
        metrics: StreamMetrics,
        certificates: Certificates,
    ) -> None:
        self.address: tuple[str, int] | None = None
        self._settings = settings
        self._listen = listen
        self._clock = v0.clock
        self._keys = keys
        self._certificates = certificates
        access = StreamAccess(keys, tenant_keys, v0.clock, may_be_open=may_be_open(settings))
        self._caches = Caches(v0.clock, settings.quic_cache_bytes, settings.quic_cache_entries, metrics.evicted)
        self._listener = StreamListener(v0, access, self._caches, StreamOptions.of(settings), metrics, v0.supervisor)
        self._supervisor = v0.supervisor
        self._tls: ServerTls | None = None
        self._shown: LoadedTls | None = None
        self._chores: list[asyncio.Task[None]] = []

    async def start(self, declared: Sequence[StoredResource]) -> None:
        """Listen. Raises `MissingExtra`, `SettingsError`, `CertificateUnusable` and `Unavailable`."""
        require("EVENTD_QUIC_LISTEN")
        require_access(self._settings, self._keys, stream_tenants(declared))
        self.declare(declared)
        certificate = await self._open_certificate()
        await patiently(lambda: self._open(certificate), self._clock)
        self.address = self._listener.address
        assert self.address is not None
        about = {"group": STREAMS, "address": self.address[0], "port": self.address[1], "tls": True}
        logger.info("listening", extra=about)
        if self._tls is not None:
            self._chores.append(self._supervisor.keep(self._follow_certificate, "certificate of streams"))

    async def _open(self, certificate: QuicCertificate) -> None:
        try:
            await self._listener.start(self._listen.host, self._listen.port, certificate)
        except OSError as error:
            hint = "choose another address with --quic-listen (port 0: a free port)"
            what = f"streams cannot listen on {self._listen.host} port {self._listen.port} (UDP)"
            raise cannot_listen(what, error, hint) from None

    async def _open_certificate(self) -> QuicCertificate:
        """Return the configured certificate, or the one that the node has made. Raises `CertificateUnusable`."""
        settings, declared = self._settings, self._settings.quic_tls
        if declared is None:
            made = await asyncio.to_thread(QuicCertificate.kept_in, settings.data_dir, "streams", self._clock.now())
            certificate, path = made
            logger.info("certificate loaded", extra={"group": STREAMS, "file": str(path)})
            return certificate
        self._tls = ServerTls(declared, settings.credentials_directory, self._clock.now)
        await self._tls.load()
        self._shown = self._tls.present
        self._certificates.others[STREAMS] = declared, self._tls
        return await self._read(declared)

    async def _read(self, declared: ServerTlsConfig) -> QuicCertificate:
        credentials = self._settings.credentials_directory
        files: tuple[Path, Path] = place(declared.cert_file, credentials), place(declared.key_file, credentials)
        return await asyncio.to_thread(QuicCertificate.of_files, *files, self._clock.now())

    async def _follow_certificate(self) -> None:
        """Let new connections use the certificate that was read last."""
        declared, tls = self._settings.quic_tls, self._tls
        assert declared is not None
        assert tls is not None
        while True:
            await self._clock.sleep(LOOK_SECONDS)
            if (present := tls.present) is self._shown:
                continue
            self._shown = present
            try:
                self._listener.reload(await self._read(declared))
            except EventdError as error:  # OpenSSL reads more than the QUIC library
                about = {"group": STREAMS, "file": declared.cert_file, "error": str(error)}
                logger.error("certificate unusable", extra=about)

    def declare(self, declared: Sequence[StoredResource]) -> None:
        """Take over the declared caches, and end the access that removed tenants had permitted."""
        self._caches.declare(stream_caches(declared))
        self._listener.access_changed()

    async def stop(self) -> None:
        """Let streams end within the time that the settings give them, then close."""
        for task in self._chores:
            task.cancel()
        await asyncio.gather(*self._chores, return_exceptions=True)
        await self._listener.stop()
