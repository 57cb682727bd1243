"""Rewords the errors of msgspec for clients: first the member, then what it must be."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from msgspec import inspect

_KINDS = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}


def reworded(problem: str, model: Any) -> str:
    """Return msgspec's `problem` with a body that does not fit `model`, in this program's words."""
    what, _, path = problem.partition(" - at `")
    member = path.removeprefix("$").removeprefix(".").removesuffix("`")
    if missing := re.fullmatch(r"Object missing required field `(.*)`", what):
        return f"`{member}.{missing[1]}` is missing" if member else f"`{missing[1]}` is missing"
    place = f"`{member}`" if member else "the body"
    if re.match(r"Invalid enum value", what):
        name = re.sub(r"\[\d*\]$", "", member).rpartition(".")[2]
        return f"{place} must be {_either(_values(model).get(name, ()))}"
    if wrong := re.fullmatch(r"Expected `([^`]*)`, got `([^`]*)`", what):
        wanted = [_KINDS.get(kind, kind) for kind in wrong[1].split(" | ")]
        return f"{place} must be {_either(wanted)}, not {_KINDS.get(wrong[2], wrong[2])}"
    if bound := re.fullmatch(r"Expected `[^`]*` (>=|<=) (\S+)", what):
        return f"{place} must be at {'least' if bound[1] == '>=' else 'most'} {bound[2]}"
    return f"{place}: {what}" if member else what


def _either(words: Any) -> str:
    *most, last = map(str, words)
    return f"{', '.join(most)} or {last}" if most else last


@cache
def _values(model: Any) -> dict[str, tuple[Any, ...]]:
    """Return the allowed values of each member that has a fixed set of them, by its name; also of nested models."""
    found: dict[str, tuple[Any, ...]] = {}
    _gather(inspect.type_info(model), found)
    return found


def _gather(kind: inspect.Type, found: dict[str, tuple[Any, ...]], name: str = "") -> None:
    match kind:
        case inspect.LiteralType(values=values):
            found[name] = values
        case inspect.StructType(fields=fields):
            for field in fields:
                _gather(field.type, found, field.encode_name)
        case inspect.ListType(item_type=inner) | inspect.DictType(value_type=inner):
            _gather(inner, found, name)
        case inspect.UnionType(types=types):
            for each in types:
                _gather(each, found, name)
        case _:
            pass
