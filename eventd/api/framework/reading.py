"""Reads requests for their handlers: first within limits, then decoded.

The body of an operation is one JSON object, completed by the values of the path and the query; the wrong fields that
one check finds are reported together. The query and the body of other calls have a model each: the query is read
leniently, the body strictly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec
from aiohttp import web

from eventd.api.bodies.bodies import HUGE_BYTES, LIGHT_BYTES, SMALL_BYTES, BodyReservation, aside, read_body
from eventd.api.bodies.json_shape import require_modest
from eventd.api.bodies.outlines import read_outline
from eventd.api.errors.codes import WrongMediaType
from eventd.api.framework.decoding import decode, decode_error, read_query
from eventd.api.framework.endpoint import Endpoint
from eventd.api.framework.operations import Params
from eventd.api.framework.params import from_query, merge, read_params
from eventd.api.framework.route import Route
from eventd.errors import Invalid, TooLarge

_NUL = rb"\u0000"


class BodyReader:
    """Reads the bodies of a route's requests: at most `most` bytes, or the route's own limit if that is lower."""

    def __init__(self, route: Route, most: int, *, may_be_empty: bool) -> None:
        self._surface = route.surface
        self._may_be_empty = may_be_empty
        self._bytes = min(most, route.body.bytes)
        self._by_setting = most < route.body.bytes

    async def read(self, request: web.Request, held: BodyReservation) -> bytes | bytearray:
        """Return the body, which must be declared as JSON unless it is empty and may be.

        Raises `WrongMediaType`, `TooLarge`, `Throttled`, `SlowBody` and `Invalid`.
        """
        if self._is_declared(request):
            return await read_body(request, self._bytes, held, setting=self._by_setting)
        if self._may_be_empty:
            with suppress(TooLarge):
                return await read_body(request, 0, held)
        raise WrongMediaType("the body must be JSON in UTF-8", hint="send it with Content-Type: application/json")

    def _is_declared(self, request: web.Request) -> bool:
        if not self._surface.strict_type:
            return request.headers.get("Content-Type", "").lstrip().startswith("application/json")
        charset = (request.charset or "utf-8").lower()
        return request.content_type == "application/json" and charset in ("utf-8", "utf8")


class ParamsReader:
    """Reads the parameters of an operation."""

    def __init__(self, route: Route, model: type[Params], most: int) -> None:
        self._has_body = route.method != "GET"
        self._values = route.body.values
        self._model = model
        self._bodies = BodyReader(route, most, may_be_empty=True)

    async def read(self, request: web.Request, held: BodyReservation) -> Params:
        """Return the parameters. Raises the errors of `BodyReader`, and those of `read_params`."""
        text: bytes | bytearray = await self._bodies.read(request, held) if self._has_body else b""
        params = None
        if not request.query_string and len(text) <= HUGE_BYTES:
            params = await aside(len(text), self._model.read_quickly, request.match_info, text)
        if params is None:
            query = list(request.query.items())
            params = await aside(len(text), self._read_closely, request.match_info, query, text, light=LIGHT_BYTES)
        return params

    def _read_closely(
        self, path: Mapping[str, str], query: Sequence[tuple[str, str]], text: bytes | bytearray
    ) -> Params:
        named = from_query(self._model, query)
        body = _decode_object(text, self._values) if text else {}
        # JSON has one way to write U+0000: a text without it contains no such value
        plain = body.keys() - path.keys() - named.keys() if _NUL not in text else ()
        return read_params(self._model, merge(path, named, body), plain)


def _decode_object(text: bytes | bytearray, values: int) -> dict[str, Any]:
    require_modest(text, values)
    try:
        value = read_outline(text) if len(text) > HUGE_BYTES else msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise decode_error(error) from None
    if not isinstance(value, dict):
        raise Invalid("the body must be a JSON object", hint='write {"field": value, …}')
    return value


class CallReader:
    """Reads the query and the body of a call."""

    def __init__(self, route: Route, endpoint: Endpoint, most: int) -> None:
        self._query = endpoint.query
        self._model = endpoint.body
        self._bodies = BodyReader(route, most, may_be_empty=route.may_be_empty)
        self._may_be_empty = route.may_be_empty

    async def read(self, request: web.Request, held: BodyReservation) -> tuple[Any, Any]:
        """Return the query, and the body or None if the route takes none. Raises `Invalid`, and what `BodyReader` does.

        An empty body, where it is allowed, counts as `{}`.
        """
        query = read_query(request.query if request.query_string else {}, self._query)
        if self._model is None:
            return query, None
        text = await self._bodies.read(request, held)
        if not text and self._may_be_empty:
            text = b"{}"
        return query, await aside(len(text), self._decode, text)

    def _decode(self, text: bytes | bytearray) -> Any:
        if len(text) > SMALL_BYTES and (require_bounded := getattr(self._model, "require_bounded", None)):
            require_bounded(text)
        return decode(text, self._model)
