"""Reads certificates again when their files change, and reports when each of them expires."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from eventd.egress.transport.transport import Transport
from eventd.node.membership import Membership
from eventd.observe.metrics import Metrics
from eventd.resources.declared_tls import DeclaredTls, declared_tls, tls_of_callbacks
from eventd.resources.group_configuration import GroupConfig
from eventd.runtime.clock import SECOND, Clock
from eventd.text.duration import DAY
from eventd.tls.contexts import LoadedTls, ServerTls
from eventd.tls.files import ClientTlsConfig, Reloaded, ServerTlsConfig
from eventd.tls.listening import read_again
from eventd.tls.state import WARN, CertificateState

logger = logging.getLogger("eventd.tls")

LOOK_SECONDS = 5.0
"""Seconds between two checks whether a file has changed."""

_OVER = -1
"""The number of days left that is shown for an expired certificate."""
Use = tuple[str, str]
"""What uses a certificate: the names of a group and of a peer's node, as in `CertificateState`."""


@dataclass
class Certificates:
    """The certificates that one process uses: those of the API, of its groups, of its callbacks and of further
    listeners.

    `others` are these listeners, by the name that stands for a group, each with its declaration and the TLS that it
    uses.
    """

    declared: ServerTlsConfig | None
    api: ServerTls | None
    groups: Mapping[str, Membership]
    transport: Transport
    metrics: Metrics
    clock: Clock
    credentials: Path | None
    callbacks: Callable[[], Mapping[str, ClientTlsConfig]]
    """Returns the TLS of each callback that this process serves, by name."""
    others: dict[str, tuple[ServerTlsConfig, ServerTls]] = field(default_factory=dict)
    _exported: dict[Use, int] = field(default_factory=dict)
    _warned: dict[Use, tuple[str, int]] = field(default_factory=dict)

    async def refresh_for_ever(self) -> None:
        """Read changed files every few seconds, until cancelled."""
        while True:
            await self.refresh()
            await self.clock.sleep(LOOK_SECONDS)

    async def refresh(self, *, force: bool = False) -> None:
        """Read the files that have changed, or all of them; new connections use the certificates that could be read.

        If a certificate cannot be used, this is logged, and the one that was read before stays in effect.
        """
        configs = [group.config for group in self.groups.values()]
        peers = {peer.tls for config in configs for peer in config.peers.values()}
        self.transport.forget_tls(peers.union(self.callbacks().values()))
        # a list, because groups may come and go while files are read
        used = [(use, tls) for use in self._uses(configs) if (tls := self._in_use(use))]
        for use, tls in used:
            await read_again(tls, _about(use.group, use.peer, use.file), force=force)
        self._report([state for use, tls in used if (state := _state(use, tls)).expires])

    def _in_use(self, use: DeclaredTls) -> Reloaded[LoadedTls] | None:
        """Return the TLS settings that connections use now; None for a group that does not listen."""
        if isinstance(use.config, ClientTlsConfig):
            return self.transport.tls_of(use.config)
        if use.group in self.others:
            return self.others[use.group][1]
        return self.groups[use.group].tls if use.group else self.api

    def _report(self, states: Sequence[CertificateState]) -> None:
        """Set the metrics, and log once a day each certificate that expires soon."""
        present = {(state.group, state.peer) for state in states}
        for gone in [use for use in self._exported if use not in present]:
            self.metrics.certificate(*gone, None)
            del self._exported[gone]
            self._warned.pop(gone, None)
        now = self.clock.now()
        for state in states:
            assert state.expires is not None
            use = state.group, state.peer
            if self._exported.get(use) != state.expires:
                self.metrics.certificate(*use, state.expires / SECOND)
                self._exported[use] = state.expires
            days = (state.expires - now) // DAY
            if state.expires <= now and self._warned.get(use) != (state.file, _OVER):
                self._warned[use] = state.file, _OVER
                logger.error("certificate expired", extra=_about(*use, state.file))
            elif now < state.expires < now + WARN and self._warned.get(use) != (state.file, days):
                self._warned[use] = state.file, days
                logger.warning("certificate expiring", extra=_about(*use, state.file) | {"days": days})

    def read(self, groups: Iterable[GroupConfig]) -> Sequence[CertificateState]:
        """Read the certificates of the API, of these groups and of callbacks anew; return their states. Blocks."""
        found = []
        for use in self._uses(groups):
            tls = use.make(self.credentials, self.clock.now)
            tls.refresh(force=True)
            found.append(_state(use, tls))
        return found

    def _uses(self, groups: Iterable[GroupConfig]) -> Iterator[DeclaredTls]:
        """Yield each use of TLS with files: the API's, and those that are declared."""
        if self.declared is not None:
            yield DeclaredTls("", "", "", self.declared)
        yield from (DeclaredTls(name, "", "", declared) for name, (declared, _) in self.others.items())
        yield from declared_tls(groups)
        yield from tls_of_callbacks(self.callbacks())


def _state(use: DeclaredTls, tls: Reloaded[LoadedTls]) -> CertificateState:
    certificate = tls.present.certificate if tls.present is not None else None
    return CertificateState(use.group, use.peer, use.file, certificate.expires if certificate else None, tls.trouble)


def _about(group: str, peer: str, file: str) -> dict[str, str]:
    return {"group": group, "peer": peer, "file": file}
