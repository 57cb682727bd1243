"""Reads the parameters of an operation; every problem names its field, in this program's words."""

from __future__ import annotations

import types
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from eventd.api.errors.codes import BadParams
from eventd.resources.reading.problems import shorten
from eventd.text.did_you_mean import did_you_mean
from eventd.text.quoting import with_value
from eventd.text.validation import message_of

P = TypeVar("P", bound=BaseModel)

_LARGEST = 2**63 - 1
MOST_PROBLEMS = 20
"""Maximum number of wrong fields that an error names: it takes much longer to describe a wrong field than to send
one."""


def read_params(model: type[P], values: Mapping[str, Any], plain: Collection[str] = ()) -> P:
    """Return the validated parameters. Raises `BadParams` with the fields that the first failing check finds.

    At most `MOST_PROBLEMS` fields are named. `plain`: names of values that are known to contain no U+0000, since
    searching a batch of events costs six times its decoding.
    """
    checked = {name: value for name, value in values.items() if name not in plain}
    if flaws := dict(islice(_unstorable(checked, ""), MOST_PROBLEMS)):
        raise BadParams(flaws)
    unknown = values.keys() - _names(model)
    if len(unknown) > MOST_PROBLEMS:  # before pydantic reports each of them
        first = [name for name in values if name in unknown][:MOST_PROBLEMS]
        raise BadParams({shorten(name): _unknown(name, model) for name in first}, len(unknown) - len(first))
    try:
        params = model.model_validate(dict(values))
    except ValidationError as error:
        details = error.errors(include_url=False)
        named = {_place(detail): _reword(detail, model) for detail in details[:MOST_PROBLEMS]}
        raise BadParams(named, len(details) - len(details[:MOST_PROBLEMS])) from None
    if huge := [name for name, value in params if _is_huge(value)]:
        raise BadParams({_outer_name(model, name): "must be a smaller number" for name in huge})
    return params


def _is_huge(value: Any) -> bool:
    """Return whether the value is an integer that is too large for a database, or a list that contains one."""
    if isinstance(value, list | tuple | set | frozenset):
        return any(map(_is_huge, value))
    return isinstance(value, int) and abs(value) > _LARGEST


def from_query(model: type[BaseModel], pairs: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Return the values of a query by name: a list for a list field.

    Raises `BadParams` for a second value of any other field.
    """
    lists = {_outer_name(model, name) for name, field in model.model_fields.items() if _is_list(field.annotation)}
    values: dict[str, Any] = {}
    for name, value in pairs:
        if name in lists:
            values.setdefault(name, []).append(value)
        elif name in values:
            raise BadParams({name: "is given twice"})
        else:
            values[name] = value
    return values


def merge(path: Mapping[str, Any], *others: Mapping[str, Any]) -> dict[str, Any]:
    """Return all values of a request: of its path, query and body.

    Raises `BadParams` for a name with two different values.
    """
    merged = dict(path)
    for values in others:
        if twice := [name for name, value in values.items() if name in merged and merged[name] != value]:
            raise BadParams({name: "is given twice, with different values" for name in twice})
        merged |= values
    return merged


def _outer_name(model: type[BaseModel], name: str) -> str:
    return model.model_fields[name].alias or name


def _is_list(annotation: Any) -> bool:
    origin = get_origin(annotation) or annotation
    if origin is Annotated:
        return _is_list(get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        return any(_is_list(choice) for choice in get_args(annotation))
    return origin in (list, tuple, set, frozenset)


def _unstorable(value: Any, place: str) -> Iterator[tuple[str, str]]:
    """Yield the place and the problem of each text or field name with U+0000, which no database stores."""
    match value:
        case str():
            if "\x00" in value:
                yield place, "must not contain the character U+0000"
        case Mapping():
            for name, inner in value.items():
                member = shorten(str(name))
                if "\x00" in str(name):
                    yield member, "is not a valid field name"
                yield from _unstorable(inner, f"{place}.{member}" if place else member)
        case list():
            for at, inner in enumerate(value):
                yield from _unstorable(inner, f"{place}[{at}]")


def _place(detail: ErrorDetails) -> str:
    text = ""
    for step in detail["loc"]:
        name = shorten(str(step))
        text += f"[{step}]" if isinstance(step, int) else f".{name}" if text else name
    return text or "the request"


def _reword(detail: ErrorDetails, model: type[BaseModel]) -> str:
    if detail["type"] == "extra_forbidden":
        return _unknown(str(detail["loc"][-1]), model)
    return with_value(message_of(detail["type"], detail.get("ctx", {})), detail["input"], *detail["loc"])


def _names(model: type[BaseModel]) -> set[str]:
    return {*model.model_fields, *(_outer_name(model, name) for name in model.model_fields)}


def _unknown(name: str, model: type[BaseModel]) -> str:
    return f"is not a field of this request{_meant(shorten(name), model)}"


def _meant(name: str, model: type[BaseModel]) -> str:
    known = [_outer_name(model, field) for field in model.model_fields]
    meant = did_you_mean(name, known, 0.7)
    return f", {meant}" if meant else f", which has {', '.join(known) or 'none'}"
