"""Topics: create and configure them, write and read records."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from typing import Any

from msgspec import UNSET, Struct, UnsetType

from eventd.client.connection import Connection, Query, path_of
from eventd.client.json_values import MOST_LEVELS, name_type, require_json
from eventd.client.values import (
    Config,
    Gap,
    NewRecord,
    Page,
    Purged,
    Record,
    TopicDeletion,
    TopicPut,
    TopicRow,
    TopicState,
    Written,
)
from eventd.errors import Invalid

WAIT_MS = 30_000
"""Milliseconds that a read with `follow` waits for new records in one request."""


class _TopicList(Struct, kw_only=True):
    topics: list[TopicRow]
    next_cursor: str | None = None


class _Write(Struct, kw_only=True, omit_defaults=True):
    records: Sequence[NewRecord | dict[str, Any]]
    idempotency_key: str = ""
    node: str | None = None
    create: bool | None = None
    config: Config | None = None


class _Diff(Struct, kw_only=True, omit_defaults=True):
    from_seq: int = 0
    limit: int = 0
    node: Sequence[str] = ()
    include_tags: bool = False
    include_meta: bool = True
    wait_ms: int = 0
    max_batch_bytes: int = 0
    epoch: str | None = None


class _Purge(Struct, kw_only=True):
    before_seq: int | UnsetType = UNSET
    match: Any = UNSET


class Topics:
    """The topics of a node. Methods that neither create nor delete a topic raise `NotFound` for a missing one."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def put(self, topic: str, config: Config | None = None) -> TopicPut:
        """Create the topic, or replace its whole configuration; without `config` by the defaults."""
        return await self._connection.ask("PUT", path_of("topics", topic), TopicPut, config or Config())

    async def patch(self, topic: str, **changes: Any) -> TopicPut:
        """Change these fields of a topic's configuration and keep the others; None restores the default.

        While `durable` is true, None for `durability` keeps `fsync`.
        """
        return await self._connection.ask("PATCH", path_of("topics", topic), TopicPut, changes)

    async def get(self, topic: str, *, touch: bool = True) -> TopicState:
        """Return the topic's state. Without `touch` the request does not count as a read of the topic."""
        return await self._connection.ask("GET", path_of("topics", topic), TopicState, query={"touch": touch})

    async def list(self, prefix: str = "", *, page_size: int = 1000) -> AsyncIterator[TopicRow]:
        """Yield the topics whose names begin with `prefix` (empty: all), in the order of names."""
        cursor: str | None = ""
        while cursor is not None:
            query: Query = {"prefix": prefix, "page_size": page_size, "cursor": cursor}
            found = await self._connection.ask("GET", "/v0/topics", _TopicList, query=query)
            for row in found.topics:
                yield row
            cursor = found.next_cursor

    async def delete(self, topic: str, *, if_empty: bool = False) -> TopicDeletion:
        """Delete the topic, its records, and all routers from and to it.

        With `if_empty` nothing is deleted if it has records: `Conflict` is raised.
        """
        path = path_of("topics", topic)
        return await self._connection.ask("DELETE", path, TopicDeletion, query={"if_empty": if_empty})

    async def write(
        self,
        topic: str,
        records: Iterable[NewRecord | dict[str, Any]],
        *,
        node: str | None = None,
        create: bool | None = None,
        config: Config | None = None,
        idempotency_key: str = "",
    ) -> Written:
        """Write a batch of records, all or none. `node` is the writer's name for records that name none.

        A dict with the members of a `NewRecord`, of which `data` must be there, is also taken.

        The batch has an idempotency key, generated unless given: while the topic remembers the key, the batch is
        written once, however often it is sent. `create`: whether a missing topic is created (None: as `auto_create` of
        `config` says), and `config`: how. Raises `Invalid`, before anything is sent, for an object that is not a
        `NewRecord` or a dict of its members, and for data or meta that JSON cannot express.
        """
        batch = _require_records(records)
        body = _Write(
            records=batch,
            idempotency_key=idempotency_key or self._connection.chance.token(16).hex(),
            node=node,
            create=create,
            config=config,
        )
        return await self._connection.ask("POST", path_of("topics", topic), Written, body)

    async def diff(
        self,
        topic: str,
        from_seq: int = 0,
        *,
        limit: int = 0,
        node: Sequence[str] = (),
        tags: bool = False,
        meta: bool = True,
        wait_ms: int = 0,
        max_batch_bytes: int = 0,
        epoch: str | None = None,
    ) -> Page:
        """Read one page of records with seqs above `from_seq`, without those written by one of `node`.

        A topic without `dedupe_node` ignores `node`. A `limit` or `max_batch_bytes` of 0 means the node's default. The
        node waits up to `wait_ms`, 30 s at most, for a first record. `epoch` is that of the previous page: after a
        change, as when the topic was created again, the page is the first and has a gap with the reason `recreated`.
        """
        body = _Diff(
            from_seq=from_seq,
            limit=limit,
            node=node,
            include_tags=tags,
            include_meta=meta,
            wait_ms=wait_ms,
            max_batch_bytes=max_batch_bytes,
            epoch=epoch,
        )
        path = path_of("topics", topic, "diff")
        return await self._connection.ask("POST", path, Page, body, wait=wait_ms / 1000)

    async def read(
        self,
        topic: str,
        from_seq: int = 0,
        *,
        node: Sequence[str] = (),
        tags: bool = True,
        meta: bool = True,
        follow: bool = False,
        page: int = 0,
        epoch: str | None = None,
    ) -> AsyncIterator[Record | Gap]:
        """Yield the records with seqs above `from_seq`, by page: first a `Gap` if some were lost (not: deleted) there.

        Each request, for up to `page` records, is retried. With `follow`, new records are awaited at the end. To resume
        later, keep the `seq` of the last record that was processed.
        """
        async for found in self.pages(
            topic, from_seq, limit=page, node=node, tags=tags, meta=meta, follow=follow, epoch=epoch
        ):
            if found.gap is not None:
                yield found.gap
            for record in found.records:
                yield record

    async def pages(
        self,
        topic: str,
        from_seq: int = 0,
        *,
        limit: int = 0,
        node: Sequence[str] = (),
        tags: bool = True,
        meta: bool = True,
        follow: bool = False,
        epoch: str | None = None,
    ) -> AsyncGenerator[Page, None]:
        """Yield pages of up to `limit` records (0: the node's default), with the other options as in `read`."""
        wait_ms = WAIT_MS if follow else 0
        while True:
            found = await self.diff(
                topic, from_seq, limit=limit, node=node, tags=tags, meta=meta, wait_ms=wait_ms, epoch=epoch
            )
            yield found
            from_seq, epoch = found.next_from_seq, found.epoch
            if found.caught_up and not follow:
                return

    async def purge(self, topic: str, *, before_seq: int | None = None, match: Any = None) -> Purged:
        """Delete the records below `before_seq`, or whose tag matches `match`; with both, those that meet both.

        `match` is a tag, a pattern or a predicate: `jobs:1`, `jobs:*`, `["tag", "Eq", "jobs:*"]`.
        """
        body = _Purge()
        if before_seq is not None:
            body.before_seq = before_seq
        if match is not None:
            body.match = match
        return await self._connection.ask("POST", path_of("topics", topic, "delete"), Purged, body)


def _require_records(records: Iterable[NewRecord | dict[str, Any]]) -> Sequence[NewRecord | dict[str, Any]]:
    """Return the records as a list. Raises `Invalid` for other objects, or data or meta that JSON cannot express."""
    hint = "topics.write(TOPIC, [NewRecord(DATA)])"
    if isinstance(records, Mapping | str | bytes | NewRecord):
        raise Invalid(f"records is {name_type(records)}, not a list of NewRecord", hint=hint)
    batch = list(records)
    for number, record in enumerate(batch):
        if isinstance(record, NewRecord):
            require_json(record.data, f"records[{number}].data")
            require_json(record.meta, f"records[{number}].meta")
        elif not isinstance(record, dict):
            raise Invalid(f"records[{number}] is {name_type(record)}, not a NewRecord", hint=hint)
        elif "data" not in record:
            raise Invalid(f"records[{number}] is a dict without the member data, not a NewRecord", hint=hint)
        else:
            require_json(record, f"records[{number}]", MOST_LEVELS + 1)
    return batch
