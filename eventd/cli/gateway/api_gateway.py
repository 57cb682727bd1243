"""Runs operations through the API of a running node, without loading the code that answers."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from eventd.api.framework.outgoing import make_request, outer_name
from eventd.api.routes import OPERATIONS
from eventd.errors import EventdError, Invalid, Unavailable

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
        """Return the id of the node's process, or for a named server, its address."""

    @abstractmethod
    async def close(self) -> None:
        """Close the connection."""


def _undecoded(params: Mapping[str, Any]) -> str:
    """Return the API's name of the first parameter that cannot be encoded as UTF-8; `the request` without one."""
    for name, value in params.items():
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            return outer_name(name)
    return "the request"
