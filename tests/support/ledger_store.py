"""A node's delivery ledger for tests, read with the extracts that the shipper reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from eventd.egress.callbacks.selection import CallbackSelection
from eventd.lake.extract import EvictedRows, Extract, Ledger, Memory, read_ledger
from eventd.log.core.eventlog import EventLog
from eventd.log.core.head import lock_head
from eventd.log.core.values import Draft
from eventd.log.cursors.cursors import create_cursor, read_cursor
from eventd.log.cursors.selections import declare_selection
from eventd.log.cursors.steps import DeliveredBatch, Step
from eventd.store.engine.database import Connection
from eventd.store.rows.registry import put_resource
from eventd.testing import NOW
from federation.selector import Selector
from tests.support.stored_batches import stored_batch

Row = dict[str, Any]


class LedgerStore:
    """Group `g` of node `a`, and further groups that a test declares."""

    def __init__(self, log: EventLog) -> None:
        self.log = log

    async def declare(self, *peers: str, group: str = "g", node: str = "a", **selections: dict[str, Any]) -> None:
        """Apply a group with peers that receive all events, or what their selection matches."""
        topic = await self.log.topic(f"group:{group}")
        wanted = {**{peer: {} for peer in peers}, **selections}
        await self.log.database.write(_declare, group, node, topic, wanted)

    async def call_back(self, name: str, *, group: str = "g", position: int = 0, **selector: Any) -> str:
        """Create the cursor of a callback of the group at a position; return its name."""
        cursor = f"callback:{name}"
        topic = await self.log.topic(f"group:{group}")
        await self.log.database.write(_call_back, cursor, topic, position, Selector.of(**selector))
        return cursor

    async def select(self, peer: str, selection: dict[str, Any], *, group: str = "g") -> int:
        """Change the selection of the peer; return its version."""
        name = f"peer:{group}/{peer}"
        version = (await self.log.database.read(read_cursor, name)).selector_version + 1
        await self.log.database.write(declare_selection, name, version, selection, NOW)
        return version

    async def publish(self, *drafts: Draft, group: str = "g") -> Sequence[int]:
        """Append events; return their positions."""
        return (await self.log.append(await self.log.topic(f"group:{group}"), drafts)).positions

    async def settle(
        self, peer: str, after: int, upto: int, events: int | None = None, *, group: str = "g", **fields: Any
    ) -> None:
        """Store a batch of the peer, and move its cursor to the end of the batch."""
        name = f"peer:{group}/{peer}"
        cursor = await self.log.database.read(read_cursor, name)
        fields = {"selector_version": cursor.selector_version, **fields}
        await self.keep(stored_batch(name, after, upto, events, **fields), cursor.position)

    async def keep(self, batch: DeliveredBatch, position: int) -> None:
        """Store any batch, in a step of its cursor from a position to the end of the batch."""
        await self.log.settle(Step(batch.cursor, position, batch.upto, batch.upto, NOW, [batch]))

    async def extract(self, book: Ledger, after: int = 0, *, rows: int = 1000, **options: Any) -> Extract:
        """Return one extract."""
        return await self.log.database.read(read_ledger, book, after, rows=rows, **options)

    async def rows(self, book: Ledger, *names: str, rows: int = 1000, **options: Any) -> list[Any]:
        """Return all rows of a ledger table, extract by extract: as dicts, or only some columns; of one column, bare
        values."""
        found: list[Any] = []
        after, full, memory = 0, True, Memory()
        while full:
            extract = await self.extract(book, after, rows=rows, memory=memory, **options)
            assert extract.after == after
            found += as_rows(extract, *names)
            after, full = extract.upto, extract.full
        return found

    async def lost(self, book: Ledger, after: int = 0) -> list[EvictedRows]:
        """Return the ranges that an extract of the whole table reports as lost."""
        return list((await self.extract(book, after)).lost)

    async def under_lock(self, fn: Any, *args: Any, **kwargs: Any) -> Any:
        """Run a function in a transaction that holds the lock of the head."""

        def locked(conn: Connection) -> Any:
            lock_head(conn)
            return fn(conn, *args, **kwargs)

        return await self.log.database.write(locked)


def as_rows(extract: Extract, *names: str) -> list[Any]:
    """Return the rows of an extract; see `LedgerStore.rows`."""
    assert len({len(values) for values in extract.columns.values()}) == 1, "columns of different lengths"
    if len(names) == 1:
        return list(extract.columns[names[0]])
    if names:
        return list(zip(*(extract.columns[name] for name in names), strict=True))
    return [dict(zip(extract.columns, row, strict=True)) for row in zip(*extract.columns.values(), strict=True)]


def _declare(conn: Connection, group: str, node: str, topic: int, wanted: dict[str, dict[str, Any]]) -> None:
    spec = {"nodeName": node}
    put_resource(conn, api_version="v", kind="EventGroup", name=group, annotations={}, spec=spec, now=NOW)
    for peer, selection in wanted.items():
        name = f"peer:{group}/{peer}"
        if create_cursor(conn, name, kind="peer", topic_id=topic, position=0, now=NOW):
            declare_selection(conn, name, 1, selection, NOW)


def _call_back(conn: Connection, cursor: str, topic: int, position: int, selector: Selector) -> None:
    create_cursor(conn, cursor, kind="callback", topic_id=topic, position=position, now=NOW)
    declare_selection(conn, cursor, 1, CallbackSelection(selector).to_json(), NOW)
