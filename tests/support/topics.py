"""Topics of records over an open log, with short methods to create, write and read them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from eventd.log.core.eventlog import EventLog
from eventd.log.core.records import View, content_size, write_body
from eventd.log.core.topic_config import TopicConfig
from eventd.log.core.topic_row import find_topic
from eventd.log.core.values import Drafts
from eventd.log.topics.delete import Deletion, delete_records
from eventd.log.topics.limits import TopicSize, read_size
from eventd.log.topics.predicate import parse
from eventd.log.topics.topic_page import TopicPage, TopicQuery, read_topic_page
from eventd.log.topics.topics import PatchTopic, PutTopic
from eventd.log.topics.write import Write
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import fetch

RecordFields = dict[str, Any]
"""A record: data, and maybe tag, node and meta."""


def drafts_of(told: Sequence[RecordFields], path: str = "") -> Drafts:
    """Return drafts of records, as the log takes them."""
    bodies = [_body(one) for one in told]
    tags = frozenset(one.get("tag") or "" for one in told)
    nodes = frozenset(one.get("node") or "" for one in told)
    return Drafts((), [path] * len(told), bodies, tags, nodes, None, [*map(content_size, bodies)])


def _body(told: RecordFields) -> str:
    data = json.dumps(told.get("data"), separators=(",", ":"), ensure_ascii=False)
    meta = json.dumps(told["meta"], separators=(",", ":")) if "meta" in told else None
    return write_body(told.get("node"), told.get("tag"), data, meta)


class Topics:
    """The topics of one log."""

    def __init__(self, log: EventLog) -> None:
        self.log = log

    async def make(self, name: str, **config: Any) -> int:
        """Create a topic, or replace its settings; return its id."""
        put = await self.log.submit(PutTopic(name, TopicConfig(**config), max_topics=0, random=name.encode() * 8))
        return put.line.id

    async def change(self, name: str, **config: Any) -> None:
        """Change some settings of a topic."""
        await self.log.submit(PatchTopic(name, config))

    async def put(self, name: str, *told: Any, **common: Any) -> list[int]:
        """Write records as one batch, given by their data; `common` are the other parts of all of them."""
        return await self.add(name, [{"data": data, **common} for data in told])

    async def add(self, name: str, told: Sequence[RecordFields]) -> list[int]:
        """Write records, as one batch, to a topic that exists; return their seqs."""
        unit = Write(name, drafts_of(told), flushes=self.log.flushes, create=False)
        written = await self.log.submit(unit)
        return [*range(written.first_seq, written.last_seq + 1)]

    async def delete(self, name: str, *, before: int | None = None, match: object = None) -> Deletion:
        """Delete records."""
        predicate = None if match is None else parse(match)
        return await delete_records(self.log.submit, name, before_seq=before, predicate=predicate)

    async def slice(self, name: str | int, from_seq: int = 0, **ask: Any) -> TopicPage:
        """Return one page."""
        asked = replace(TopicQuery(name, self.log.clock.now(), from_seq), **ask)
        return await self.log.database.read(read_topic_page, asked)

    async def page(self, name: str | int, from_seq: int = 0, **ask: Any) -> list[RecordFields]:
        """Return the records of one page."""
        return records_of(await self.slice(name, from_seq, **ask))

    async def standing(self, name: str) -> TopicSize:
        """Return the size of a topic."""
        return await self.log.database.read(_standing, name, self.log.clock.now())

    async def losses(self, name: str) -> list[tuple[int, int, str]]:
        """Return all losses that a topic records."""
        return await self.log.database.read(
            fetch,
            "SELECT first_seq, last_seq, reason FROM topic_losses WHERE topic_id ="
            " (SELECT id FROM topics WHERE name = ?) ORDER BY first_seq",
            (name,),
        )

    async def blocks(self, name: str) -> list[tuple[int, int]]:
        """Return the blocks of a topic: the seq of the first record of each, and the number of records."""
        return await self.log.database.read(
            fetch,
            "SELECT seq, records FROM blocks WHERE topic_id = (SELECT id FROM topics WHERE name = ?) ORDER BY seq",
            (name,),
        )


def _standing(conn: Connection, name: str, now: int) -> TopicSize:
    line = find_topic(conn, name)
    assert line is not None, name
    return read_size(conn, line, now)


def records_of(found: TopicPage) -> list[RecordFields]:
    """Return the records of a page, decoded."""
    records = [json.loads(text) for text in found.records]
    assert [record["$seq"] for record in records] == list(found.seqs)
    return records


ALL = View(tags=True)
