"""Permissions of a token: an action and a pattern of resources, `stream.publish:stream:TENANT/NAMESPACE/STREAM`."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Final, NamedTuple

MOST: Final = 1000
"""Maximum number of permissions of a token."""


class StreamAction(StrEnum):
    """What a permission allows."""

    PUBLISH = "stream.publish"
    SUBSCRIBE = "stream.subscribe"
    READ = "cache.read"
    WRITE = "cache.write"


_WITHOUT_EFFECT: Final = frozenset(
    (
        *("rbac.view", "rbac.policy.manage", "rbac.assignment.manage", "tenant.manage", "ns.manage"),
        *("stream.manage", "cache.manage"),
    )
)
"""Actions that tokens may name, and that allow nothing here."""


class BadPermission(ValueError):
    """A permission cannot be understood. It might be a restriction, so the whole token is refused."""


class Permission(NamedTuple):
    """One action on the resources that match a pattern, in which `*` stands for any text, slashes included."""

    action: StreamAction
    pattern: str

    def allows(self, action: StreamAction, resource: str) -> bool:
        """Return whether this permission allows an action on a resource."""
        return action is self.action and matches(self.pattern, resource)


def read_permissions(texts: Iterable[str]) -> tuple[Permission, ...]:
    """Return the permissions that have an effect. Raises `BadPermission`."""
    found = []
    for number, text in enumerate(texts, 1):
        action, colon, pattern = text.partition(":")
        if number > MOST:
            raise BadPermission(f"more than {MOST} permissions")
        if colon and action in _WITHOUT_EFFECT:
            continue
        if not colon or action not in set(StreamAction):
            raise BadPermission(f"unknown permission {text[:80]!r}")
        found.append(Permission(StreamAction(action), pattern))
    return tuple(found)


def matches(pattern: str, text: str) -> bool:
    """Return whether a text matches a pattern with `*`.

    Takes linear time, because it is sufficient to find the first place of each part.
    """
    first, *rest = pattern.split("*")
    if not rest:
        return pattern == text
    *middle, last = rest
    if not text.startswith(first) or not text.endswith(last):
        return False
    at, end = len(first), len(text) - len(last)
    for part in middle:
        found = text.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return at <= end
