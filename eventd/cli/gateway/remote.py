"""Access to a running node through its API, without loading the code that answers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import quote, urlencode

from eventd.api.framework.route import Route
from eventd.api.routes import OPERATIONS
from eventd.errors import EventdError, Invalid, NotFound, Unavailable
from eventd.net.address import Address

REQUEST_SECONDS = 60.0
MAX_ANSWER_BYTES = 256 << 20


class RemoteGateway:
    """Runs operations over the API of a running node. `call` raises the errors that the node reports."""

    def __init__(self, server: str, key: str) -> None:
        self._address = Address.parse(server)
        self._key = key
        self._connection: HTTPConnection | None = None

    async def call(self, operation: str, **params: Any) -> dict[str, Any]:
        try:
            method, target, body = _request(OPERATIONS[operation], params)
        except UnicodeEncodeError:
            raise Invalid(f"{_undecoded(params)} is not valid UTF-8") from None
        return self._ask(method, target, body)

    def _ask(self, method: str, target: str, body: bytes | None) -> dict[str, Any]:
        """Return the decoded JSON answer to one request; raises the reported error. Blocks the event loop."""
        try:
            connection = self._connect()
            connection.request(method, f"{self._address.prefix}{target}", body, self._headers(body))
            answer = connection.getresponse()
            content = answer.read(MAX_ANSWER_BYTES + 1)
        except (OSError, HTTPException) as error:
            raise self._unreachable(error) from None
        if len(content) > MAX_ANSWER_BYTES:
            answer.close()
            raise EventdError(
                f"the answer of {self._address} is larger than {MAX_ANSWER_BYTES >> 20} MiB",
                hint="request fewer rows, for example with --limit",
            )
        if answer.status != 200:
            from eventd.api.errors.codes import restore

            raise restore(answer.status, content)
        try:
            decoded = json.loads(content)
        except (ValueError, RecursionError):
            decoded = None
        if not isinstance(decoded, dict):
            raise EventdError(
                f"{self._address} does not answer like a routerd-eventd node",
                hint="check that a routerd-eventd serves this address",
            )
        return decoded

    def _connect(self) -> HTTPConnection:
        if self._connection is None:
            kind = HTTPSConnection if self._address.secure else HTTPConnection
            self._connection = kind(self._address.host, self._address.port, timeout=REQUEST_SECONDS)
        return self._connection

    def _headers(self, body: bytes | None) -> dict[str, str]:
        headers = {"Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        return headers

    def _unreachable(self, error: Exception) -> Unavailable:
        if isinstance(error, TimeoutError):
            words = f"no answer within {REQUEST_SECONDS:g} s"
        else:
            words = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return Unavailable(
            f"cannot reach {self._address}: {words}",
            hint="check that the node is running and that this is the address of its API",
        )

    async def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()


def _request(route: Route, params: Mapping[str, Any]) -> tuple[str, str, bytes | None]:
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
