"""A view of the node in this process: calls the API without HTTP, with the same checks as for HTTP requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec

from eventd.api.direct import (
    DirectCaller,
    FoundRoute,
    find_answer,
    find_topic_answer,
    find_topic_route,
    run_operation,
    run_topic_route,
)
from eventd.api.framework.operations import Services
from eventd.api.framework.recorder import ActionRecorder
from eventd.api.topics.calls import V0
from eventd.console.view.node_view import target_of
from eventd.console.view.permissions import may_run, may_use
from eventd.errors import NotFound, Unavailable

PATIENCE_SECONDS: Final = 30.0
"""Maximum duration of one operation: those that ask a peer or run a plugin take longest."""


class InProcessView:
    """The node of this process, with the permissions of a caller, whose actions `recorder` records."""

    def __init__(self, services: Services, v0: V0, recorder: ActionRecorder, by: DirectCaller, name: str) -> None:
        self._services = services
        self._v0 = v0
        self._recorder = recorder
        self._by = by
        self._name = name

    @property
    def name(self) -> str:
        return self._name

    def may(self, operation: str, group: str = "") -> bool:
        return may_run(self._by.key, operation, group)

    def may_ask(self, method: str, *path: str) -> bool:
        return may_use(self._by.key, method, path)

    def sees(self, name: str) -> bool:
        return self._by.key.sees(name)

    async def call(self, operation: str, /, **params: Any) -> Any:
        async with _within_patience(operation):
            return await run_operation(self._services, self._recorder, self._by, operation, params)

    async def act(self, operation: str, key: str, /, **params: Any) -> Any:
        async with _within_patience(operation):
            by = self._by._replace(once=key)
            return await run_operation(self._services, self._recorder, by, operation, params)

    async def find_answer(self, operation: str, key: str, /, **params: Any) -> Any:
        if not key:
            return None
        async with _within_patience(operation):
            return await find_answer(self._recorder, self._by._replace(once=key), operation, params)

    async def ask(
        self, method: str, *path: str, body: Any = None, model: Any = Any, once: str = "", **query: Any
    ) -> Any:
        found, text, content = _request(method, path, body, query)
        async with _within_patience(f"{method} {found.route.path}"):
            by = self._by._replace(once=once)
            answer = await run_topic_route(self._v0, self._recorder, by, found, text, content)
        return msgspec.json.decode(msgspec.json.encode(answer), type=model)

    async def find_asked(self, once: str, method: str, *path: str, body: Any = None, **query: Any) -> Any:
        if not once:
            return None
        found, text, content = _request(method, path, body, query)
        async with _within_patience(f"{method} {found.route.path}"):
            return await find_topic_answer(self._v0, self._recorder, self._by._replace(once=once), found, text, content)


def _request(method: str, path: Sequence[str], body: Any, query: Mapping[str, Any]) -> tuple[FoundRoute, str, bytes]:
    """Return the route of a request, its query and its body. Raises `NotFound`."""
    target, _, text = target_of(path, query).partition("?")
    found = find_topic_route(method, target)
    if found is None:
        raise NotFound(f"{method} {target} cannot be asked without a connection")
    return found, text, b"" if body is None else msgspec.json.encode(body)


@asynccontextmanager
async def _within_patience(what: str) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            yield
    except TimeoutError:
        raise Unavailable(f"{what} took longer than {PATIENCE_SECONDS:.0f} s", hint="try again") from None
