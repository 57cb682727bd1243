"""Reads certificates again when their files change, and reports when each of them expires."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from eventd.egress.peers.transport import Transport
from eventd.node.membership import Membership
from eventd.observe.metrics import Metrics
from eventd.resources.configuration import GroupConfig, PeerConfig
from eventd.runtime.clock import SECOND, Clock
from eventd.text.duration import DAY
from eventd.tls.contexts import ClientTls, LoadedTls, ServerTls
from eventd.tls.files import ClientTlsConfig, Reloaded, ServerTlsConfig
from eventd.tls.listening import read_again
from eventd.tls.state import WARN, CertificateState

logger = logging.getLogger("eventd.tls")

LOOK_SECONDS = 5.0
"""Seconds between two looks whether a file has changed."""

_OVER = -1
"""Stands for the days that a certificate has left when it has expired."""
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
    _exported: dict[Use, int] = field(default_factory=dict)
    _warned: dict[Use, tuple[str, int]] = field(default_factory=dict)

    async def refresh_for_ever(self) -> None:
        """Read changed files every few seconds, until cancelled."""
        while True:
            await self.refresh()
            await self.clock.sleep(LOOK_SECONDS)

    async def refresh(self, *, force: bool = False) -> None:
        """Read the files that have changed, or all; new connections use what could be read.

        What cannot be used is logged, and what was read before stays in effect.
        """
        configs = [group.config for group in self.groups.values()]
        self.transport.forget_tls({peer.tls for config in configs for peer in config.peers.values()})
        # a list, because groups may come and go while files are read
        used = [(use, file, tls) for use, file, config in self._walk(configs) if (tls := self._in_use(use, config))]
        for use, file, tls in used:
            await read_again(tls, _about(use, file), force=force)
        self._report({use: state for use, file, tls in used if (state := _state(use, file, tls)).expires})

    def _in_use(self, use: Use, config: ServerTlsConfig | ClientTlsConfig) -> Reloaded[LoadedTls] | None:
        """Return the TLS that connections use now; None for a group that does not listen."""
        if isinstance(config, ClientTlsConfig):
            return self.transport.tls_of(config)
        group, _ = use
        return self.groups[group].tls if group else self.api

    def _report(self, states: Mapping[Use, CertificateState]) -> None:
        """Set the metrics, and log once a day each certificate that expires soon."""
        for gone in [use for use in self._exported if use not in states]:
            self.metrics.certificate(*gone, None)
            del self._exported[gone]
            self._warned.pop(gone, None)
        now = self.clock.now()
        for use, state in states.items():
            assert state.expires is not None
            if self._exported.get(use) != state.expires:
                self.metrics.certificate(*use, state.expires / SECOND)
                self._exported[use] = state.expires
            days = (state.expires - now) // DAY
            if state.expires <= now and self._warned.get(use) != (state.file, _OVER):
                self._warned[use] = state.file, _OVER
                logger.error("certificate expired", extra=_about(use, state.file))
            elif now < state.expires < now + WARN and self._warned.get(use) != (state.file, days):
                self._warned[use] = state.file, days
                logger.warning("certificate expiring", extra=_about(use, state.file) | {"days": days})

    def read(self, groups: Iterable[GroupConfig]) -> Sequence[CertificateState]:
        """Read the certificates of the API and of these groups anew, and return their states. Blocks."""
        found = []
        for use, file, config in self._walk(groups):
            tls = self._make(config)
            tls.refresh(force=True)
            found.append(_state(use, file, tls))
        return found

    def _make(self, config: ServerTlsConfig | ClientTlsConfig) -> Reloaded[LoadedTls]:
        if isinstance(config, ClientTlsConfig):
            return ClientTls(config, self.credentials, self.clock.now)
        return ServerTls(config, self.credentials, self.clock.now)

    def _walk(self, groups: Iterable[GroupConfig]) -> Iterator[tuple[Use, str, ServerTlsConfig | ClientTlsConfig]]:
        """Yield each use of TLS that is declared with files, its file, and how it is declared."""
        if self.declared is not None:
            yield ("", ""), self.declared.cert_file, self.declared
        for group in groups:
            if group.listen is not None and group.listen.tls is not None:
                yield (group.name, ""), group.listen.tls.cert_file, group.listen.tls
            for peer in group.peers.values():
                if peer.endpoint.startswith("https://") and (file := _file_of(peer)):
                    yield (group.name, peer.node_name), file, peer.tls


def _file_of(peer: PeerConfig) -> str:
    """Return the certificate that is shown to a peer, or else the CA that verifies it; empty without either."""
    return peer.tls.cert_file or peer.tls.ca_file


def _state(use: Use, file: str, tls: Reloaded[LoadedTls]) -> CertificateState:
    certificate = tls.present.certificate if tls.present is not None else None
    return CertificateState(*use, file, certificate.expires if certificate else None, tls.trouble)


def _about(use: Use, file: str) -> dict[str, str]:
    group, peer = use
    return {"group": group, "peer": peer, "file": file}
