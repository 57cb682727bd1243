"""The components of a message that a signature covers, and the signed text (RFC 9421, sections 2 and 2.5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from federation.errors import Unauthorized
from federation.structured import Item, Params, write_member, write_params


class Components(NamedTuple):
    """The components that a signature covers.

    `written`: each as text; `names`: the keys of their values; `listed`: all as one text.
    """

    items: tuple[Item, ...]
    written: tuple[str, ...]
    names: tuple[str, ...]
    listed: str


def cover(items: tuple[Item, ...]) -> Components:
    """Return the components of these items. The key of a value is the item's name, or its text if it has parameters."""
    written = tuple(map(write_member, items))
    names = tuple(text if item.params else str(item.value) for item, text in zip(items, written, strict=True))
    return Components(items, written, names, f"({' '.join(written)})")


def write_list(covered: Components, params: Params) -> str:
    """Return the list of components with the signature's parameters, as in `Signature-Input`."""
    return covered.listed + write_params(params)


def require_all(covered: Components, values: Mapping[str, str]) -> None:
    """Raise Unauthorized unless `values` has a value for each component."""
    for name in covered.names:
        if name not in values:
            raise Unauthorized(f"the header {name} is missing", reason="components")


def signature_base(covered: Components, listed: str, values: Mapping[str, str]) -> bytes:
    """Return the signed text: one line per component, and last the list from `write_list`.

    Raises Unauthorized when a component has no value, or one that is not ASCII.
    """
    require_all(covered, values)
    cells = zip(covered.written, covered.names, strict=True)
    lines = [f"{written}: {values[name]}" for written, name in cells]
    lines.append(f'"@signature-params": {listed}')
    try:
        return "\n".join(lines).encode("ascii")
    except UnicodeEncodeError:
        raise Unauthorized("a covered header is not ASCII", reason="components") from None
