"""Topics: all of the node by name, one with its configuration and its records page by page, and one record."""

from __future__ import annotations

import math
from typing import Any, Final

from msgspec import UNSET, Raw, Struct, UnsetType, field

from eventd.console.drawing.sparkline import by_minute, draw_sparkline
from eventd.console.pages.link_charts import Chart
from eventd.console.pages.topic_facts import describe_configuration, find_callbacks
from eventd.console.pages.visit import FilePage, ShownPage, Visit
from eventd.console.view.node_view import V0Request
from eventd.errors import EventdError, NotFound

LIST: Final = V0Request("GET", ("topics",))
SHOW: Final = V0Request("GET", ("topics", "{topic}"))
READ: Final = V0Request("POST", ("topics", "{topic}", "diff"))
LARGEST_SHOWN: Final = 64_000
"""Bytes of the largest data that a page shows: larger data is downloaded."""
_EXCERPT: Final = 120
"""Characters of the data of a record in a list."""
_LAST_FEW: Final = 7
_LARGEST_PAGE: Final = 8 << 20
"""Maximum bytes of a page of records, high enough that the number of records of a list always fits."""
_MOST_RATES: Final = 200
_GROUP: Final = "group:"


class TopicRecord(Struct):
    """A record as its topic stores it: `data` and `meta` are the stored text."""

    seq: int = field(name="$seq")
    ts: int = field(name="$ts")
    data: Raw
    node: str = field(name="$node", default="")
    tag: str = field(name="$tag", default="")
    meta: Raw | UnsetType = UNSET

    @property
    def text(self) -> str:
        """Return the data as it is stored."""
        return bytes(self.data).decode()

    @property
    def size(self) -> int:
        return len(bytes(self.data))

    @property
    def excerpt(self) -> str:
        """Return the beginning of the data, for a list."""
        text = bytes(self.data)[: 4 * _EXCERPT].decode(errors="ignore")
        return text if len(text) <= _EXCERPT else f"{text[: _EXCERPT - 1]}…"

    @property
    def meta_text(self) -> str:
        """Return the meta as it is stored; empty without any."""
        return "" if self.meta is UNSET else bytes(self.meta).decode()


class RecordRange(Struct):
    """A range of records that a reader missed, by its first and last seq, and the reason."""

    gap_from: int
    gap_to: int
    reason: str
    missed_estimate: int


class RecordPage(Struct):
    """A page of a topic's records."""

    records: list[TopicRecord]
    next_from_seq: int
    head_seq: int
    earliest_seq: int
    caught_up: bool
    tombstone: RecordRange | None = None


async def show_topics(visit: Visit) -> ShownPage:
    """Show a page of the topics by name, or of those whose names begin with `prefix` of the query."""
    found = await visit.view.ask(
        "GET", "topics", prefix=visit.asked("prefix"), cursor=visit.asked("after"), page_size=visit.limit
    )
    data = {
        "topics": found["topics"],
        "next": found.get("next_cursor"),
        "rates": await _read_rates(visit),
        "prefix": visit.asked("prefix"),
    }
    return ShownPage("Topics", "topics.html", data, live=not visit.asked("after"))


async def _read_rates(visit: Visit) -> dict[str, float | None]:
    """Return the newest rates of the busiest topics; nothing for keys that are limited to prefixes."""
    if not visit.view.may("rates.show"):
        return {}
    try:
        shown = await visit.view.call("rates.show", kind="topic", seconds=60, limit=_MOST_RATES)
    except EventdError:
        return {}
    return {one["topic"]: one["recordsPerSecond"][-1] for one in shown["series"] if one["recordsPerSecond"]}


async def show_topic(visit: Visit) -> ShownPage:
    """Show one topic, and its records after the seq `from` of the query: without it, the newest. Raises NotFound."""
    name = visit.names["topic"]
    topic = await visit.view.ask("GET", "topics", name, touch="false")
    start = visit.number("from", 0)
    page = None
    if visit.view.may_ask(READ.method, *READ.fill(visit.names)):
        page = await _read_newest(visit, topic) if start is None else await _read_page(visit, name, start, visit.limit)
    data = {
        "topic": topic,
        "name": name,
        "group": name.removeprefix(_GROUP) if name.startswith(_GROUP) else "",
        "config": describe_configuration(topic["config"]),
        "callbacks": await find_callbacks(visit, name),
        "records": page,
        "tail": start is None,
        "older": None if page is None else _older(page, start, visit.limit),
        "routers": await _read_routers(visit, name),
        **await _read_charts(visit, name),
    }
    return ShownPage(name, "topic.html", data, live=start is None)


def _read_seq(text: str) -> int | None:
    """Return the seq of a URL; None if it is not one."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


async def _read_newest(visit: Visit, topic: dict[str, Any]) -> RecordPage:
    """Return the newest records of a topic; if records are very large, only the last few."""
    name, head = topic["topic"], topic["head_seq"]
    page = await _read_page(visit, name, max(0, head - visit.limit), visit.limit)
    if page.next_from_seq >= head:
        return page
    return await _read_page(visit, name, max(page.next_from_seq, head - _LAST_FEW), _LAST_FEW, _LARGEST_PAGE)


async def _read_page(visit: Visit, topic: str, after: int, limit: int, most: int = 0) -> RecordPage:
    """Return records after a seq; `most`: bytes of the page, 0 for the default."""
    body = {"from_seq": after, "limit": limit, "include_tags": True, "max_batch_bytes": most, "touch": False}
    page: RecordPage = await visit.view.ask("POST", "topics", topic, "diff", body=body, model=RecordPage)
    return page


def _older(page: RecordPage, start: int | None, limit: int) -> int | None:
    """Return the seq after which the page before this one begins; None on the first page."""
    if start is not None:
        after = min(start, page.head_seq)
    else:
        after = page.records[0].seq - 1 if page.records else max(0, page.head_seq - limit)
    return max(page.earliest_seq - 1, after - limit, 0) if after >= page.earliest_seq else None


async def _read_routers(visit: Visit, topic: str) -> dict[str, Any] | None:
    """Return the routers that read and that write a topic; None for keys that may not see them."""
    if not visit.view.may_ask("GET", "routers"):
        return None
    reading = await visit.view.ask("GET", "routers", source=topic, page_size=visit.limit)
    writing = await visit.view.ask("GET", "routers", dest=topic, page_size=visit.limit)
    return {"reading": reading["routers"], "writing": writing["routers"]}


async def _read_charts(visit: Visit, topic: str) -> dict[str, Any]:
    found: dict[str, Any] = {"charts": [], "complete": True, "histories": ""}
    if not visit.view.may("rates.show"):
        return found
    try:
        shown = await visit.view.call("rates.show", topic=topic)
    except EventdError:
        return found
    values = shown["series"][0]["recordsPerSecond"] if shown["series"] else []
    if not values:
        return found
    per_minute = max(1, 60 // shown["intervalSeconds"])
    minutes = by_minute(values, per_minute, lambda one: math.fsum(one) / len(one))
    return found | {
        "complete": shown["complete"],
        "charts": [Chart("Records written", "rate", draw_sparkline(values, shown["intervalSeconds"]), minutes)],
    }


async def show_record(visit: Visit) -> ShownPage:
    """Show one record with its data as it is stored. Raises NotFound."""
    record = await _read_record(visit)
    data = {"topic": visit.names["topic"], "record": record, "shown": record.size <= LARGEST_SHOWN}
    return ShownPage(f"{visit.names['topic']} {record.seq}", "record.html", data, live=False)


async def download_data(visit: Visit) -> FilePage:
    """Return the data of a record as a file. Raises NotFound."""
    record = await _read_record(visit)
    return FilePage(f"{visit.names['topic']}-{record.seq}.json", bytes(record.data))


async def _read_record(visit: Visit) -> TopicRecord:
    """Return the record that the page shows.

    Raises NotFound, which says what is known about a record that no longer exists.
    """
    topic, seq = visit.names["topic"], _read_seq(visit.names["seq"])
    if not seq:
        raise NotFound(f"{visit.names['seq'][:60]!r} is not a seq of a record", hint="the page of the topic lists them")
    page = await _read_page(visit, topic, seq - 1, 1)
    if page.records and page.records[0].seq == seq:
        return page.records[0]
    lost = page.tombstone
    if seq > page.head_seq:
        known = f"the newest record of {topic} has seq {page.head_seq:,}"
    elif lost is not None and lost.gap_from <= seq <= lost.gap_to:
        known = f"the records {lost.gap_from:,} to {lost.gap_to:,} were removed ({lost.reason})"
    else:
        known = "it was deleted, or is a job that is done"
    raise NotFound(f"{topic} has no record {seq:,}: {known}", hint="the page of the topic lists its records")
