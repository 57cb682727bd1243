"""The scopes of API keys. Loads nothing else: clients need the names alone."""

from __future__ import annotations

from typing import Literal, get_args

Scope = Literal["look", "read", "write", "delete", "admin"]
"""`read` includes `look`; otherwise no scope includes another."""
SCOPES: tuple[Scope, ...] = get_args(Scope)
EVERY_SCOPE: frozenset[Scope] = frozenset(SCOPES) - {"look"}
"""The scopes of a key without limits: `read` includes `look`."""
