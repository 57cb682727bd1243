"""Fills logs to a given size quickly: through the log's own append, in large transactions, while no node runs.

Node A holds the events as its own and has sent all of them to its peer; node B has received all of them from A. Both
are in the state of nodes that have run for long, and further events meet a ledger of that size.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Literal

from eventd.egress.cursors import link_name
from eventd.log.core.append import place_new
from eventd.log.core.head import lock_head, move_head, read_head
from eventd.log.core.topic_row import ensure_topic
from eventd.log.core.values import Drafts
from eventd.log.cursors.cursors import create_cursor
from eventd.log.cursors.selections import declare_selection
from eventd.log.cursors.steps import Step, apply_step
from eventd.resources.group_configuration import topic_of
from eventd.runtime.clock import SystemClock
from eventd.store.engine.database import Connection, Database
from eventd.store.ids.filters import IdFilter
from eventd.store.ids.merging import end_merge, extend_filter, filter_parts, merge_some, store_filter_part
from eventd.store.rows.links import StoredMark, write_mark
from eventd.store.schema.migrations import upgrade
from federation.event import Event, encode, from_micros, normalise
from tests.support.stored_batches import stored_batch

GROUP = "growth"
A, B = "growth-a", "growth-b"
SIZE = 350
"""Bytes of an event."""
FILLED = 20_000
"""Events of one transaction."""
SORTED = 1_000_000
"""Events of one transaction with random ids, which are inserted in order: singly each would cost a page of the index.
"""
UNSORTED = 200_000
"""Of the oldest events, this number is inserted unsorted: the index is still small, and retention removes these first.
"""
BATCH = 1000
"""Events of a delivered batch."""
RARE = 100_000
"""One event in this number is of the rare type."""
FIRST_TIME = 1_760_000_000_000
"""Milliseconds since 1970 of the first id; ten events share one."""
INCARNATION = 1
"""The incarnation of a new log."""

Ids = Literal["node", "random"]


@dataclass(frozen=True, slots=True)
class Shape:
    """The format of the events of a measurement. The number is in the id and in the payload, so each event is
    identifiable.

    `ids`: ordered by time as a node generates them, or random as clients may supply them.
    """

    ids: Ids = "node"
    size: int = SIZE

    def id_of(self, number: int) -> str:
        """Return an id of 36 characters with the number in the last twelve digits."""
        if self.ids == "node":
            millis = FIRST_TIME + number // 10
            return f"{millis >> 16:08x}-{millis & 0xFFFF:04x}-7{number % 10:03x}-8000-{number:012x}"
        mixed = _mixed(number)
        return f"{mixed >> 32:08x}-{mixed >> 16 & 0xFFFF:04x}-4{mixed & 0xFFF:03x}-8000-{number:012x}"

    def type_of(self, number: int) -> str:
        """Return the type of an event: one in ten is of a second type, and very few are of a third."""
        return "bench.rare" if number % RARE == RARE // 2 else "bench.tenth" if number % 10 == 3 else "bench.client"

    def request(self, numbers: range, *, with_ids: bool) -> bytes:
        """Return the body of a request that writes these events."""
        name = '"id":"%s",' if with_ids else "%s"
        event = (
            '{' + name + '"type":"%s","subject":"10.%d.%d.0/24","observedAt":"' + OBSERVED + '",'
            '"payload":{"number":"%012d","pad":"' + self._pad() + '"}}'
        )  # fmt: skip
        rows = [
            event % (self.id_of(n) if with_ids else "", self.type_of(n), n // 250 % 250, n % 250, n) for n in numbers
        ]
        return f'{{"brief":true,"events":[{",".join(rows)}]}}'.encode()

    def drafts(self, numbers: range, *, path: str = "") -> Drafts:
        """Return these events as drafts of the log."""
        template = self._canonical()
        order = sorted(numbers, key=self.id_of) if self.ids == "random" and numbers.start >= UNSORTED else numbers
        ids = [self.id_of(n) for n in order]
        bodies = [
            template % (name, self.type_of(n), n // 250 % 250, n % 250, name, n)
            for n, name in zip(order, ids, strict=True)
        ]
        types = frozenset(map(self.type_of, numbers))
        return Drafts(ids, [path] * len(ids), bodies, types, frozenset({A}))

    def _canonical(self) -> str:
        made = self._event("x" * max(0, len(self._pad())))
        return made.replace("@id", "%s").replace("@type", "%s").replace("@net", "%d.%d").replace("@number", "%012d")

    def _pad(self) -> str:
        bare = self._event("").replace("@net", "100.100").replace("@number", "0" * 12).replace("@type", "bench.client")
        return "x" * max(0, self.size - len(bare.replace("@id", "0" * 36)))

    def _event(self, pad: str) -> str:
        event = Event(
            id="@id",
            group=GROUP,
            source_node=A,
            type="@type",
            subject="10.@net.0/24",
            payload={"number": "@number", "pad": pad},
            observed_at=from_micros(FIRST_TIME * 1000),
        )
        return encode(normalise(event, now=SystemClock().now())).decode()


OBSERVED = from_micros(FIRST_TIME * 1000).isoformat().replace("+00:00", "Z")


def _mixed(number: int) -> int:
    """Return 64 bits that look random and differ for each number (splitmix64)."""
    mixed = (number + 1) * 0x9E3779B97F4A7C15 & _BITS
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 & _BITS
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & _BITS
    return mixed ^ mixed >> 31


_BITS = (1 << 64) - 1


def fill(urls: tuple[str, str], events: int, shape: Shape) -> None:
    """Fill both logs, whose databases are empty. Raises RuntimeError if they do not hold what they should."""
    with closing(Database(urls[0])) as a, closing(Database(urls[1])) as b:
        topic = _fill_one(a, events, shape, "")
        a.write_now(_sent, topic, events)
        mark = StoredMark(a.read_now(read_head).epoch, INCARNATION, 0, events)
        topic = _fill_one(b, events, shape, A)
        b.write_now(write_mark, topic, A, mark, SystemClock().now())


def fill_own(url: str, events: int, shape: Shape) -> None:
    """Fill the log of A alone, which has no peer yet."""
    with closing(Database(url)) as database:
        _fill_one(database, events, shape, "")


def _fill_one(database: Database, events: int, shape: Shape, path: str) -> int:
    """Migrate and fill a database; return the topic's id. Raises RuntimeError if it does not hold what it should."""
    database.write_now(upgrade, now=SystemClock().now())
    topic = database.write_now(ensure_topic, topic_of(GROUP), SystemClock().now())
    for numbers in _portions(events, shape, in_runs=database.path is not None):
        database.write_now(_append, topic, shape.drafts(numbers, path=path))
        _merge(database)
    if (last := database.read_now(read_head).last) != events:
        raise RuntimeError(f"{database.label()} holds {last} events and not {events}")
    return topic


def _merge(database: Database) -> None:
    """Merge the runs of ids, as a node does while it works."""
    while (step := database.write_now(merge_some)).worked:
        if step.complete is not None:
            made = IdFilter.sized(step.complete.entries)
            after: bytes | None = b""
            while after is not None:
                after = database.read_now(extend_filter, step.complete, made, after)
            for part, data in enumerate(filter_parts(made)):
                database.write_now(store_filter_part, step.complete, part, data)
            database.write_now(end_merge, step.complete, made)


def _portions(events: int, shape: Shape, *, in_runs: bool) -> Iterator[range]:
    """Yield the numbers of the events of each transaction. `in_runs`: random ids go to sorted runs, as on SQLite."""
    first = 0
    while first < events:
        step = SORTED if shape.ids == "random" and first >= UNSORTED and not in_runs else FILLED
        yield range(first, min(first + step, events))
        first += step


def _append(conn: Connection, topic: int, drafts: Drafts) -> None:
    head = lock_head(conn)
    placed = place_new(conn, topic, [drafts], next_position=head.next_position, now=SystemClock().now())
    move_head(conn, placed.next_position)


def _sent(conn: Connection, topic: int, events: int) -> None:
    """Write A's ledger: all events were delivered to B, batch by batch."""
    now, name = SystemClock().now(), link_name(GROUP, B)
    create_cursor(conn, name, kind="peer", topic_id=topic, position=0, now=now)
    declare_selection(conn, name, 1, {}, now)
    epoch = read_head(conn).epoch
    for after in range(0, events, BATCH):
        upto = min(after + BATCH, events)
        row = stored_batch(name, after, upto, epoch=epoch, incarnation=INCARNATION, sent_at=now, acked_at=now)
        apply_step(conn, Step(name, after, upto, upto, now, [row], protocol="v2"))
