"""The state of the key sets and signing keys of tenants, as a running node sees them."""

from __future__ import annotations

from typing import NamedTuple


class TenantKeyState(NamedTuple):
    """The state of one source of keys of a tenant; `field` is its place in the tenant's spec, and `source` its name.

    `keys`: how many are known. `age`: seconds since it was last read, None if it never was. `problem`: why the last
    read failed; `skipped`: what is wrong with keys that are not used.
    """

    tenant: str
    field: str
    source: str
    keys: int
    age: float | None
    problem: str
    skipped: tuple[str, ...]
