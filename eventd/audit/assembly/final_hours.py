"""The final hours of an audit's stream: a row is written once, and again as a new revision if its figures change.

A row (pair, type, hour) is final when the ledgers of its nodes are complete until some time after the hour, nothing is
pending, and its completeness is known. Rows are appended as Parquet, one file at a time, each with its revision; no
file is ever changed. The file is written first, then the index of its rows. After a crash in between, the index is
completed from the rows of the file, so no row is written twice and none is lost.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from eventd.audit.assembly.assemble import StageResults
from eventd.audit.assembly.tables import schemas
from eventd.audit.report.report import Hour
from eventd.audit.segments.cells import HOUR
from eventd.audit.segments.row_marks import PAIR, PairKey
from eventd.audit.verdicts.pair_figures import HourKey
from eventd.errors import Conflict, NotFound
from eventd.lake.extra import parquet, pyarrow
from eventd.lake.file_sizes import MOST_KEPT, TooLargeFile
from eventd.lake.layout import MINUTE
from eventd.lake.page_sizes import most_bytes, over, with_dictionaries, word_bytes
from eventd.lake.schema import Ledger
from eventd.lake.storage import Storage
from federation.event import micros
from federation.lenient import parse_time

FOLDER: Final = "final"
HOURS: Final = f"{FOLDER}/hours"
INDEX: Final = f"{FOLDER}/index.msgpack"
FILE_ROWS: Final = 1_000_000
"""Maximum number of rows in one file, so that it stays within the bounds of its readers."""
_VERSION: Final = 1
_LAKE: Final = b"eventd.lake"
"""The key under which a file names its lake."""
_KEY: Final = (*PAIR, "type", "hour")
_REMEMBERED: Final = 7 * 24
"""The index keeps hours up to this many hours before the first hour of the lake."""


class _Revision(NamedTuple):
    """The digest of the latest figures of a row, and the number of that revision."""

    digest: bytes
    revision: int


class _Index(msgspec.Struct, kw_only=True):
    """The index as it is stored. `last` is the number of the last file that it covers.

    `lines` are (group, source, peer, type); `rows` are (index in `lines`, hour since 1970, digest, revision).
    """

    version: int = _VERSION
    lake: str
    last: int
    lines: list[tuple[str, str, str, str]]
    rows: list[tuple[int, int, bytes, int]]


class FinalHours:
    """The final hours of one lake in an audit's output. After an error, open them again with `open_final`."""

    def __init__(self, out: Storage, lake: str, last: int, known: dict[HourKey, _Revision]) -> None:
        self._out = out
        self._lake = lake
        self._last = last
        self._known = known

    def add(self, hours: Iterable[Hour], now: int) -> int:
        """Write the rows that are new or have changed, if any, then the index; return their number.

        A file has at most `FILE_ROWS` rows. An index that is too large to be read again is not written: it is rebuilt
        from the files. `now` is in microseconds. Raises LakeUnavailable.
        """
        fresh: dict[HourKey, _Revision] = {}
        rows = []
        for hour in hours:
            row = msgspec.structs.asdict(hour)
            key, digest = _key(row, micros(parse_time(hour.hour))), _digest(row)
            before = self._known.get(key, _Revision(b"", 0))
            if digest != before.digest:
                fresh[key] = _Revision(digest, before.revision + 1)
                rows.append({**row, "hour": key.hour * HOUR, "revision": before.revision + 1, "settled_at": now})
        for at in range(0, len(rows), FILE_ROWS):
            self._put(rows[at : at + FILE_ROWS])
            self._last += 1
        if rows:
            self._known |= fresh
            if len(index := msgspec.msgpack.encode(self._index())) <= MOST_KEPT:
                self._out.put(INDEX, index)
        return len(rows)

    def forget(self, first: int) -> None:
        """Remove hours over a week before the lake's first hour, `first` (since 1970), from the index, not the files.

        Such hours cannot change any more.
        """
        gone = [key for key in self._known if key.hour < first - _REMEMBERED]
        for key in gone:
            del self._known[key]

    def clean(self) -> None:
        """Remove unfinished files of killed processes; the caller holds the output's lock. Raises LakeUnavailable."""
        self._out.delete(self._out.unfinished(FOLDER))

    def read_unindexed(self) -> None:
        """Add the rows of files that the index lacks, in memory; the next `add` of new rows stores the index.

        Raises Conflict for a file that cannot be read, or has no final hours of this lake.
        """
        for path in sorted(entry.path for entry in self._out.list(HOURS)):
            number = _number(path)
            if number <= self._last:
                continue
            for row in self._read(path):
                key, before = _key(row, micros(row["hour"])), self._known.get(_key(row, micros(row["hour"])))
                if before is None or before.revision < row["revision"]:
                    self._known[key] = _Revision(_digest(row), row["revision"])
            self._last = number

    def _read(self, path: str) -> list[dict[str, Any]]:
        try:
            table = _table(self._out.read_within(path, MOST_KEPT))
        except (TooLargeFile, pyarrow().ArrowException, OSError, ValueError):
            raise Conflict(
                f"{path} in {self._out.url} cannot be read", hint="move it away: it is damaged, or no audit wrote it"
            ) from None
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
            (lines.setdefault((*key.pair, key.type), len(lines)), key.hour, *known)
            for key, known in self._known.items()
        ]
        return _Index(lake=self._lake, last=self._last, lines=list(lines), rows=rows)


def open_final(out: Storage, lake: str) -> FinalHours:
    """Open the final hours of a lake, with the rows of files that the index lacks.

    Raises Conflict if `out` holds those of another lake, or an unreadable or foreign file, and LakeUnavailable.
    """
    index = _read_index(out)
    if index is None:
        found = FinalHours(out, lake, 0, {})
    elif index.lake != lake:
        raise _another(out)
    else:
        lines = [(PairKey(*pair[:3]), pair[3]) for pair in index.lines]
        known = {HourKey(*lines[at], hour): _Revision(digest, revision) for at, hour, digest, revision in index.rows}
        found = FinalHours(out, lake, index.last, known)
    found.read_unindexed()
    return found


def _read_index(out: Storage) -> _Index | None:
    """Read the index; None if it is missing, too large or damaged, so that the caller rebuilds it from the files."""
    try:
        index = msgspec.msgpack.decode(out.read_within(INDEX, MOST_KEPT), type=_Index)
    except (NotFound, TooLargeFile, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return index if index.version == _VERSION else None


def _table(content: bytes) -> Any:
    """Return the table in a file, if it is not too large in memory. Raises ValueError, OSError and Arrow's errors."""
    arrow = pyarrow()
    file = parquet().ParquetFile(arrow.BufferReader(content))
    with_dictionaries(content, file.metadata.num_columns, file.metadata.num_rows)
    texts = [field.name for field in file.schema_arrow if field.type == arrow.string()]
    words = parquet().ParquetFile(arrow.BufferReader(content), read_dictionary=texts).read(texts)
    if word_bytes(words) > most_bytes(len(content)):
        raise ValueError(over(len(content)))
    return file.read()


def final_schema() -> Any:
    """Return the Arrow schema: the columns of the table `hours`, the revision of a row, and when it was written."""
    pa = pyarrow()
    return (
        schemas()["hours"]
        .append(pa.field("revision", pa.int32()))
        .append(pa.field("settled_at", pa.timestamp("us", tz="UTC")))
    )


def final_rows(results: StageResults, hours: Iterable[Hour], watermark: int) -> Iterator[Hour]:
    """Yield the hours that are final: nothing is pending, the completeness is known, and the ledgers are complete.

    The ledgers of all nodes concerned must be complete from the hour's begin to `watermark` microseconds after its end.
    """
    bounds: dict[PairKey, tuple[int, int]] = {}
    for hour in hours:
        if hour.pending or hour.completeness is None:
            continue
        pair = PairKey(hour.group, hour.source, hour.peer)
        if pair not in bounds:
            bounds[pair] = _bounds(results, pair)
        first, last = bounds[pair]
        begin = micros(parse_time(hour.hour))
        if first <= begin and begin + HOUR + watermark <= last:
            yield hour


def _bounds(results: StageResults, pair: PairKey) -> tuple[int, int]:
    """Return the times (microseconds, by any clock) between which the ledgers of source, peer and senders are complete.

    Nodes without ledgers, and blind spots with a reason, are left out.
    """
    coverage = results.coverage
    nodes = [node for node in {pair.source, pair.peer, *results.senders.get(pair, ())} if coverage.has_ledgers(node)]
    # If retention has evicted the beginning of a ledger, figures that were right before decrease.
    begins = [
        spot.times[1] + 1
        for node in nodes
        for book in (Ledger.EVENTS, Ledger.DELIVERIES)
        for spot in coverage.blind_spots.get((node, book), ())
        if not spot.why
    ]
    ends = [coverage.until[node] for node in nodes]
    return max(begins, default=0) + coverage.margin, min(ends, default=0) - coverage.margin


def first_hour(results: StageResults) -> int | None:
    """Return the hour (since 1970) of the earliest event in the lake; None if the lake has no events."""
    slots = [one.manifest.slots[0] for one in results.survey.segments if one.manifest.slots]
    return min(slots) * MINUTE // HOUR if slots else None


def _key(row: Mapping[str, Any], time: int) -> HourKey:
    return HourKey(PairKey(row["group"], row["source"], row["peer"]), row["type"], time // HOUR)


def _digest(row: Mapping[str, Any]) -> bytes:
    """Return the digest of the figures of a row, equal for a row of a report and one that was read back."""
    figures = [row[name] for name in schemas()["hours"].names if name not in _KEY]
    return hashlib.blake2b(msgspec.msgpack.encode(figures), digest_size=8).digest()


def _number(path: str) -> int:
    """Return the number in the path of a file of final hours; 0 for any other path."""
    text = path.removeprefix(f"{HOURS}/part-").removesuffix(".parquet")
    return int(text) if len(text) == 12 and text.isascii() and text.isdigit() else 0


def _another(out: Storage) -> Conflict:
    return Conflict(f"{out.url} holds final hours of another lake", hint="choose another --out")
