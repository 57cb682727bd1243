"""Real nodes in this process, for integration tests: complete, on port 0, with a listener that peers can reach.

Tests call them through the same operations as the API and the CLI.
"""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from eventd.api.framework.operations import Services
from eventd.log.core.values import Record
from eventd.log.cursors.cursors import Cursor, read_cursors
from eventd.node.node import Node
from eventd.runtime.chance import SYSTEM
from eventd.runtime.clock import Clock, SystemClock
from eventd.settings.loading import load
from eventd.store.engine.changes import POLL
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import fetch
from eventd.testing import ManualClock, until
from tests.support import operations
from tests.support.declared import declare, group, peer
from tests.support.fresh import make_current
from tests.support.ports import free_port
from tests.support.stored import read_stored


class Site:
    """One node that can be started, stopped and started again on the same database and the same port."""

    def __init__(self, name: str, directory: Path, *, url: str = "", clock: Clock | None = None) -> None:
        self.name = name
        self.port = free_port()
        self.directory = directory / name
        self.directory.mkdir(parents=True)
        self.secret = self.directory / "secret"
        self.secret.write_text("0123456789abcdef0123456789abcdef\n")
        self.url = url or f"sqlite:///{self.directory}/eventd.db"
        self.clock = clock or SystemClock()
        self.node: Node | None = None
        self.others: list[Site] = []
        """The nodes of the same test, this one included: what their links wait for is part of a failure."""
        self._make_database()

    def _make_database(self) -> None:
        make_current(self.url, now=self.clock.now())

    def back_up(self) -> Path:
        """Copy the SQLite database, whether the node runs or not; return the copy."""
        copy = self.directory / "copy.db"
        copy.unlink(missing_ok=True)
        with closing(sqlite3.connect(self.file)) as source, closing(sqlite3.connect(copy)) as target:
            source.backup(target)
        return copy

    def restore(self, copy: Path) -> None:
        """Replace the database by a copy, as by hand. The node must be stopped."""
        self._remove_database()
        shutil.copy(copy, self.file)

    def lose_database(self) -> None:
        """Remove the database. The node must be stopped."""
        self._remove_database()
        self._make_database()

    def _remove_database(self) -> None:
        assert self.node is None, f"{self.name} is running"
        for suffix in ("", "-wal", "-shm"):
            Path(f"{self.file}{suffix}").unlink(missing_ok=True)

    @property
    def file(self) -> Path:
        """Return the SQLite file."""
        return Path(self.url.removeprefix("sqlite:///"))

    @property
    def running(self) -> Node:
        assert self.node is not None, f"{self.name} is not running"
        return self.node

    async def start(self, **flags: Any) -> Site:
        settings = load({"database_url": self.url, "api_listen": "127.0.0.1:0", "drain_timeout": "2s"} | flags, {})
        self.node = Node(settings, clock=self.clock, chance=SYSTEM)
        await self.node.start()
        return self

    async def stop(self) -> None:
        node, self.node = self.node, None
        if node is not None:
            await node.stop()

    async def ask(self, operation: str, /, **params: Any) -> Any:
        """Run an operation, its parameters by their JSON names."""
        return await operations.run(Services(self.running.log), operation, **params)

    async def apply(self, *documents: dict[str, Any], prune: bool = False) -> None:
        """Apply resources, and wait until the node runs them."""
        text = declare(*documents)
        await self.ask("resources.apply", sources=[{"name": "test", "text": text}], prune=prune)
        await self.settled()

    async def settled(self) -> None:
        """Wait until the node runs what is applied."""

        async def current() -> bool:
            if isinstance(self.clock, ManualClock):
                self.clock.advance(POLL)  # the node reconciles at least once in that time
            rows = await self.rows("SELECT registry_version FROM log_heads")
            return bool(self.running.reconciler.version == rows[0][0])

        await until(current, f"{self.name} to take over what is declared")

    async def join(self, *others: Site, name: str = "edge", **spec: Any) -> None:
        """Apply a group with these peers."""
        await self.apply(
            group(self.name, port=self.port, secret=self.secret, name=name, **spec),
            *[peer(other.name, other.port, group=name) for other in others],
        )

    async def emit(self, *ids: str, group: str = "edge", **fields: Any) -> None:
        """Store events of this node; `fields` are common to all of them."""
        events = [{"id": each, "type": "t", **fields} for each in ids]
        await self.ask("events.emit", group=group, events=events)

    async def ids(self, group: str = "edge", *, source: str = "", expired: bool = False) -> list[str]:
        """Return the ids of all records in the order of the log, refreshes included."""
        return [record.event_id for record in await self.stored(group) if source in ("", record.node)]

    async def stored(self, group: str = "edge") -> list[Record]:
        """Return all records of a group in the order of the log."""
        topic = await self.running.log.topic(f"group:{group}")
        return await self.running.log.database.read(read_stored, topic)

    async def holds(self, *ids: str, group: str = "edge", seconds: float = 20.0) -> None:
        """Wait until the node holds all these events."""

        async def all_here() -> bool:
            return set(ids) <= set(await self.ids(group))

        try:
            await until(all_here, f"{self.name} to hold {len(ids)} events", seconds=seconds)
        except AssertionError as error:
            links = [line for site in self.others if site.node is not None for line in await site.describe_links()]
            raise AssertionError(f"{error}; it holds {await self.ids(group)}; links: {'; '.join(links)}") from None

    async def describe_links(self) -> list[str]:
        """Return one line for each cursor of the node, with its state and its last error."""
        return [
            f"{self.name} {one.name} {one.shown_state} {one.reason} upto {one.sent_upto} {one.last_error}"
            for one in await self.running.log.database.read(read_cursors)
        ]

    async def caught_up(self, *peers: str, group: str = "edge", seconds: float = 20.0) -> None:
        """Wait until these peers have acknowledged all that is selected for them."""

        async def no_lag() -> bool:
            links = [await self.link(peer, group) for peer in peers]
            return all(link["lagEvents"] == 0 and not link["repairs"] for link in links)

        await until(no_lag, f"{self.name} to have sent everything to {', '.join(peers)}", seconds=seconds)

    async def cursor(self, peer: str, group: str = "edge") -> Cursor:
        """Return the peer's cursor."""
        found: list[Cursor] = await self.running.log.database.read(read_cursors, name=f"peer:{group}/{peer}")
        return found[0]

    async def link(self, peer: str, group: str = "edge") -> dict[str, Any]:
        """Return the link to a peer as the API shows it."""
        shown: dict[str, Any] = (await self.ask("links.status", group=group, peer=peer))["outbound"][0]
        return shown

    async def in_state(self, peer: str, state: str, reason: str = "", *, group: str = "edge") -> Cursor:
        """Wait until the link is in this state, for this reason."""
        last: list[Cursor] = []

        async def so() -> Cursor | None:
            last[:] = [await self.cursor(peer, group)]
            cursor = last[0]
            return cursor if cursor.shown_state == state and reason in ("", cursor.reason) else None

        try:
            await until(so, f"the link {self.name} to {peer} to be {state} {reason}")
        except AssertionError as error:
            cursor = last[0]
            raise AssertionError(f"{error}; it is {cursor.shown_state} {cursor.reason}: {cursor.last_error}") from None
        return last[0]

    async def deliveries(self, group: str = "edge", **params: Any) -> dict[tuple[str, str], str]:
        """Return the state of each event at each peer."""
        found = await self.ask("deliveries.list", group=group, limit=1000, **params)
        return {(row["eventId"], row["peer"]): row["status"] for row in found["deliveries"]}

    async def rows(self, sql: str, *params: Any) -> list[Any]:
        """Return rows of the running node's database."""
        return await self.running.log.database.read(_fetch, sql, params)


def _fetch(conn: Connection, sql: str, params: tuple[Any, ...]) -> list[Any]:
    return fetch(conn, sql, params)
