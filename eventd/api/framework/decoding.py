"""Decodes bodies and queries into msgspec models: a wrong type is refused in a body, and ignored in a query."""

from __future__ import annotations

from codecs import getincrementaldecoder
from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar

import msgspec

from eventd.api.framework.models import Query
from eventd.api.framework.wording import reworded
from eventd.errors import Invalid
from eventd.text.duplicate_keys import require_once
from federation.event import is_plain

_AT_ONCE = 256 << 10
"""Bytes of a body that are checked for UTF-8 at a time."""
_TRUTHS = {"true": True, "1": True, "false": False, "0": False}

T = TypeVar("T")
Q = TypeVar("Q", bound=Query)


def decode(text: bytes | bytearray, model: type[T]) -> T:
    """Return a JSON text as a value of `model`. Raises `Invalid`, also for a member of a model that is given twice.

    Members of type `Raw` refer to the text and keep it in memory.
    """
    known: Any = model
    _require_utf8(text)
    try:
        value: T = _decoder(known).decode(text)
    except msgspec.ValidationError as error:
        raise Invalid(reworded(str(error), model)) from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise decode_error(error) from None
    require_once(text, value)
    return value


def decode_error(error: Exception) -> Invalid:
    """Return the error for a text that is not JSON, or is nested too deep."""
    why = "it is nested too deep" if isinstance(error, RecursionError) else str(error)
    return Invalid(f"the body is not valid JSON: {why.removeprefix('JSON is malformed: ')}")


def _require_utf8(text: bytes | bytearray) -> None:
    """Raises `Invalid` with the offset of the first byte that is not UTF-8. The decoder does not check `Raw`."""
    if text.isascii():
        return
    decoder, whole = getincrementaldecoder("utf-8")(), memoryview(text)
    for start in range(0, len(text), _AT_ONCE):
        begun = len(decoder.getstate()[0])  # bytes of a character that continues in this part
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


def read_query(given: Mapping[str, str], model: type[Q]) -> Q:
    """Return the parameters `given` in a query as a `model`. A value of the wrong type becomes the default.

    Raises `Invalid` for a text that no database stores: with U+0000, or not UTF-8.
    """
    if not given or not model.__struct_fields__:
        defaults: Q = _defaults(model)
        return defaults
    values: dict[str, Any] = {}
    for field in msgspec.structs.fields(model):
        read = _truth if field.type is bool else _number if field.type is int else _text
        if field.name in given and (value := read(given[field.name])) is not None:
            values[field.name] = value
    return model(**values)


def _text(text: str) -> str:
    if not is_plain(text):
        raise Invalid("the query contains U+0000, or bytes that are not UTF-8")
    return text


def _truth(text: str) -> bool | None:
    return _TRUTHS.get(text)


def _number(text: str) -> int | None:
    return int(text) if len(text) < 20 and text.isascii() and text.isdigit() else None
