"""A request as /v0 reads it: strictly where a mistake would be lost, leniently where the query is only a wish."""

from __future__ import annotations

from codecs import getincrementaldecoder
from functools import cache
from typing import Any, TypeVar

import msgspec
from aiohttp import web

from eventd.api.bodies.bodies import Held, read_body
from eventd.api.errors.codes import WrongMediaType
from eventd.api.topics.duplicate_keys import require_once
from eventd.api.topics.models import Query
from eventd.api.topics.wording import reworded
from eventd.errors import Invalid
from federation.event import is_plain

_AT_ONCE = 256 << 10
"""Bytes whose encoding is checked at once, each time with a copy of them."""
_TRUTHS = {"true": True, "1": True, "false": False, "0": False}

T = TypeVar("T")
Q = TypeVar("Q", bound=Query)


async def read_json(request: web.Request, most: int, held: Held, *, may_be_empty: bool) -> bytes | bytearray:
    """The body, which has to be declared as JSON; `{}` for none at all where it `may_be_empty`.

    Raises `WrongMediaType`, `TooLarge` beyond `most` bytes, `Throttled`, `SlowBody` and `Invalid`.
    """
    if not request.headers.get("Content-Type", "").lstrip().startswith("application/json"):
        if may_be_empty and not await read_body(request, most, held):  # some clients declare a type also of nothing
            return b"{}"
        raise WrongMediaType("the body must be JSON", hint="send it with Content-Type: application/json")
    body = await read_body(request, most, held)
    return b"{}" if not body and may_be_empty else body


def decode(text: bytes | bytearray, model: type[T]) -> T:
    """The body as its model says. Raises `Invalid`, also for a member of the model that occurs twice.

    Members that are `Raw` refer to the text: as long as they live, it does.
    """
    known: Any = model
    _require_utf8(text)
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


def _require_utf8(text: bytes | bytearray) -> None:
    """Raises `Invalid` with the place of the first byte that is not UTF-8. The decoder does not look into `Raw`."""
    if text.isascii():
        return
    decoder, whole = getincrementaldecoder("utf-8")(), memoryview(text)
    for start in range(0, len(text), _AT_ONCE):
        begun = len(decoder.getstate()[0])  # bytes of a character that the last part has not ended
        try:
            decoder.decode(whole[start : start + _AT_ONCE], final=start + _AT_ONCE >= len(text))
        except UnicodeDecodeError as error:
            at = start - begun + error.start
            raise Invalid(f"the body is not valid JSON: byte {at} is not UTF-8") from None


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
