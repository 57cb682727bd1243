"""Claims of a token: found by name, and compared with the value of a grant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec


def claim_of(claims: Mapping[str, Any], name: str) -> Any:
    """Return a claim by its name; if none has the whole name, dots lead into objects. None if it is absent."""
    if name in claims:
        return claims[name]
    value: Any = claims
    for step in name.split("."):
        if not isinstance(value, Mapping) or step not in value:
            return None
        value = value[step]
    return value


def has_value(claim: Any, value: str) -> bool:
    """Return whether a claim is a value, or contains it as an element of its list or as a word of its text.

    `*` stands for anything but false, null and empty; numbers and true are compared as JSON writes them.
    """
    if value == "*":
        return claim is not None and claim is not False and claim not in ("", [], {})
    elements = claim if isinstance(claim, list) else [claim]
    return any(value == _text(each) or (isinstance(each, str) and value in each.split()) for each in elements)


def _text(value: Any) -> str | None:
    if isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode() if isinstance(value, int | float) else None
