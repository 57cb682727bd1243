"""Where groups, peers and callbacks use TLS with files, and how it is loaded from them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from eventd.resources.group_configuration import GroupConfig, PeerConfig
from eventd.tls.contexts import ClientTls, LoadedTls, Now, ServerTls
from eventd.tls.files import ClientTlsConfig, Reloaded, ServerTlsConfig

CALLBACKS: Final = "(callbacks)"
"""The value of `DeclaredTls.group` for callbacks, which belong to no group; `peer` is then the name of the
callback."""


@dataclass(frozen=True, slots=True)
class DeclaredTls:
    """One use of TLS.

    `group` and `peer` (a node) are as in `CertificateState`; `place` names the resource and its field.
    """

    group: str
    peer: str
    place: str
    config: ServerTlsConfig | ClientTlsConfig

    @property
    def file(self) -> str:
        """Return the file of the certificate that is shown, or else of the CA that verifies the other end.

        Empty without either.
        """
        return self.config.cert_file or (self.config.ca_file if isinstance(self.config, ClientTlsConfig) else "")

    def make(self, credentials: Path | None, now: Now) -> Reloaded[LoadedTls]:
        """Return the TLS of new connections; its files are read at the first use."""
        if isinstance(self.config, ClientTlsConfig):
            return ClientTls(self.config, credentials, now)
        return ServerTls(self.config, credentials, now)


def declared_tls(groups: Iterable[GroupConfig]) -> Iterator[DeclaredTls]:
    """Yield each use of TLS that groups and their peers declare with files."""
    for group in groups:
        if group.listen is not None and group.listen.tls is not None:
            yield DeclaredTls(group.name, "", f"EventGroup {group.name}: spec.listen.tls", group.listen.tls)
        yield from (tls for peer in group.peers.values() if (tls := _of_peer(group.name, peer)).file)


def _of_peer(group: str, peer: PeerConfig) -> DeclaredTls:
    config = peer.tls if peer.endpoint.startswith("https://") else ClientTlsConfig()
    return DeclaredTls(group, peer.node_name, f"EventPeer {peer.name}: spec.tls", config)


def tls_of_callbacks(declared: Mapping[str, ClientTlsConfig]) -> Iterator[DeclaredTls]:
    """Yield each use of TLS with files that callbacks declare; `declared` maps the names of callbacks to their TLS."""
    for name, config in declared.items():
        use = DeclaredTls(CALLBACKS, name, f"EventCallback {name}: spec.tls", config)
        if use.file:
            yield use
