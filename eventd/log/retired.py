"""Topics that were deleted, with their groups or by themselves: out of use at once, removed little by little.

What belongs to a topic hangs on its id. Deleting it gives it a name that no topic can have; what is made again under
the old name is a new topic, with another id. So nothing of the old one is found under the new, and the delete itself
touches no record and no receipt, however many there are.
"""

from __future__ import annotations

import sqlalchemy as sa

from eventd.errors import NotFound
from eventd.log.head import announce_topics, lock_head
from eventd.log.retention import CHUNK, Limits, evict
from eventd.log.routing import remove_routers_of
from eventd.log.stock import read_stock, remove_prefix
from eventd.log.values import Head
from eventd.store.database import execute, fetch
from eventd.store.schema import (
    dead_letters,
    event_ids,
    inbound_batches,
    inbound_gaps,
    inbound_links,
    leases,
    queues,
    topic_losses,
    write_keys,
)

RETIRED = "-retired:"
"""What the name of a retired topic begins with. No name of a group or a topic begins with a dash."""

_IS_RETIRED = f"(name >= '{RETIRED}' AND name < '{RETIRED[:-1]};')"  # as a range: an index finds them among many others
_BOOKS = (
    *(event_ids, dead_letters, inbound_batches, inbound_gaps, inbound_links),
    *(topic_losses, write_keys, leases, queues),
)
_NOTHING_KEPT = Limits(max_records=0, keep_undelivered=False)


def retire_topic(conn: sa.Connection, name: str) -> list[str]:
    """Take a topic out of use in the open transaction, which must hold the head; nothing happens if there is none.

    Its routers go with it: one that leads from nowhere or to nowhere cannot be. Their names, sorted by bytes.
    """
    found = fetch(conn, "SELECT id FROM topics WHERE name = ?", (name,))
    if not found:
        return []
    removed = remove_routers_of(conn, found[0][0])
    announce_topics(conn)
    execute(conn, "UPDATE topics SET name = ? || CAST(id AS TEXT), due_at = NULL WHERE name = ?", (RETIRED, name))
    return removed


def require_in_use(conn: sa.Connection, head: Head, topic_id: int) -> None:
    """Raise `NotFound` when the topic was retired. The head must be locked.

    A topic is retired by a declared change only, so one that was found in use is looked up again only when the version
    of what is declared has moved. The connection remembers, for it lives as long as one process's writing.
    """
    found: dict[int, int] = conn.info.setdefault("topics in use", {})
    if found.get(topic_id) == head.registry_version:
        return
    found.pop(topic_id, None)
    if not fetch(conn, f"SELECT 1 FROM topics WHERE id = ? AND NOT {_IS_RETIRED}", (topic_id,)):
        raise NotFound("the group was deleted meanwhile", hint="declare it again, or publish to another one")
    found[topic_id] = head.registry_version


def read_bare(conn: sa.Connection) -> list[int]:
    """The retired topics of which nothing is left but their own line."""
    retired = fetch(conn, f"SELECT id FROM topics WHERE {_IS_RETIRED} AND evicted_seq = next_seq - 1")
    return [topic_id for (topic_id,) in retired if not any(_count(conn, book, topic_id) for book in _BOOKS)]


def _count(conn: sa.Connection, book: sa.Table, topic_id: int) -> int:
    return len(conn.execute(sa.select(book.c.topic_id).where(book.c.topic_id == topic_id).limit(1)).all())


def remove_bare(conn: sa.Connection, bare: list[int]) -> None:
    """Remove the lines of these topics, in the open transaction."""
    for topic_id in bare:
        execute(conn, f"DELETE FROM topics WHERE id = ? AND {_IS_RETIRED}", (topic_id,))


def clear(conn: sa.Connection, *, now: int, chunk: int = CHUNK) -> int:
    """Remove a little of what retired topics hold, in the open transaction; how many lines went. Repeat until none do.

    A topic's own line stays: whoever is about to read by its id must find an empty topic, and not none.
    """
    lock_head(conn)  # before anything else, as everywhere; an append by its old id may just be under way
    for topic_id, form, held in fetch(
        conn, f"SELECT id, form, next_seq - 1 - evicted_seq FROM topics WHERE {_IS_RETIRED}"
    ):
        if held and form == "event":
            return evict(conn, topic_id, _NOTHING_KEPT, now=now, chunk=chunk, silent=True).records
        if held:
            stock = read_stock(conn, topic_id)
            return remove_prefix(conn, stock, stock.head_seq, now=now).evicted_seq - stock.evicted_seq
        for book in _BOOKS:
            if went := _trim(conn, book, topic_id, chunk):
                return went
    return 0


def _trim(conn: sa.Connection, book: sa.Table, topic_id: int, chunk: int) -> int:
    key = list(book.primary_key)
    some = sa.select(*key).where(book.c.topic_id == topic_id).limit(chunk)
    return conn.execute(book.delete().where(sa.tuple_(*key).in_(some))).rowcount
