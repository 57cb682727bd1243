"""All operations, from every surface. Each is loaded when it is asked for: a command needs one, and has no time."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final

from eventd.api.framework.operations import Operation

_SURFACES: Final = {
    "groups": ("admin.groups",),
    "resources": ("admin.resources",),
    "events": ("admin.events",),
    "deliveries": ("admin.deliveries", "admin.redelivery"),
    "links": ("admin.links", "verify.operations"),
    "dead_letters": ("admin.dead_letters",),
    "books": ("admin.export",),
    "doctor": ("doctor.operations",),
    "subscriptions": ("admin.subscriptions",),
    "dynamic": ("admin.dynamic",),
    "plugins": ("admin.plugins",),
    "keys": ("admin.keys",),
    "lake": ("admin.lake",),
}
"""The files of this package with the operations whose names begin so."""


def find_operation(name: str) -> Operation[Any]:
    """The operation of that name. Raises LookupError for one there is not."""
    found = {operation.name: operation for operation in _operations_of(name.partition(".")[0])}
    return found[name]


def all_operations() -> tuple[Operation[Any], ...]:
    """Every one of them."""
    return tuple(operation for surface in _SURFACES for operation in _operations_of(surface))


def _operations_of(surface: str) -> Sequence[Operation[Any]]:
    return [operation for file in _SURFACES[surface] for operation in import_module(f"eventd.api.{file}").OPERATIONS]
