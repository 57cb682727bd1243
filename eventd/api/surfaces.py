"""All operations, from every surface."""

from __future__ import annotations

from typing import Any

from eventd.api.operations import Operation

OPERATIONS: tuple[Operation[Any], ...] = ()
