"""The keys of all declared tenants: those that verify stream tokens, that sign them, and those of issuers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from eventd.api.quic.key_sets import WATCH_SECONDS, KeySets, KeySetState
from eventd.api.quic.key_sources import KeyContent, KeySourceReader
from eventd.resources.stream_configuration import KeySourceConfig, StreamTenantConfig, TokenExchangeConfig
from eventd.resources.stream_key_state import TenantKeyState
from eventd.runtime.clock import Clock
from eventd.settings.values import rights_of_others
from eventd.streams.tokens import StreamKey, read_key_set

if TYPE_CHECKING:  # the functions load the cryptography: a node without tenants does without
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from eventd.streams.issuer_tokens import IssuerKey, IssuerKeySet

REFRESH_SECONDS: Final = 10.0
"""Seconds between two checks for URLs that are due."""


class TokenSigner(NamedTuple):
    """A private key that signs the stream tokens of a tenant; `id` is not used."""

    private: Ed25519PrivateKey
    id: str = ""

    def __repr__(self) -> str:
        return "TokenSigner(…)"


class TokenSigners(NamedTuple):
    """The signing key that was read from a file, if it is usable, and the problems of the file."""

    keys: tuple[TokenSigner, ...]
    problems: tuple[str, ...] = ()


class TenantKeys:
    """The keys of the tenants that are declared now. `generation` changes whenever keys may have changed."""

    def __init__(self, reader: KeySourceReader, clock: Clock) -> None:
        self.tenants: Mapping[str, StreamTenantConfig] = MappingProxyType({})
        self._clock = clock
        self._reader = reader
        self._declared: dict[str, tuple[StreamKey, ...]] = {}
        self._sets = KeySets("key set", lambda got: read_key_set(got.content), reader, clock)
        self._issuers = KeySets("key set of an issuer", _read_issuer_keys, reader, clock)
        self._signing = KeySets("signing key", read_signing_key, reader, clock)
        self._raw: dict[str, frozenset[bytes] | None] = {}
        self._raw_generation = -1
        self._has_sources = asyncio.Event()

    @property
    def generation(self) -> int:
        """Return a number that changes whenever a key of a tenant may have been added or removed."""
        return self._sets.generation + self._signing.generation

    def declare(self, tenants: Mapping[str, StreamTenantConfig]) -> None:
        """Serve these tenants, and drop all earlier ones that are not among them."""
        if tenants == self.tenants:
            return
        self.tenants = MappingProxyType(dict(tenants))
        self._declared = {name: tuple(key.key for key in tenant.keys) for name, tenant in tenants.items()}
        exchanges = [tenant.exchange for tenant in tenants.values() if tenant.exchange is not None]
        self._sets.declare(tenant.source for tenant in tenants.values() if tenant.source is not None)
        self._issuers.declare(exchange.keys for exchange in exchanges)
        self._signing.declare(map(_signing_source, exchanges))
        if any(tenant.source is not None or tenant.exchange is not None for tenant in tenants.values()):
            self._has_sources.set()
        else:
            self._has_sources.clear()

    async def find(self, tenant: StreamTenantConfig, key_id: str = "") -> tuple[StreamKey, ...]:
        """Return the keys of a tenant; a set at a URL is fetched again for an unknown `key_id`."""
        declared = self._declared.get(tenant.name, ())
        own: tuple[StreamKey, ...] = ()
        if tenant.exchange is not None:
            own = _public(tenant.exchange, await self._signing.find(_signing_source(tenant.exchange)))
        if tenant.source is None or (key_id and any(key.id == key_id for key in (*declared, *own))):
            found = () if tenant.source is None else self._sets.known(tenant.source) or ()
        else:
            found = await self._sets.find(tenant.source, key_id)
        return (*declared, *own, *found)

    def holds(self, tenant: str, raw: bytes) -> bool:
        """Return whether a key, given by its public bytes, may be one of a tenant's keys.

        True also while the tenant's key set has not been read yet.
        """
        if self._raw_generation != self.generation:
            self._raw, self._raw_generation = {}, self.generation
        if tenant not in self._raw:
            self._raw[tenant] = self._raw_keys(tenant)
        known = self._raw[tenant]
        return known is None or raw in known

    def _raw_keys(self, name: str) -> frozenset[bytes] | None:
        """Return the public bytes of a tenant's keys; None while a source of it has not been read yet."""
        tenant = self.tenants.get(name)
        if tenant is None:
            return frozenset()
        found = () if tenant.source is None else self._sets.known(tenant.source)
        own: tuple[TokenSigner, ...] | None = ()
        if tenant.exchange is not None:
            own = self._signing.known(_signing_source(tenant.exchange))
        if found is None or own is None:
            return None
        signing = _public(tenant.exchange, own) if tenant.exchange is not None else ()
        keys = (*self._declared[name], *found, *signing)
        return frozenset(key.public.public_bytes_raw() for key in keys)

    async def issuer_keys(self, exchange: TokenExchangeConfig, key_id: str) -> tuple[IssuerKey, ...]:
        """Return the keys of the issuer of an exchange; a set at a URL is fetched again for an unknown `key_id`."""
        return await self._issuers.find(exchange.keys, key_id)

    async def signing_key(self, exchange: TokenExchangeConfig) -> TokenSigner | None:
        """Return the key that signs the tokens of an exchange; None if its file cannot be used."""
        return next(iter(await self._signing.find(_signing_source(exchange))), None)

    async def watch_for_ever(self) -> None:
        """Follow changes of the files, until cancelled."""
        while True:
            await self._has_sources.wait()
            for sets in (self._sets, self._signing, self._issuers):
                await sets.watch()
            await self._clock.sleep(WATCH_SECONDS)

    async def refresh_for_ever(self) -> None:
        """Fetch the sets at URLs when they are due, until cancelled."""
        while True:
            await self._has_sources.wait()
            for sets in (self._sets, self._issuers):
                await sets.refresh()
            await self._clock.sleep(REFRESH_SECONDS)

    async def reload(self) -> None:
        """Read all files again, and let URLs be fetched again."""
        for sets in (self._sets, self._signing, self._issuers):
            await sets.reload()

    def states(self) -> list[TenantKeyState]:
        """Return the state of each source of each tenant."""
        sets, issuers, signing = (_by_source(each) for each in (self._sets, self._issuers, self._signing))
        found = []
        for name, tenant in self.tenants.items():
            if tenant.source is not None:
                found.append(_state(name, tenant.source.field, sets[tenant.source]))
            if (exchange := tenant.exchange) is not None:
                found.append(_state(name, f"exchange.{exchange.keys.field}", issuers[exchange.keys]))
                found.append(_state(name, "exchange.signingKeyFile", signing[_signing_source(exchange)]))
        return found

    async def close(self) -> None:
        """Start no further reads."""
        await self._reader.close()


def _by_source(sets: KeySets[Any]) -> dict[KeySourceConfig, KeySetState]:
    return {state.source: state for state in sets.states()}


def _state(tenant: str, field: str, state: KeySetState) -> TenantKeyState:
    return TenantKeyState(tenant, field, state.source.name, state.keys, state.age, state.problem, state.skipped)


def _signing_source(exchange: TokenExchangeConfig) -> KeySourceConfig:
    return KeySourceConfig(exchange.signing_key_file)


def _public(exchange: TokenExchangeConfig, keys: tuple[TokenSigner, ...]) -> tuple[StreamKey, ...]:
    return tuple(StreamKey(exchange.key_id, key.private.public_key()) for key in keys)


def _read_issuer_keys(got: KeyContent) -> IssuerKeySet:
    from eventd.streams.issuer_tokens import read_issuer_keys

    return read_issuer_keys(got.content)


def read_signing_key(got: KeyContent) -> TokenSigners:
    """Return the key in a file. Raises ValueError, whose text shows nothing of the key."""
    if rights := rights_of_others(got.mode):
        raise ValueError(f"every user of this machine may {rights} the file: run chmod o= on it")
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    from federation.ed25519 import UNREADABLE

    try:
        key = load_pem_private_key(got.content, None)
    except UNREADABLE:
        raise ValueError("the file is not a private key as PEM without a password") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise ValueError("the key is not an Ed25519 key")
    return TokenSigners((TokenSigner(key),))
