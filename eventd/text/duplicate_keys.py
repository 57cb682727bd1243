"""Refuses bodies that give a member of a model twice: the decoder would use the last, perhaps not the intended one."""

from __future__ import annotations

from collections import Counter
from functools import cache
from itertools import chain
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec
from msgspec import inspect

from eventd.errors import Invalid


def require_once(text: bytes | bytearray, value: Any) -> None:
    """Raises `Invalid` if a member of a model occurs twice in the text that was decoded as `value`."""
    model: Any = type(value)
    shape = _shape(model)
    if not _is_plainly_once(text, value, shape):
        _require_once_in(memoryview(text), shape, "")


def member_names(text: bytes | bytearray) -> list[str]:
    """Return the names of the members of the object in a text, in their order, repeated ones too.

    Raises `msgspec.DecodeError`.
    """
    return [name.text for name in _MEMBERS.decode(text)]


class _Name:
    """One occurrence of a member's name. Two with the same text are different keys of a dict, so both are kept."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


_MEMBERS = msgspec.json.Decoder(dict[_Name, msgspec.Raw], dec_hook=lambda _, text: _Name(text))
_ELEMENTS = msgspec.json.Decoder(list[msgspec.Raw])


@cache
def _shape(model: Any) -> inspect.Type:
    return inspect.type_info(model)


class _Member(NamedTuple):
    """A member of a model: its getter, its default if it has one, and its type if that contains a model."""

    name: str
    get: attrgetter[Any]
    default: Any
    inner: inspect.Type | None


@cache
def _members(model: Any) -> tuple[_Member, ...]:
    shape = _shape(model)
    assert isinstance(shape, inspect.StructType)
    return tuple(_member(each) for each in shape.fields)


def _member(field: inspect.Field) -> _Member:
    made = field.default_factory is not msgspec.NODEFAULT
    default = field.default_factory() if made else field.default
    return _Member(field.encode_name, attrgetter(field.name), default, field.type if _has_members(field.type) else None)


def _is_plainly_once(text: bytes | bytearray, value: object, shape: inspect.Type) -> bool:
    """Return whether it is certain, without parsing the text again, that no member of a model occurs twice.

    A member that differs from its default was given. If its name occurs in the text no more often than such members, or
    only once, then no member was given twice. False also if a name may be written with escapes.
    """
    if b"\\u00" in text and any(escape in text for escape in (b"\\u005", b"\\u006", b"\\u007")):
        return False
    given: Counter[str] = Counter()
    _count_given([value], shape, given)
    return all(text.count(f'"{name}"'.encode()) <= max(count, 1) for name, count in given.items())


def _count_given(values: list[Any], kind: inspect.Type, given: Counter[str]) -> None:
    """Add to `given`, by name, how many members of all `values` and of the models in them differ from their default."""
    match kind:
        case inspect.StructType(cls=model) if values:
            for name, get, default, inner in _members(model):
                found = [*map(get, values)]
                given[name] += len(found) - found.count(default)
                if inner is not None:
                    _count_given(found, inner, given)
        case inspect.ListType(item_type=inner):
            _count_given([*chain.from_iterable(values)], inner, given)
        case inspect.DictType(value_type=inner):
            _count_given([*chain.from_iterable(each.values() for each in values)], inner, given)
        case inspect.UnionType(types=types):
            for each in types:
                if isinstance(each, inspect.StructType):
                    _count_given([value for value in values if isinstance(value, each.cls)], each, given)
        case _:
            pass


def _has_members(kind: inspect.Type) -> bool:
    """Return whether the type is a model, or a list, dict or union that contains one."""
    match kind:
        case inspect.StructType():
            return True
        case inspect.ListType(item_type=inner) | inspect.DictType(value_type=inner):
            return _has_members(inner)
        case inspect.UnionType(types=types):
            return any(map(_has_members, types))
        case _:
            return False


def _require_once_in(text: memoryview, kind: inspect.Type, place: str) -> None:
    """Raises `Invalid` if a member of a model occurs twice in `text`, which was decoded as the type `kind`.

    `place`: the path of `text` in the body, for the message.
    """
    match kind:
        case inspect.StructType(fields=fields):
            given = [(name.text, value) for name, value in _MEMBERS.decode(text).items()]
            for field in fields:
                values = [value for name, value in given if name == field.encode_name]
                if len(values) > 1:
                    raise Invalid(f"the body does not fit: `{place}{field.encode_name}` is given twice")
                if values:
                    _require_once_in(memoryview(values[0]), field.type, f"{place}{field.encode_name}.")
        case inspect.ListType(item_type=inner) if _has_members(inner):
            for index, element in enumerate(_ELEMENTS.decode(text)):
                _require_once_in(memoryview(element), inner, f"{place}{index}.")
        case inspect.DictType(value_type=inner) if _has_members(inner):
            for name, value in _MEMBERS.decode(text).items():
                _require_once_in(memoryview(value), inner, f"{place}{name.text}.")
        case inspect.UnionType(types=types) if bytes(text[:1]) == b"{":
            for each in types:
                if isinstance(each, inspect.StructType):
                    _require_once_in(text, each, place)
        case _:
            pass
