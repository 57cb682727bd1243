"""Tokens and key sets of stream tenants, made by hand: also those that nobody should take."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


def encode(data: bytes) -> str:
    """Return bytes as base64url without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class TokenMaker:
    """A key of a tenant, and what it signs."""

    def __init__(self, tenant: str, key_id: str = "k1") -> None:
        self.tenant = tenant
        self.key_id = key_id
        self._key = Ed25519PrivateKey.generate()

    @property
    def jwk(self) -> dict[str, str]:
        """Return the public key."""
        public = encode(self._key.public_key().public_bytes_raw())
        return {"kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "use": "sig", "kid": self.key_id, "x": public}

    def claims(self, *perms: str, ttl: float = 600, **other: Any) -> dict[str, Any]:
        """Return the claims of a valid token; `other` replaces some, None removes."""
        now = int(time.time())
        found = {
            "iss": "felix-auth",
            "aud": "felix-broker",
            "sub": "tester",
            "tid": self.tenant,
            "exp": now + int(ttl),
            "iat": now,
            "perms": list(perms or self.everything),
            **other,
        }
        return {claim: value for claim, value in found.items() if value is not None}

    @property
    def everything(self) -> list[str]:
        """Return permissions for all of the tenant."""
        streams, caches = f"stream:{self.tenant}/*", f"cache:{self.tenant}/*"
        return [
            f"stream.publish:{streams}",
            f"stream.subscribe:{streams}",
            f"cache.read:{caches}",
            f"cache.write:{caches}",
        ]

    def token(self, *perms: str, ttl: float = 600, header: dict[str, Any] | None = None, **claims: Any) -> str:
        """Return a signed token, of everything unless permissions are given."""
        head = {"alg": "EdDSA", "typ": "JWT", "kid": self.key_id} if header is None else header
        return self.signed(head, self.claims(*perms, ttl=ttl, **claims))

    def signed(self, header: Any, claims: Any) -> str:
        """Return a token with a valid signature over anything."""
        text = f"{encode(json.dumps(header).encode())}.{encode(json.dumps(claims).encode())}"
        return f"{text}.{encode(self._key.sign(text.encode()))}"

    def forged_with_public_key(self) -> str:
        """Return a token whose signature is a MAC with the public key, which everybody knows."""
        text = f"{encode(json.dumps({'alg': 'HS256'}).encode())}.{encode(json.dumps(self.claims()).encode())}"
        mac = hmac.new(self._key.public_key().public_bytes_raw(), text.encode(), hashlib.sha256)
        return f"{text}.{encode(mac.digest())}"
