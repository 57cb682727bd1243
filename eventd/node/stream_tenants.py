"""The tenants of streams in one process: their keys, and the fetching of key sets at URLs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from eventd.api.quic.exchange import TokenIssuer
from eventd.api.quic.key_sources import LARGEST, READ_SECONDS, KeySourceReader, KeySourceUnreadable
from eventd.api.quic.tenant_keys import TenantKeys
from eventd.egress.loop.sink import LinkError
from eventd.egress.transport.transport import Transport
from eventd.resources.stream_configuration import KeySourceConfig, stream_tenants
from eventd.runtime.clock import Clock
from eventd.runtime.supervisor import Chore
from eventd.runtime.threads import ThreadFactory
from eventd.settings.model import Settings
from eventd.store.rows.registry import StoredResource

_HEADERS: Final = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "routerd-eventd"}


class StreamTenants:
    """Follows the declared tenants. `transport` fetches key sets, from addresses that callbacks may reach."""

    def __init__(self, settings: Settings, transport: Transport, threads: ThreadFactory, clock: Clock) -> None:
        self._transport = transport
        self._rules = settings.callback_rules
        self.keys = TenantKeys(KeySourceReader(threads, settings.credentials_directory, self._fetch), clock)
        self.issuer = TokenIssuer(self.keys, clock)

    def follow(self, declared: Iterable[StoredResource]) -> None:
        """Take over the tenants that are declared now."""
        self.keys.declare(stream_tenants(declared))

    def chores(self) -> dict[str, Chore]:
        """Return the chores that keep the keys up to date, by name."""
        return {"stream keys": self.keys.watch_for_ever, "stream key sets": self.keys.refresh_for_ever}

    async def _fetch(self, source: KeySourceConfig) -> bytes:
        try:
            answer = await self._transport.get(
                source.url, _HEADERS, seconds=READ_SECONDS, most=LARGEST, tls=source.tls, rules=self._rules
            )
        except LinkError as error:
            raise KeySourceUnreadable(error.detail) from None
        if answer.status != 200:
            raise KeySourceUnreadable(f"the answer has the status {answer.status}, not 200")
        return answer.body
