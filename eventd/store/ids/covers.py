"""What a process keeps in memory of the runs of ids: which ids each may have, as a set or as a filter."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Collection, Iterable
from threading import Lock

from eventd.store.engine.database import Connection
from eventd.store.ids.filters import IdFilter

MOST_KEPT_BYTES = 256 << 20
"""Bytes of sets and filters that a process keeps, approximately; the least recently used are dropped."""
ID_BYTES = 110
"""Bytes of an id in a set."""

Cover = frozenset[str] | IdFilter


class CoverCache:
    """By the mark of a run, the ids that it has, or had before a merge took them.

    Shared by all connections of the process: the content of a run with a mark never grows.
    """

    def __init__(self) -> None:
        self.covers: OrderedDict[bytes, Cover] = OrderedDict()
        self._lock = Lock()
        self._bytes = 0

    def get(self, mark: bytes) -> Cover | None:
        """Return what is kept of a run, and note that it was used."""
        with self._lock:
            cover = self.covers.get(mark)
            if cover is not None:
                self.covers.move_to_end(mark)
            return cover

    def keep(self, mark: bytes, cover: Cover) -> None:
        """Keep the set of all ids of a run, or a filter of them."""
        with self._lock:
            self._drop(mark)
            self.covers[mark] = cover
            self._bytes += weight_of(cover)
            while self._bytes > MOST_KEPT_BYTES and len(self.covers) > 1:
                self._drop(next(iter(self.covers)))

    def forget(self, marks: Iterable[bytes]) -> None:
        """Drop what is kept of runs that no longer exist."""
        with self._lock:
            for mark in marks:
                self._drop(mark)

    def clear(self) -> None:
        """Drop everything."""
        self.forget([*self.covers])

    def _drop(self, mark: bytes) -> None:
        cover = self.covers.pop(mark, None)
        if cover is not None:
            self._bytes -= weight_of(cover)


def weight_of(cover: Cover) -> int:
    """Return the bytes of a set or filter, approximately."""
    return cover.bytes if isinstance(cover, IdFilter) else ID_BYTES * len(cover)


kept = CoverCache()

_INFO = "marks of runs"
"""Under this name, a connection that writes has the marks that its transactions have seen or made, by topic."""


def note_mark(conn: Connection, topic_id: int, mark: bytes) -> None:
    """Note the mark of a run that the open transaction makes, which may be undone."""
    _noted(conn)[topic_id].add(mark)


def forget_ended(conn: Connection, topic_id: int, marks: Collection[bytes]) -> None:
    """Drop what is kept of a topic's runs that no longer exist, by the marks of those that it has.

    They were merged by another process, deleted with their topic, or made in a transaction that was undone. The head
    must be locked.
    """
    noted = _noted(conn)
    kept.forget(noted[topic_id].difference(marks))
    if marks:
        noted[topic_id] = set(marks)
    else:
        del noted[topic_id]


def noted_topics(conn: Connection) -> list[int]:
    """Return the topics with runs that transactions of this connection have seen or made."""
    return [*_noted(conn)]


def _noted(conn: Connection) -> defaultdict[int, set[bytes]]:
    noted: defaultdict[int, set[bytes]] = conn.info.setdefault(_INFO, defaultdict(set))
    return noted
