"""Roles: the sets of scopes that people usually have."""

from __future__ import annotations

from typing import Final, NamedTuple

from eventd.api.keys.scopes import EVERY_SCOPE, Scope


class KeyRole(NamedTuple):
    """A named set of scopes."""

    name: str
    scopes: frozenset[Scope]
    summary: str


ROLES: Final = (
    KeyRole("look", frozenset({"look"}), "Sees states, counts and names, and no content."),
    KeyRole("read", frozenset({"read"}), "Also sees events, records, attempts and the output of plugins."),
    KeyRole(
        "operator",
        frozenset({"read", "write", "delete"}),
        "Also emits and writes, works on queues, and deletes records and dead letters.",
    ),
    KeyRole("admin", EVERY_SCOPE, "Does everything: also applies resources, pauses, sends again and makes keys."),
)
"""The lowest first; each includes those before it."""
