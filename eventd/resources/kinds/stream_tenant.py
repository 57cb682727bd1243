"""StreamTenant: who may use the streams and caches of a tenant: the keys that sign its tokens, and who gets tokens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import AfterValidator, Field

from eventd.resources.kinds.fields import (
    Duration,
    Flag,
    OptionalKeyId,
    OptionalUrl,
    Reference,
    SecretPath,
    duration_between,
)
from eventd.resources.kinds.spec import Finding, Spec, wrong
from eventd.streams.permissions import MOST as MOST_PERMISSIONS
from eventd.streams.permissions import BadPermission, read_permissions
from eventd.streams.tokens import MOST_KEYS, read_public_key
from eventd.text.duration import DAY, MINUTE, SECOND

MOST_GRANTS: Final = 1000
ANY_VALUE: Final = "*"


def _check_public(value: str) -> str:
    try:
        read_public_key(value)
    except ValueError:
        raise wrong(
            "must be 32 bytes as base64url without padding", "43 characters of A-Z, a-z, 0-9, - and _"
        ) from None
    return value


def _check_permission(value: str) -> str:
    try:
        read_permissions([value])
    except BadPermission:
        hint = "for example stream.publish:stream:acme/*, or cache.read:cache:acme/default/*"
        raise wrong("must be ACTION:PATTERN, and ACTION a known one", hint) from None
    return value


def _blank_or(value: str) -> str:
    return value if value.strip() else ""


class StreamJwk(Spec):
    """A public key that signs tokens of the tenant, as RFC 7517 and RFC 8037 write it."""

    refused: ClassVar[Mapping[str, Finding]] = {
        "d": Finding(("d",), "is the private part of the key", "write only the public part, x")
    }

    kty: Literal["OKP"] = Field(description="The type of the key: OKP.")
    crv: Literal["Ed25519"] = Field(description="The curve of the key: Ed25519.")
    x: Annotated[str, AfterValidator(_check_public)] = Field(description="The public key, as base64url.")
    kid: Annotated[str, AfterValidator(_blank_or)] = Field(
        default="", description="The id of the key, which tokens may name; absent: the key is tried for every token."
    )
    alg: Literal["EdDSA"] = Field(default="EdDSA", description="The algorithm of the key: EdDSA.")
    use: Literal["sig"] = Field(default="sig", description="The use of the key: sig.")


class StreamKeySet(Spec):
    """A set of keys (JWKS)."""

    keys: tuple[StreamJwk, ...] = Field(description="The keys.")

    def findings(self) -> Iterator[Finding]:
        """Refuse an empty set, too many keys, and key ids that are used twice."""
        if not self.keys:
            yield Finding(("keys",), "must contain at least one key")
        elif len(self.keys) > MOST_KEYS:
            yield Finding(("keys",), f"must not be more than {MOST_KEYS} keys")
            return
        first: dict[str, int] = {}
        for at, key in enumerate(self.keys):
            if key.kid and first.setdefault(key.kid, at) != at:
                yield Finding(("keys", at, "kid"), f"{key.kid!r} is used twice, first in keys[{first[key.kid]}]")


class RemoteKeys(Spec):
    """A set of keys in a file, or at a URL."""

    jwks_file: SecretPath = Field(
        default="", description="The file of the key set (JWKS); a change takes effect within a second."
    )
    jwks_url: OptionalUrl = Field(
        default="",
        alias="jwksURL",
        description="The URL of the key set (JWKS); fetched again after an hour, and for an unknown key.",
    )
    ca_file: SecretPath = Field(
        default="", description="PEM file of CAs, of which one must have issued the certificate of jwksURL."
    )
    allow_plain: Flag = Field(
        default=False, description="Allow a jwksURL with http: anyone on the way can replace the keys."
    )

    def findings(self) -> Iterator[Finding]:
        """Yield a fault for two sources, and for options without the URL that they are for."""
        if self.jwks_file and self.jwks_url:
            yield Finding(("jwksURL",), "jwksFile and jwksURL exclude each other", "leave one of them out")
        if self.ca_file and not self.jwks_url:
            yield Finding(("caFile",), "has no effect without jwksURL", "leave it out")
        is_plain = self.jwks_url.startswith("http://")
        if is_plain and self.ca_file:
            yield Finding(("jwksURL",), "must begin with https:// for caFile to have an effect")
        elif is_plain and not self.allow_plain:
            message = "must begin with https://: anyone on the way could replace the keys"
            yield Finding(("jwksURL",), message, "or write allowPlain: true")


class ClaimGrant(Spec):
    """The permissions of tokens that have a claim."""

    claim: Reference = Field(
        description="The name of the claim; dots lead into objects, unless a claim has the whole name."
    )
    value: Reference = Field(
        default=ANY_VALUE,
        description="What the claim must be, or contain as an element of its list or as a word of its text; `*`:"
        " anything but false, null and empty.",
    )
    permissions: tuple[Annotated[str, AfterValidator(_check_permission)], ...] = Field(
        description="The permissions of the stream token, each as `ACTION:PATTERN`."
    )

    def findings(self) -> Iterator[Finding]:
        """Refuse a grant of nothing."""
        if not self.permissions:
            yield Finding(("permissions",), "must contain at least one permission")


class TokenExchange(RemoteKeys):
    """The exchange of tokens of an OpenID Connect issuer for stream tokens of the tenant."""

    issuer: Reference = Field(description="The claim iss that tokens of the issuer have.")
    audience: Reference = Field(description="The claim aud that tokens must have, or contain in its list.")
    subject_claim: Reference = Field(default="sub", description="The claim that becomes the subject of stream tokens.")
    grants: tuple[ClaimGrant, ...] = Field(
        description="What the claims of a token allow; a token that no grant matches is refused."
    )
    ttl: Annotated[Duration, duration_between(10 * SECOND, DAY)] = Field(
        default=15 * MINUTE, description="How long a stream token is valid."
    )
    signing_key_file: SecretPath = Field(
        description="PEM file of the private Ed25519 key that signs stream tokens; its public half is a key of the"
        " tenant."
    )
    key_id: OptionalKeyId = Field(default="", description="The id of that key in stream tokens; absent: none.")

    def findings(self) -> Iterator[Finding]:
        """Require the keys of the issuer, grants, and the file of the signing key."""
        yield from super().findings()
        if not (self.jwks_file or self.jwks_url):
            yield Finding(("jwksURL",), "is required, or jwksFile instead of it: the keys of the issuer")
        if not self.grants:
            yield Finding(("grants",), "must contain at least one grant")
        elif len(self.grants) > MOST_GRANTS:
            yield Finding(("grants",), f"must not be more than {MOST_GRANTS} grants")
        elif sum(len(grant.permissions) for grant in self.grants) > MOST_PERMISSIONS:
            yield Finding(("grants",), f"must not contain more than {MOST_PERMISSIONS} permissions together")
        if not self.signing_key_file:
            yield Finding(("signingKeyFile",), "is required", "create a key: openssl genpkey -algorithm ed25519")


class StreamTenantSpec(RemoteKeys):
    """The spec of a StreamTenant; its name is that of the tenant."""

    jwks: StreamKeySet | None = Field(
        default=None, description="The keys that sign tokens of the tenant, written here: a key set (JWKS)."
    )
    exchange: TokenExchange | None = Field(
        default=None, description="Who gets tokens of the tenant for a token of an OpenID Connect issuer."
    )

    def findings(self) -> Iterator[Finding]:
        """Require at least one source of keys, and at most one besides the exchange."""
        yield from super().findings()
        if self.jwks is not None and (self.jwks_file or self.jwks_url):
            yield Finding(("jwks",), "excludes jwksFile and jwksURL", "leave one of them out")
        if self.jwks is None and not self.jwks_file and not self.jwks_url and self.exchange is None:
            yield Finding(("jwks",), "is required, or jwksFile, jwksURL or exchange: without keys, no token is valid")

    def effective(self) -> dict[str, Any]:
        """Return the spec with every default filled in, without members that are absent."""
        filled = super().effective()
        return {name: value for name, value in filled.items() if value is not None}
