"""Reads certificates again when their files change, and reports when each of them ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from eventd.egress.peers.transport import Transport
from eventd.node.membership import Membership
from eventd.observe.metrics import Metrics
from eventd.resources.configuration import GroupConfig
from eventd.runtime.clock import SECOND, Clock
from eventd.tls.contexts import ClientTls, LoadedTls, ServerTls
from eventd.tls.files import CertificateUnusable, Reloaded, ServerTlsConfig
from eventd.tls.state import DAY, WARN, CertificateState

logger = logging.getLogger("eventd.tls")

LOOK_SECONDS = 5.0
"""Seconds between two looks whether a file has changed."""

Use = tuple[str, str]
"""What uses a certificate: the names of a group and of a peer's node, as in `CertificateState`."""


@dataclass
class Certificates:
    """The certificates that one process uses: the API's, its groups', and those that it shows to peers."""

    declared: ServerTlsConfig | None
    api: ServerTls | None
    groups: Mapping[str, Membership]
    transport: Transport
    metrics: Metrics
    clock: Clock
    credentials: Path | None
    _shown: dict[Use, int] = field(default_factory=dict)
    _told: dict[Use, tuple[str, int]] = field(default_factory=dict)

    async def refresh_for_ever(self) -> None:
        """Read changed files every few seconds, until cancelled."""
        while True:
            await self.refresh()
            await self.clock.sleep(LOOK_SECONDS)

    async def refresh(self, *, force: bool = False) -> None:
        """Read the files that have changed, or all; new connections use what could be read.

        What cannot be used is logged, and what was read before stays in effect.
        """
        used = dict(self._used())
        for use, (file, tls) in used.items():
            before = tls.trouble
            if await asyncio.to_thread(tls.refresh, force=force):
                logger.info("certificate loaded", extra={**_about(use, file), "ends": show_ends(tls)})
            elif tls.trouble and tls.trouble != before:
                logger.error("certificate unusable", extra=_about(use, file) | {"error": tls.trouble})
        self._report({use: state for use, (file, tls) in used.items() if (state := _state(use, file, tls)).ends})

    def _used(self) -> Iterator[tuple[Use, tuple[str, Reloaded[LoadedTls]]]]:
        if self.api is not None and self.declared is not None:
            yield ("", ""), (self.declared.cert_file, self.api)
        for name, group in self.groups.items():
            if group.tls is not None and group.config.listen is not None and group.config.listen.tls is not None:
                yield (name, ""), (group.config.listen.tls.cert_file, group.tls)
            for peer in group.config.peers.values():
                if peer.endpoint.startswith("https://"):
                    tls = self.transport.tls_of(peer.tls)
                    yield (name, peer.node_name), (peer.tls.cert_file, tls)

    def _report(self, states: Mapping[Use, CertificateState]) -> None:
        """Set the metrics, and log each certificate that ends soon once a day."""
        for gone in [use for use in self._shown if use not in states]:
            self.metrics.certificate(*gone, None)
            del self._shown[gone]
        now = self.clock.now()
        for use, state in states.items():
            assert state.ends is not None
            if self._shown.get(use) != state.ends:
                self.metrics.certificate(*use, state.ends / SECOND)
                self._shown[use] = state.ends
            days = (state.ends - now) // DAY
            if state.ends - now < WARN and self._told.get(use) != (state.file, days):
                self._told[use] = state.file, days
                logger.warning("certificate expiring", extra=_about(use, state.file) | {"days": days})

    def read(self, groups: Iterable[GroupConfig]) -> Sequence[CertificateState]:
        """Read the certificates of the API and of these groups anew, and return their states. Blocks."""
        return [_state(use, file, tls) for use, file, tls in self._declared(groups)]

    def _declared(self, groups: Iterable[GroupConfig]) -> Iterator[tuple[Use, str, Reloaded[LoadedTls]]]:
        now = self.clock.now
        if self.declared is not None:
            yield ("", ""), self.declared.cert_file, ServerTls(self.declared, self.credentials, now)
        for group in groups:
            if group.listen is not None and group.listen.tls is not None:
                tls = group.listen.tls
                yield (group.name, ""), tls.cert_file, ServerTls(tls, self.credentials, now)
            for peer in group.peers.values():
                if peer.endpoint.startswith("https://") and (peer.tls.cert_file or peer.tls.ca_file):
                    file = peer.tls.cert_file or peer.tls.ca_file
                    yield (group.name, peer.node_name), file, ClientTls(peer.tls, self.credentials, now)


def _state(use: Use, file: str, tls: Reloaded[LoadedTls]) -> CertificateState:
    try:
        certificate = tls.value.certificate
    except CertificateUnusable:
        certificate = None
    return CertificateState(*use, file, certificate.ends if certificate else None, tls.trouble)


def _about(use: Use, file: str) -> dict[str, str]:
    group, peer = use
    return {"group": group, "peer": peer, "file": file}


def show_ends(tls: Reloaded[LoadedTls]) -> str:
    """Return when the certificate in effect ends, as RFC 3339; empty without one."""
    loaded = tls.present
    if loaded is None or loaded.certificate is None:
        return ""
    return datetime.fromtimestamp(loaded.certificate.ends // SECOND, UTC).isoformat()
