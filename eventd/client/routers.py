"""Routers, which copy records from one topic to another."""

from __future__ import annotations

from collections.abc import AsyncIterator

from msgspec import Struct

from eventd.client.connection import Connection, Query, path_of
from eventd.client.values import RouterDeletion, RouterSpec, RouterState


class _RouterList(Struct, kw_only=True):
    routers: list[RouterState]
    next_cursor: str | None = None


class Routers:
    """The routers of a node."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def put(self, router: str, spec: RouterSpec) -> RouterState:
        """Create the router, or replace its options; source and destination cannot change."""
        return await self._connection.ask("PUT", path_of("routers", router), RouterState, spec)

    async def get(self, router: str) -> RouterState:
        """Return the router's options, counters and state. Raises `NotFound` if it does not exist."""
        return await self._connection.ask("GET", path_of("routers", router), RouterState)

    async def list(
        self, prefix: str = "", *, source: str = "", dest: str = "", page_size: int = 1000
    ) -> AsyncIterator[RouterState]:
        """Yield the routers whose names begin with `prefix` (empty: all), in the order of names.

        `source` and `dest` limit them to those from and to one topic. Listed routers have fewer fields than from `get`.
        """
        cursor: str | None = ""
        while cursor is not None:
            query: Query = {"prefix": prefix, "source": source, "dest": dest, "page_size": page_size, "cursor": cursor}
            found = await self._connection.ask("GET", "/v0/routers", _RouterList, query=query)
            for row in found.routers:
                yield row
            cursor = found.next_cursor

    async def delete(self, router: str) -> RouterDeletion:
        """Delete the router; the records that it copied stay."""
        return await self._connection.ask("DELETE", path_of("routers", router), RouterDeletion)
