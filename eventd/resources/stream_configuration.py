"""The configuration of tenants of streams and of caches, with every default filled in."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from eventd.resources.kinds.registry import STREAM_CACHE, STREAM_TENANT
from eventd.resources.kinds.stream_cache import StreamCacheSpec
from eventd.resources.kinds.stream_tenant import ClaimGrant, RemoteKeys, StreamTenantSpec, TokenExchange
from eventd.resources.validation.resource import specs_of
from eventd.store.rows.registry import StoredResource
from eventd.streams.names import CacheName
from eventd.streams.permissions import Permission, read_permissions
from eventd.streams.tokens import StreamKey, read_public_key
from eventd.text.duration import MILLISECOND, SECOND
from eventd.tls.files import SYSTEM_CAS, ClientTlsConfig


@dataclass(frozen=True, slots=True)
class KeySourceConfig:
    """Where a key set is read from: a file, given by path or as `credential:NAME`, or a URL.

    The unused field is empty.
    """

    file: str = ""
    url: str = ""
    tls: ClientTlsConfig = SYSTEM_CAS

    @property
    def name(self) -> str:
        """Return the file, or the URL without its query, which may hold a secret."""
        return self.file or self.url.partition("?")[0]

    @property
    def field(self) -> str:
        """Return the name of the field of the spec that holds the source."""
        return "jwksFile" if self.file else "jwksURL"


@dataclass(frozen=True, slots=True)
class ClaimGrantConfig:
    """The permissions of tokens in which a claim has a value; `*`: any value but false, null and empty."""

    claim: str
    value: str
    permissions: tuple[Permission, ...]


@dataclass(frozen=True, slots=True)
class TokenExchangeConfig:
    """How tokens of an issuer are exchanged for stream tokens; `ttl` in seconds, `key_id` empty for none."""

    issuer: str
    audience: str
    keys: KeySourceConfig
    subject_claim: str
    grants: tuple[ClaimGrantConfig, ...]
    ttl: int
    signing_key_file: str
    key_id: str


@dataclass(frozen=True, slots=True)
class StreamTenantConfig:
    """A tenant: its keys as declared, or where they are read from, and the exchange of tokens."""

    name: str
    keys: tuple[StreamKeyConfig, ...] = ()
    source: KeySourceConfig | None = None
    exchange: TokenExchangeConfig | None = None


@dataclass(frozen=True, slots=True)
class StreamKeyConfig:
    """A declared key: its id, empty for none, and its public part as base64url."""

    id: str
    public: str

    @property
    def key(self) -> StreamKey:
        """Return the key."""
        return StreamKey(self.id, read_public_key(self.public))


@dataclass(frozen=True, slots=True)
class CacheSpec:
    """The limits of a cache; `max_ttl_ms` None: entries may live for ever."""

    max_bytes: int
    max_entries: int
    max_ttl_ms: int | None = None


def stream_tenants(stored: Iterable[StoredResource]) -> dict[str, StreamTenantConfig]:
    """Return the tenants by name. Raises Invalid for a row this program cannot read."""
    return {name: _tenant(name, spec) for name, spec in specs_of(stored, STREAM_TENANT, StreamTenantSpec).items()}


def stream_caches(stored: Iterable[StoredResource]) -> dict[CacheName, CacheSpec]:
    """Return the caches by name. Raises Invalid for a row this program cannot read."""
    return {
        CacheName(spec.tenant, spec.namespace, spec.name): CacheSpec(
            spec.max_bytes, spec.max_entries, max(1, spec.max_ttl // MILLISECOND) if spec.max_ttl else None
        )
        for spec in specs_of(stored, STREAM_CACHE, StreamCacheSpec).values()
    }


def _tenant(name: str, spec: StreamTenantSpec) -> StreamTenantConfig:
    return StreamTenantConfig(
        name=name,
        keys=tuple(StreamKeyConfig(key.kid, key.x) for key in spec.jwks.keys) if spec.jwks else (),
        source=_source(spec),
        exchange=_exchange(spec.exchange) if spec.exchange else None,
    )


def _source(spec: RemoteKeys) -> KeySourceConfig | None:
    if not (spec.jwks_file or spec.jwks_url):
        return None
    tls = ClientTlsConfig(spec.ca_file) if spec.ca_file else SYSTEM_CAS
    return KeySourceConfig(spec.jwks_file, spec.jwks_url, tls)


def _exchange(spec: TokenExchange) -> TokenExchangeConfig:
    return TokenExchangeConfig(
        issuer=spec.issuer,
        audience=spec.audience,
        keys=_source(spec) or KeySourceConfig(),
        subject_claim=spec.subject_claim,
        grants=tuple(map(_grant, spec.grants)),
        ttl=spec.ttl // SECOND,
        signing_key_file=spec.signing_key_file,
        key_id=spec.key_id,
    )


def _grant(spec: ClaimGrant) -> ClaimGrantConfig:
    return ClaimGrantConfig(spec.claim, spec.value, read_permissions(spec.permissions))
