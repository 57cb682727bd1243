"""Asks for actions over HTTP, and reads their record."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from eventd.store.rows.actions import ActionFilter, ActionRow, read_actions
from tests.support.v0 import Server, serving

OPERATOR = "operator-key"
READER = "reader-key"
KEYS = f"{OPERATOR}:read+write+delete+admin,{READER}:read"


class Acted(NamedTuple):
    """An answer: its status, its body, and its headers."""

    status: int
    body: Any
    headers: Any


class Operator:
    """Asks one server for actions, by default with the key of the operator."""

    def __init__(self, server: Server) -> None:
        self.server = server

    async def ask(
        self, method: str, path: str, body: Any = None, *, key: str = OPERATOR, headers: dict[str, str] | None = None
    ) -> Acted:
        """Send a request, with the body as JSON."""
        sent = {"Authorization": f"Bearer {key}"} if key else {}
        if body is not None:
            sent["Content-Type"] = "application/json"
        data = None if body is None else json.dumps(body).encode()
        url = f"{self.server.url}{path}"
        async with self.server.session.request(method, url, data=data, headers=sent | (headers or {})) as answer:
            is_json = answer.content_type == "application/json"
            return Acted(answer.status, await (answer.json() if is_json else answer.text()), answer.headers)

    async def rows(self) -> list[ActionRow]:
        """Return the record of actions, the newest first."""
        page = await self.server.log.database.read(read_actions, ActionFilter(), None, 200)
        return list(page.rows)


@asynccontextmanager
async def operating(url: str, keys: str = KEYS) -> AsyncIterator[Operator]:
    """Yield an operator of a server over a database."""
    async with serving(url, keys=keys) as server:
        yield Operator(server)
