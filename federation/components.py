"""The components of a message that a signature covers, and the text that is signed (RFC 9421, sections 2 and 2.5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from federation.errors import Unauthorized
from federation.structured import Item, Params, write_member, write_params


class Components(NamedTuple):
    """Covered components: each as an item, as it is written, and the name its value goes by. `listed`: all, written."""

    items: tuple[Item, ...]
    written: tuple[str, ...]
    names: tuple[str, ...]
    listed: str


def cover(items: tuple[Item, ...]) -> Components:
    """The components of a list. A value goes by its bare name, or by all of it where it has parameters."""
    written = tuple(map(write_member, items))
    names = tuple(text if item.params else str(item.value) for item, text in zip(items, written, strict=True))
    return Components(items, written, names, f"({' '.join(written)})")


def write_list(covered: Components, params: Params) -> str:
    """The list of what is covered with the signature's parameters, as `Signature-Input` holds it."""
    return covered.listed + write_params(params)


def require_all(covered: Components, values: Mapping[str, str]) -> None:
    """Raise Unauthorized unless each component has a value."""
    for name in covered.names:
        if name not in values:
            raise Unauthorized(f"the header {name} is missing", reason="components")


def signature_base(covered: Components, listed: str, values: Mapping[str, str]) -> bytes:
    """What is signed: one line per component, and the list that `write_list` gives of them last.

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
