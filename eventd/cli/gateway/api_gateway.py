"""Runs operations through the API of a running node, without loading the code that answers."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

from eventd.api.framework.route import Route
from eventd.api.routes import OPERATIONS
from eventd.errors import EventdError, Invalid, NotFound, Unavailable

REQUEST_SECONDS = 60.0
MAX_ANSWER_BYTES = 256 << 20


class NodeGone(Unavailable):
    """The node ended before it answered a request that may be repeated."""


class ApiGateway(ABC):
    """Runs operations over the API of a running node. `call` raises the errors that the node reports.

    `server` names the node in messages.
    """

    needs_loop = False
    server: str

    @abstractmethod
    def exchange(self, method: str, target: str, body: bytes | None, most: int) -> tuple[int, bytes]:
        """Return the status and the body of the answer to one request. Blocks the event loop.

        Of a body of more than `most` bytes, one byte more than that is returned. Raises `Unavailable`.
        """

    async def call(self, operation: str, /, **params: Any) -> dict[str, Any]:
        try:
            method, target, body = make_request(OPERATIONS[operation], params)
        except UnicodeEncodeError:
            raise Invalid(f"{_undecoded(params)} is not valid UTF-8") from None
        status, content = self.exchange(method, target, body, MAX_ANSWER_BYTES)
        if len(content) > MAX_ANSWER_BYTES:
            raise EventdError(
                f"the answer of {self.server} is larger than {MAX_ANSWER_BYTES >> 20} MiB",
                hint="request fewer rows, for example with --limit",
            )
        if status != 200:
            from eventd.api.errors.codes import restore

            raise restore(status, content)
        try:
            decoded = json.loads(content)
        except (ValueError, RecursionError):
            decoded = None
        if not isinstance(decoded, dict):
            raise EventdError(
                f"{self.server} does not answer like a routerd-eventd node",
                hint="check that a routerd-eventd serves this address",
            )
        return decoded

    @abstractmethod
    def serving(self) -> str:
        """Return the id of the node's process, or `the server`."""

    @abstractmethod
    async def close(self) -> None:
        """Close the connection."""


def make_request(route: Route, params: Mapping[str, Any]) -> tuple[str, str, bytes | None]:
    """Return method, path with query, and body; for GET no body. UnicodeEncodeError: a value is not valid Unicode."""
    path, rest = _fill(route.path, {_outer_name(name): value for name, value in params.items()})
    if route.method == "GET":
        return route.method, path + _query(rest), None
    return route.method, path, json.dumps(rest, ensure_ascii=False).encode()


def _outer_name(name: str) -> str:
    """Return the API's name of a parameter: `fromSeq` for `from_seq`."""
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def _undecoded(params: Mapping[str, Any]) -> str:
    """Return the API's name of the first parameter that cannot be encoded as UTF-8; `the request` without one."""
    for name, value in params.items():
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            return _outer_name(name)
    return "the request"


def _fill(path: str, values: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Fill in the fields of a path. Returns the path and the remaining values. Raises `NotFound` for an empty name."""
    rest = dict(values)
    parts = path.split("/")
    for at, part in enumerate(parts):
        if part.startswith("{"):
            name = part[1:-1]
            parts[at] = quote(str(rest.pop(name)), safe="")
            if not parts[at]:
                raise NotFound(f"the value for {name} is empty: write one")
    return "/".join(parts), rest


def _query(values: Mapping[str, Any]) -> str:
    texts = {
        name: str(value).lower() if isinstance(value, bool) else value
        for name, value in values.items()
        if value is not None
    }
    return f"?{urlencode(texts, doseq=True)}" if texts else ""
