"""Hours of an audit that are final: what they say is put down once, and again only where it changed after all.

An hour is final when everybody concerned promises that all of it is in the lake, nothing is on its way any more, and
its completeness is known. Such rows are appended as Parquet, a file at a time, each row with its revision; no file is
ever changed. First a file is put, then the index that knows its rows. A crash in between leaves a file that the index
does not know: it is taken up from its own rows, so nothing is put down twice and nothing is lost.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from eventd.audit.engine.assemble import HOUR, Found
from eventd.audit.engine.link_figures import HourKey
from eventd.audit.engine.rows import Line
from eventd.audit.engine.tables import schemas
from eventd.audit.report.report import Hour
from eventd.errors import Conflict, NotFound
from eventd.lake.extra import parquet, pyarrow
from eventd.lake.layout import MINUTE
from eventd.lake.schema import Book
from eventd.lake.storage import Storage
from federation.event import micros
from federation.lenient import parse_time

FOLDER: Final = "final"
HOURS: Final = f"{FOLDER}/hours"
INDEX: Final = f"{FOLDER}/index.msgpack"
_VERSION: Final = 1
_LAKE: Final = b"eventd.lake"
"""Under what a file says which lake it is about."""
_KEY: Final = (*Line._fields, "type", "hour")
_REMEMBERED: Final = 7 * 24
"""So many hours after the lake has let go of an hour the index does, too."""


class _Known(NamedTuple):
    """The digest of the figures that were put down last for a row, and the number of that revision."""

    digest: bytes
    revision: int


class _Index(msgspec.Struct, kw_only=True):
    """The index as it is kept: rows by the place of their line, the hour, and what is known."""

    version: int = _VERSION
    lake: str
    last: int
    lines: list[tuple[str, str, str, str]]
    rows: list[tuple[int, int, bytes, int]]


class FinalHours:
    """What has been put down in `out` about one lake. After an error it must be opened anew."""

    def __init__(self, out: Storage, lake: str, last: int, known: dict[HourKey, _Known]) -> None:
        self._out = out
        self._lake = lake
        self._last = last
        self._known = known

    def add(self, hours: Iterable[Hour], now: int) -> int:
        """Put down those that are new or say something else than before; how many. Raises LakeUnavailable."""
        fresh: dict[HourKey, _Known] = {}
        rows = []
        for hour in hours:
            row = msgspec.structs.asdict(hour)
            key, digest = _key(row, micros(parse_time(hour.hour))), _digest(row)
            before = self._known.get(key, _Known(b"", 0))
            if digest != before.digest:
                fresh[key] = _Known(digest, before.revision + 1)
                rows.append({**row, "hour": key.hour * HOUR, "revision": before.revision + 1, "settled_at": now})
        if rows:
            self._put(rows)
            self._last += 1
            self._known |= fresh
            self._out.put(INDEX, msgspec.msgpack.encode(self._index()))
        return len(rows)

    def forget(self, first: int) -> None:
        """Forget hours that lie long before the lake's first one: they will not be asked for again."""
        gone = [key for key in self._known if key.hour < first - _REMEMBERED]
        for key in gone:
            del self._known[key]

    def clean(self) -> None:
        """Remove what killed writers have left half written. For who holds the output. Raises LakeUnavailable."""
        self._out.delete(self._out.unfinished(FOLDER))

    def take_up(self) -> None:
        """Learn the rows of files that the index does not know. Raises Conflict for what is no such file."""
        for path in sorted(entry.path for entry in self._out.list(HOURS)):
            number = _number(path)
            if number <= self._last:
                continue
            for row in self._read(path):
                key, before = _key(row, micros(row["hour"])), self._known.get(_key(row, micros(row["hour"])))
                if before is None or before.revision < row["revision"]:
                    self._known[key] = _Known(_digest(row), row["revision"])
            self._last = number

    def _read(self, path: str) -> list[dict[str, Any]]:
        arrow = pyarrow()
        try:
            table = parquet().read_table(arrow.BufferReader(self._out.read(path)))
        except arrow.ArrowException:
            raise Conflict(f"{path} in {self._out.url} cannot be read", hint="remove it: it is not ours") from None
        if not table.schema.equals(final_schema(), check_metadata=False):
            raise Conflict(f"{path} in {self._out.url} has other columns than final hours", hint="move it away")
        if (table.schema.metadata or {}).get(_LAKE) != self._lake.encode():
            raise _another(self._out)
        return list(table.to_pylist())

    def _put(self, rows: list[dict[str, Any]]) -> None:
        schema = final_schema().with_metadata({_LAKE: self._lake.encode()})
        table = pyarrow().Table.from_pylist(rows, schema=schema)
        with self._out.create(f"{HOURS}/part-{self._last + 1:012d}.parquet") as draft:
            parquet().write_table(table, draft, compression="zstd")

    def _index(self) -> _Index:
        lines: dict[tuple[str, str, str, str], int] = {}
        rows = [
            (lines.setdefault((*key.line, key.type), len(lines)), key.hour, *known)
            for key, known in self._known.items()
        ]
        return _Index(lake=self._lake, last=self._last, lines=list(lines), rows=rows)


def open_final(out: Storage, lake: str) -> FinalHours:
    """The final hours of a lake. Raises Conflict where the place holds those of another one, and LakeUnavailable."""
    index = _read_index(out)
    if index is None:
        found = FinalHours(out, lake, 0, {})
    elif index.lake != lake:
        raise _another(out)
    else:
        lines = [(Line(*line[:3]), line[3]) for line in index.lines]
        known = {HourKey(*lines[at], hour): _Known(digest, revision) for at, hour, digest, revision in index.rows}
        found = FinalHours(out, lake, index.last, known)
    found.take_up()
    return found


def _read_index(out: Storage) -> _Index | None:
    """The index; None where there is none that can be used: all it knows is in the files, too."""
    try:
        index = msgspec.msgpack.decode(out.read(INDEX), type=_Index)
    except (NotFound, msgspec.DecodeError, UnicodeDecodeError):
        return None
    return index if index.version == _VERSION else None


def final_schema() -> Any:
    """The columns: those of the table `hours`, and of which revision a row is, and when it was put down."""
    pa = pyarrow()
    return (
        schemas()["hours"]
        .append(pa.field("revision", pa.int32()))
        .append(pa.field("settled_at", pa.timestamp("us", tz="UTC")))
    )


def final_rows(found: Found, hours: Iterable[Hour], watermark: int) -> Iterator[Hour]:
    """Those of the hours that are final, `watermark` microseconds after their end or later."""
    bounds: dict[Line, tuple[int, int]] = {}
    for hour in hours:
        if hour.pending or hour.completeness is None:
            continue
        line = Line(hour.group, hour.source, hour.peer)
        if line not in bounds:
            bounds[line] = _bounds(found, line)
        first, last = bounds[line]
        begin = micros(parse_time(hour.hour))
        if first <= begin and begin + HOUR + watermark <= last:
            yield hour


def _bounds(found: Found, line: Line) -> tuple[int, int]:
    """Between which times the books of all who are concerned, and keep any, show everything, by whatever clock."""
    sight = found.sight
    nodes = [node for node in {line.source, line.peer, *found.senders.get(line, ())} if sight.keeps(node)]
    # Where retention has taken the beginning of a book, figures shrink that were right before.
    begins = [
        blind.times[1] + 1
        for node in nodes
        for book in (Book.EVENTS, Book.DELIVERIES)
        for blind in sight.blinds.get((node, book), ())
        if not blind.why
    ]
    ends = [sight.until[node] for node in nodes]
    return max(begins, default=0) + sight.margin, min(ends, default=0) - sight.margin


def first_hour(found: Found) -> int | None:
    """The first hour since 1970 that the lake has anything of; None for an empty lake."""
    slots = [one.manifest.slots[0] for one in found.survey.segments if one.manifest.slots]
    return min(slots) * MINUTE // HOUR if slots else None


def _key(row: Mapping[str, Any], time: int) -> HourKey:
    return HourKey(Line(row["group"], row["source"], row["peer"]), row["type"], time // HOUR)


def _digest(row: Mapping[str, Any]) -> bytes:
    """Of the figures alone, in an order of their own: of a report's row, and of one that was read back."""
    figures = [row[name] for name in schemas()["hours"].names if name not in _KEY]
    return hashlib.blake2b(msgspec.msgpack.encode(figures), digest_size=8).digest()


def _number(path: str) -> int:
    """The number of a file; 0 for what is none of ours."""
    text = path.removeprefix(f"{HOURS}/part-").removesuffix(".parquet")
    return int(text) if len(text) == 12 and text.isascii() and text.isdigit() else 0


def _another(out: Storage) -> Conflict:
    return Conflict(f"{out.url} holds final hours of another lake", hint="choose another --out")
