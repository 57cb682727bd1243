"""Reads the records of a log in the order of their positions, with the reader of routers and subscriptions."""

from __future__ import annotations

from dataclasses import dataclass

from eventd.log.core.blocks import Block
from eventd.log.core.eventlog import EventLog
from eventd.log.core.matching_page import MatchingPage
from eventd.log.core.values import Record


@dataclass(frozen=True)
class AnyRecord:
    """A filter that matches every record; with `own`, those that were emitted on this node."""

    own: bool = False

    def rules_out(self, block: Block) -> bool:
        return self.own and not block.own

    def may_be(self, line: str) -> bool:
        return True

    def take(self, record: Record) -> Record:
        return record


async def read_records(
    log: EventLog,
    topic: int,
    after: int = 0,
    *,
    limit: int = 1000,
    max_bytes: int = 1 << 20,
    until: int | None = None,
    own: bool = False,
) -> MatchingPage[Record]:
    """Return a page of the records after `after`."""
    return await log.matching(topic, after, AnyRecord(own), limit=limit, max_bytes=max_bytes, until=until)
