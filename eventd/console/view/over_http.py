"""A view of a node over its HTTP API, as any client uses it: the node checks the key of each request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final

import msgspec

from eventd.api.framework.operations import Download
from eventd.api.framework.outgoing import make_request
from eventd.api.framework.repeats import HEADER as IDEMPOTENCY_KEY
from eventd.api.keys.api_key import ApiKey
from eventd.api.routes import OPERATIONS
from eventd.client.connection import only_text
from eventd.console.view.node_view import target_of
from eventd.console.view.permissions import may_run, may_use
from eventd.console.view.sent_answers import SentAnswers

_ENDINGS: Final = {"events.payload": ".json", "audits.report": ".html"}
"""The extensions of file names, by the operation that returns the file."""
Send = Callable[[str, str, bytes | None, Mapping[str, str], bool], Awaitable[bytes]]
"""Sends a request by method, path, body and headers, and returns the body of its answer.

The last argument says whether the body is a file, which may take long. Raises the errors of the API."""
Decode = Callable[[bytes, Any], Any]
"""Decodes a body as a type. Raises `EventdError` if it has another form."""


class OverHttpView:
    """A node to which `send` sends requests. `key`: what the node says of the key; it has no secret.

    `headers` go with each request that changes something. `sent`: the answers to those with an idempotency key.
    """

    def __init__(
        self, name: str, send: Send, decode: Decode, key: ApiKey, headers: Mapping[str, str], sent: SentAnswers
    ) -> None:
        self._name = name
        self._send = send
        self._decode = decode
        self._key = key
        self._headers = headers
        self._sent = sent

    @property
    def name(self) -> str:
        return self._name

    def may(self, operation: str, group: str = "") -> bool:
        return may_run(self._key, operation, group)

    def may_ask(self, method: str, *path: str) -> bool:
        return may_use(self._key, method, path)

    def sees(self, name: str) -> bool:
        return self._key.sees(name)

    async def call(self, operation: str, /, **params: Any) -> Any:
        return await self.act(operation, "", **params)

    async def act(self, operation: str, key: str, /, **params: Any) -> Any:
        route = OPERATIONS[operation]
        with only_text():
            method, target, body = make_request(route, params)
        is_file = route.media != "application/json"
        send = partial(self._send, method, target, body, self._headers_of(method, key), is_file)
        content = await (self._sent.send(key, send, is_secret=route.secret) if key else send())
        if is_file:
            named = next((str(params[name]) for name in ("id", "name") if name in params), operation)
            return Download(named + _ENDINGS.get(operation, ""), content)
        return self._decode(content, dict[str, Any])

    async def find_answer(self, operation: str, key: str, /, **params: Any) -> Any:
        content = await self._sent.find(key)
        return None if content is None else self._decode(content, dict[str, Any])

    async def ask(
        self, method: str, *path: str, body: Any = None, model: Any = Any, once: str = "", **query: Any
    ) -> Any:
        with only_text():
            target = target_of(path, query)
            content = None if body is None else msgspec.json.encode(body)
        send = partial(self._send, method, target, content, self._headers_of(method, once), False)
        answer = await (self._sent.send(once, send) if once else send())
        return self._decode(answer, model)

    async def find_asked(self, once: str, method: str, *path: str, body: Any = None, **query: Any) -> Any:
        answer = await self._sent.find(once)
        return None if answer is None else self._decode(answer, Any)

    def _headers_of(self, method: str, key: str) -> Mapping[str, str]:
        if method == "GET":
            return {}
        return {**self._headers, **({IDEMPOTENCY_KEY: key} if key else {})}
