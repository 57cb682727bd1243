"""A request as /v0 reads it: strictly where a mistake would be lost, leniently where the query is only a wish."""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar

import msgspec
from aiohttp import web

from eventd.api.bodies import Held, read_body
from eventd.api.codes import WrongMediaType
from eventd.api.v0.models import Query
from eventd.api.v0.once import require_once
from eventd.api.v0.wording import reworded
from eventd.errors import Invalid
from federation.event import is_plain

_TRUTHS = {"true": True, "1": True, "false": False, "0": False}

T = TypeVar("T")
Q = TypeVar("Q", bound=Query)


async def read_text(request: web.Request, most: int, held: Held, *, may_be_empty: bool) -> str:
    """The body, which has to be declared as JSON; `{}` for none at all where it `may_be_empty`.

    Raises `WrongMediaType`, `TooLarge` beyond `most` bytes, `Throttled`, `SlowBody`, `Invalid` for what is no UTF-8.
    """
    if not request.headers.get("Content-Type", "").lstrip().startswith("application/json"):
        if may_be_empty and not await read_body(request, most, held):  # some clients declare a type also of nothing
            return "{}"
        raise WrongMediaType("the body must be JSON", hint="send it with Content-Type: application/json")
    body = await read_body(request, most, held)
    if not body and may_be_empty:
        return "{}"
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise Invalid(f"the body is not valid JSON: byte {error.start} is no UTF-8") from None


def decode(text: str, model: type[T]) -> T:
    """The body as its model says. Raises `Invalid`, also for a member of the model that occurs twice."""
    known: Any = model
    try:
        value: T = _decoder(known).decode(text)
    except msgspec.ValidationError as error:
        raise Invalid(reworded(str(error), model)) from None
    except msgspec.DecodeError as error:
        raise Invalid(f"the body is not valid JSON: {str(error).removeprefix('JSON is malformed: ')}") from None
    except RecursionError:
        raise Invalid("the body is not valid JSON: it is nested too deep") from None
    require_once(text, value)
    return value


@cache
def _decoder(model: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(model)


@cache
def _defaults(model: Any) -> Any:
    return model()


def read_query(request: web.Request, model: type[Q]) -> Q:
    """The query. What cannot be read as its type is the default; of several values the first counts.

    Raises `Invalid` for a text that no name can hold, and no database takes.
    """
    if not request.query_string or not model.__struct_fields__:
        defaults: Q = _defaults(model)
        return defaults
    said = request.query
    values: dict[str, Any] = {}
    for field in msgspec.structs.fields(model):
        read = _truth if field.type is bool else _number if field.type is int else _text
        if field.name in said and (value := read(said[field.name])) is not None:
            values[field.name] = value
    return model(**values)


def _text(text: str) -> str:
    if not is_plain(text):
        raise Invalid("the query holds U+0000, or bytes that are no UTF-8")
    return text


def _truth(text: str) -> bool | None:
    return _TRUTHS.get(text)


def _number(text: str) -> int | None:
    return int(text) if len(text) < 20 and text.isascii() and text.isdigit() else None
