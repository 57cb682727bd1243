"""Rows out of the databases of nodes, whether these run or not. A task reads a range of numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from eventd.audit.source.columns import tabulate
from eventd.audit.source.options import OnGap, Options
from eventd.audit.source.origin import Line, Look, Loss, Numbered, Piece, Reach, gone
from eventd.errors import Invalid, NotFound, SecretUnreadable
from eventd.lake.extract import Extract, Memory, read_book, read_state
from eventd.log.core.head import read_head
from eventd.store.engine.database import Connection, Database
from eventd.store.schema.migrations import require_current

if TYPE_CHECKING:
    import pyarrow as pa

PAGE_ROWS = 20_000
"""Rows that are taken out of a database in one snapshot."""


class DatabaseOrigin(Numbered):
    """One or many databases."""

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._open: dict[str, Database] = {}

    def look(self) -> Look:
        reaches = []
        self._places = {}
        for place in self._options.places:
            database = self._database(place)
            state = database.read_now(read_state)
            span = state.books[self._options.book]
            for node in state.nodes:
                line = Line(node, state.epoch, self._options.book)
                if not self._options.wants(node, state.epoch):
                    continue
                if line in self._places:
                    raise Invalid(f"the node {node} is in two of the databases; {database.label()} is the second")
                self._places[line] = place
                reaches.append(Reach(line, span.first - 1, span.last))
        return Look([reach for reach in reaches if reach.upto > reach.after], [])

    def read(self, piece: Piece, columns: Sequence[str]) -> Iterator[pa.Table]:
        database, memory, after = self._database(piece.place), Memory(), piece.after
        while after < piece.upto:
            page = database.read_now(_read_page, piece, after, memory, payloads=self._options.payloads)
            if page.epoch != piece.line.epoch:
                told = f"the database has begun a new history, epoch {page.epoch}"
                raise gone([Loss(piece.line, after, piece.upto, told)])
            if page.extract.lost and piece.goes_on and self._options.on_gap is OnGap.FAIL:
                raise gone([Loss(piece.line, after, page.extract.upto, "retention has taken rows of them")])
            yield tabulate(piece.line.book, page.extract.columns, columns)
            if page.extract.upto <= after:
                return
            after = page.extract.upto

    def close(self) -> None:
        for database in self._open.values():
            database.close()
        self._open.clear()

    def _database(self, place: str) -> Database:
        if place not in self._open:
            database = Database(_address(place) if self._options.in_files else _as_url(place))
            self._open[place] = database
            if database.path is not None and not database.path.exists():
                raise NotFound(f"there is no database at {database.path}", hint="it must lie where the tasks run")
            require_current(database)
        return self._open[place]


class _Page(NamedTuple):
    epoch: str
    extract: Extract


def _read_page(conn: Connection, piece: Piece, after: int, memory: Memory, *, payloads: bool) -> _Page:
    line = piece.line
    extract = read_book(conn, line.book, after, rows=PAGE_ROWS, payloads=payloads, node=line.node, memory=memory)
    return _Page(read_head(conn).epoch, extract)


def _as_url(place: str) -> str:
    return place if "://" in place else f"sqlite:///{place}"


def _address(path: str) -> str:
    try:
        return _as_url(Path(path).read_text(encoding="utf-8").strip())
    except (OSError, UnicodeDecodeError):
        told = f"the option databaseFile names {path}, which cannot be read"
        raise SecretUnreadable(told, hint="it must lie on every machine that reads") from None
