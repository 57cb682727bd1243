"""Which records a callback gets, as a reader of pages of its topic."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import msgspec

from eventd.egress.callbacks.formats import EXPIRED, CallbackItem, item_of_event, item_of_record
from eventd.log.core.blocks import Block, names, unpack
from eventd.log.core.records import read_body, tag_of
from eventd.log.core.topic_row import TopicRow
from eventd.log.core.values import Record
from eventd.log.topics.source_page import stored_records
from eventd.store.rows.routemaster import Interval
from federation.event import DECODER, is_alive
from federation.selector import Selector

NOTICES = "routerd.callback."
"""Prefix of the tags of notices about callbacks. A callback does not get notices about itself."""


@dataclass(frozen=True)
class CallbackSelection:
    """Which records of its topic a callback gets. Every given condition must hold.

    For a group, `selector` tests the events; for a topic of records, it tests tag and node. `intervals`: only records
    of the Routemaster surface in one of these; None: no such condition. `positions`: only these, for a resend; None:
    all.
    """

    selector: Selector
    intervals: tuple[Interval, ...] | None = None
    positions: frozenset[int] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the stored form."""
        found: dict[str, Any] = {"selector": json.loads(self.selector.to_json())}
        if self.intervals is not None:
            found["intervals"] = [list(interval) for interval in self.intervals]
        if self.positions is not None:
            found["positions"] = sorted(self.positions)
        return found

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        """Return the selection of a stored form."""
        intervals, positions = stored.get("intervals"), stored.get("positions")
        return cls(
            msgspec.convert(stored["selector"], Selector),
            None if intervals is None else tuple(Interval(*one) for one in intervals),
            None if positions is None else frozenset(positions),
        )

    def rules_out(self, block: Block) -> bool:
        """Return whether a block certainly has no record for the callback."""
        if self.positions is not None and self.positions.isdisjoint(range(block.position, block.last + 1)):
            return True
        types, sources = names(block.types), names(block.sources)
        if types and not self.selector.may_match(types):  # records without a tag are not listed
            return True
        if sources is not None and self.selector.sources and sources.isdisjoint(self.selector.sources):
            return True
        if self.intervals is None:
            return False
        near = [one for one in self.intervals if one.after < block.last and (one.upto or block.last) >= block.position]
        topics = None if types is None else {type.rpartition(".")[0] for type in types}
        return not near or (topics is not None and not any(one.topic in topics for one in near))

    @property
    def families(self) -> frozenset[str] | None:
        """Return the topics of the Routemaster surface whose new records it may have; None: any record."""
        if self.intervals is None:
            return None
        return frozenset(one.topic for one in self.intervals if one.upto is None)

    def takes_event(self, record: Record) -> bool:
        """Return whether the callback gets an event, apart from its expiry."""
        if self.positions is not None and record.position not in self.positions:
            return False
        payload = DECODER.decode(record.body).payload if self.selector.payload else None
        return self.selector.matches(type=record.tag, subject=record.subject, source=record.node, payload=payload)

    def takes_record(self, position: int, body: str) -> bool:
        """Return whether the callback gets a record of a topic of records."""
        if self.positions is not None and position not in self.positions:
            return False
        if self.intervals is not None and not self._is_inside(position, tag_of(body) or ""):
            return False
        if self.selector.matches_all:
            return True
        parts = read_body(body)
        return self.selector.matches(type=parts.tag or "", subject="", source=parts.node or "")

    @cached_property
    def _by_topic(self) -> dict[str, list[Interval]]:
        found: dict[str, list[Interval]] = {}
        for one in self.intervals or ():
            found.setdefault(one.topic, []).append(one)
        return found

    def _is_inside(self, position: int, tag: str) -> bool:
        """Return whether an interval contains a record."""
        near = self._by_topic.get(tag.rpartition(".")[0], ())
        return any(one.after < position and (one.upto is None or position <= one.upto) for one in near)


@dataclass(frozen=True, slots=True)
class CallbackReader:
    """Reads the records of a callback as its items. Events that have expired at `now` (microseconds) are omitted.

    `name` is the callback's; `format` that of its items.
    """

    selection: CallbackSelection
    format: str
    name: str
    now: int

    def rules_out(self, block: Block) -> bool:
        return self.selection.rules_out(block)

    def read(self, topic: TopicRow, block: Block) -> Sequence[CallbackItem]:
        """Return the items of a block."""
        if topic.of_group:
            return [
                item_of_event(record, self.format, omitted="" if is_alive(record.expires_at, self.now) else EXPIRED)
                for record in unpack(block)
                if self.selection.takes_event(record)
            ]
        return [
            item_of_record(record, block.recorded_at, topic, self.format)
            for record in stored_records(block)
            if self.selection.takes_record(record.position, record.body) and not self._is_about_itself(record.body)
        ]

    def _is_about_itself(self, body: str) -> bool:
        if NOTICES not in body or not (tag_of(body) or "").startswith(NOTICES):
            return False
        try:
            data = json.loads(read_body(body).data)
        except RecursionError:  # no notice is nested like this
            return False
        return isinstance(data, dict) and data.get("callback") == self.name
