"""An API key as a value: its scopes, and the groups, topics and routers that it is limited to."""

from __future__ import annotations

from typing import NamedTuple

from eventd.api.keys.scopes import EVERY_SCOPE, SCOPES, Scope
from eventd.errors import Forbidden
from eventd.log.topics.errors import DetailedError
from eventd.store.rows.keys import KeyRow
from eventd.text.quoting import shortened


class OutOfReach(DetailedError, Forbidden):
    """The key may not access the topic or router that `detail` names."""


class ApiKey(NamedTuple):
    """The permissions of a key, whose SHA-256 is `digest`.

    `prefixes`: of the names of groups, topics and routers that it may access; empty: all. `expires_at` in microseconds;
    None: never. `name` is empty for a key of the settings. A token has no scopes, and the `identity` of its client.
    """

    digest: bytes
    scopes: frozenset[Scope]
    prefixes: tuple[str, ...]
    name: str = ""
    expires_at: int | None = None
    identity: str = ""

    @classmethod
    def of(cls, line: KeyRow) -> ApiKey:
        """Return the key that a row of the database describes."""
        scopes = frozenset(scope for scope in SCOPES if scope in line.scopes)
        return cls(bytes.fromhex(line.digest), scopes, line.prefixes, line.name, line.expires_at, line.identity)

    def may(self, scope: Scope) -> bool:
        """Return whether the key has the scope, or another one that includes it."""
        return scope in self.scopes or (scope == "look" and "read" in self.scopes)

    def require_scope(self, scope: Scope) -> None:
        """Raises `Forbidden` unless the key has the scope, or another one that includes it."""
        if not self.may(scope):
            raise Forbidden(
                f"this key lacks the scope {scope}",
                hint=f"use a key with this scope; this one has {', '.join(sorted(self.scopes))}",
            )

    def sees(self, name: str) -> bool:
        """Return whether the key may access the group, topic or router of this name."""
        return not self.prefixes or name.startswith(self.prefixes)

    def require_names(self, *names: str) -> None:
        """Raises `Forbidden` for the first topic or router that the key may not access."""
        for name in names:
            if not self.sees(name):
                raise OutOfReach(f"this key is not for {shortened(name)!r}", detail={"topic": shortened(name)})

    def require_group(self, group: str | None) -> None:
        """Raises `Forbidden` unless the key may access the group; for `None`, if the key is limited to prefixes."""
        if self.prefixes and group is None:
            raise Forbidden(
                "this key is limited to some names",
                hint="name the group if the request takes one, else use a key without prefixes",
            )
        if group is not None and not self.sees(group):
            raise Forbidden(f"this key is not for the group {shortened(group)!r}")


ANYONE = ApiKey(b"", EVERY_SCOPE, ())
OWNER = ApiKey(b"local socket", EVERY_SCOPE, (), name="local socket")
"""The caller over the local socket, which only the owner of the node's folder and root can use."""
