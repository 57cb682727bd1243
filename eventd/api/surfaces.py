"""All operations, from every surface. Each is loaded when it is asked for: a command needs one, and has no time."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final

from eventd.api.operations import Operation

_SURFACES: Final = {
    "groups": ("groups",),
    "resources": ("resources",),
    "events": ("events",),
    "deliveries": ("deliveries", "redelivery"),
    "links": ("links", "verify.operations"),
    "dead_letters": ("dead_letters",),
    "books": ("export",),
    "doctor": ("doctor.operations",),
    "subscriptions": ("subscriptions",),
    "dynamic": ("dynamic",),
    "plugins": ("plugins",),
    "keys": ("keys",),
    "lake": ("lake",),
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
