"""Writes segments: the data file first, then its manifest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from eventd.errors import Invalid, LakeUnusable
from eventd.lake.extra import parquet, pyarrow
from eventd.lake.file_sizes import MOST_JSON
from eventd.lake.layout import SegmentName, parse_name, slot_of, state_path
from eventd.lake.manifest import LostRows, Manifest, NodeState, encode
from eventd.lake.page_sizes import content_bytes, most_bytes, over, word_bytes
from eventd.lake.schema import COLUMNS, OWN_TIME, SLOTTED, ColumnType, segment_schema
from eventd.lake.segment_checks import MOST_BYTES, MOST_ROWS, Bounds, column_bounds
from eventd.lake.storage import Storage

if TYPE_CHECKING:
    import pyarrow as pa

ROW_GROUP: Final = 131_072
"""Maximum number of rows in a row group, which is compressed and read as one."""
ZSTD_LEVEL: Final = 1


class TooLargeSegment(Invalid):
    """A segment would take more memory than its readers allow, or its file or its manifest would be too large."""


class TooLargeState(LakeUnusable):
    """The state of a node would have more bytes than readers of the lake accept."""


class Segment(NamedTuple):
    """A segment: its name and its manifest."""

    place: SegmentName
    manifest: Manifest

    @classmethod
    def named(cls, name: str, manifest: Manifest) -> Segment:
        """Return the segment with this name. Raises Invalid for a name that is not a segment's."""
        place = parse_name(name)
        if place is None:
            raise Invalid(f"{name} is not the name of a segment")
        return cls(place, manifest)

    @property
    def after(self) -> int:
        """The row number before the first that it covers."""
        return self.manifest.after

    @property
    def upto(self) -> int:
        """The last row number that it covers."""
        return self.manifest.upto


def write_segment(
    storage: Storage,
    place: SegmentName,
    rows: pa.Table | Iterable[pa.Table],
    *,
    node: str,
    now: int,
    payloads: bool = False,
    leaves: bool = False,
    replaces: tuple[str, ...] = (),
    lost: tuple[LostRows, ...] = (),
    announce: Callable[[bytes], None] | None = None,
) -> Segment:
    """Write a segment with its manifest: the `rows` of a ledger with numbers in (place.after, place.upto], ascending.

    A segment of the same name is replaced. `rows` have the columns of `arrow_schema(place.book)`, of which those of
    leaves are written only with `leaves`; of several tables, about one row group is written at a time. `announce` gets
    the manifest before it is written. `now` is in microseconds. Raises Invalid for row groups out of order, rows out of
    the range, more than `MOST_ROWS`, or no rows at all, TooLargeSegment, and LakeUnavailable.
    """
    plan = Manifest(
        book=place.book,
        node=node,
        epoch=place.epoch,
        after=place.after,
        upto=place.upto,
        rows=0,
        bytes=0,
        sha256="0" * 64,
        slots=None,
        times=None,
        written_at=now,
        payloads=payloads,
        leaves=leaves,
        replaces=replaces,
        lost=lost,
    )
    _encode(place, plan)  # a manifest that is too large without its rows is refused before these are read and written
    summary = _RowSummary(place)
    footers: list[Any] = []
    with storage.create(place.data) as draft:
        with _writer(draft, plan, footers) as writer:
            tables = [rows] if hasattr(rows, "schema") else rows
            for group in _row_groups(tables, segment_schema(place.book, leaves=leaves)):
                summary.add(group)
                writer.write_table(group, row_group_size=ROW_GROUP)
        if not summary.rows:
            raise Invalid(f"{place.name} would hold no row")
        if max(content_bytes(footers[0]), summary.words) > most_bytes(draft.written.bytes):
            raise TooLargeSegment(f"{place.name} cannot hold its rows: {over(draft.written.bytes)}")
        size, digest = draft.written
        if size > MOST_BYTES:
            raise TooLargeSegment(f"{place.name} cannot hold its rows: its file would have {size:,} bytes")
        counts = {"rows": summary.rows, "slots": summary.slots, "times": summary.times}
        manifest = msgspec.structs.replace(plan, bytes=size, sha256=digest, **counts)
        text = _encode(place, manifest)
    if announce is not None:
        announce(text)
    storage.put(place.manifest, text)
    return Segment(place, manifest)


def _encode(place: SegmentName, manifest: Manifest) -> bytes:
    """Return the content of a manifest. Raises TooLargeSegment for one that readers would refuse."""
    if len(text := encode(manifest)) > MOST_JSON:
        raise TooLargeSegment(f"{place.name} cannot hold its rows: its manifest would have {len(text):,} bytes")
    return text


def write_state(storage: Storage, state: NodeState) -> None:
    """Write a node's state. Raises TooLargeState and LakeUnavailable."""
    text = encode(state)
    if len(text) > MOST_JSON:
        raise TooLargeState(
            f"the state of {state.node} would have {len(text):,} bytes, and readers of the lake take {MOST_JSON:,}",
            hint="delete peers and callbacks that are not used, or divide the node's groups among several nodes",
        )
    storage.put(state_path(state.node, state.epoch), text)


def has_leaves(table: pa.Table) -> bool:
    """Return whether any of these rows, which are those of `events`, has a leaf in a tree."""
    column = table["tree"]
    return bool(column.null_count < len(column))


def _writer(draft: Any, plan: Manifest, footers: list[Any]) -> Any:
    """Return a writer of the rows of a segment; when it is closed, it adds the footer of its file to `footers`."""
    book, schema = plan.book, segment_schema(plan.book, leaves=plan.leaves)
    words = [column.name for column in COLUMNS[book] if column.type is ColumnType.WORD and column.name in schema.names]
    sought = [name for name in ("number", "event_at", OWN_TIME[book]) if name in schema.names]
    return parquet().ParquetWriter(
        draft,
        schema,
        compression="zstd",
        compression_level=ZSTD_LEVEL,
        use_dictionary=words,
        write_statistics=sought,
        version="2.6",
        metadata_collector=footers,
    )


def _row_groups(tables: Iterable[pa.Table], schema: pa.Schema) -> Iterator[pa.Table]:
    """Yield the rows in tables of at least `ROW_GROUP` rows each; the last may have fewer."""
    arrow = pyarrow()
    held: list[pa.Table] = []
    count = 0
    for table in tables:
        held.append(table.select(schema.names).cast(schema) if table.schema != schema else table)
        count += table.num_rows
        if count >= ROW_GROUP:
            yield arrow.concat_tables(held).unify_dictionaries()  # or those after the first would be written out
            held, count = [], 0
    if count:
        yield arrow.concat_tables(held).unify_dictionaries()  # or those after the first would be written out


class _RowSummary:
    """Summarizes rows for the manifest.

    `add` raises Invalid for rows that are out of order or outside of the segment's range.
    """

    def __init__(self, place: SegmentName) -> None:
        self._place = place
        self._last = place.after
        self.rows = self.words = 0
        self.slots: tuple[int, int] | None = None
        self.times: tuple[int, int] | None = None

    def add(self, table: pa.Table) -> None:
        first, last = _bounds(table, "number")
        if first < self._last or first <= self._place.after or last > self._place.upto:
            place = self._place
            problem = f"numbers {first} to {last} are out of order or out of ({place.after}, {place.upto}]"
            raise Invalid(f"{place.name} cannot hold its rows: {problem}")
        self._last = last
        self.rows += table.num_rows
        self.words += word_bytes(table)
        if self.rows > MOST_ROWS:
            raise Invalid(f"{self._place.name} cannot hold {self.rows:,} rows: a segment has at most {MOST_ROWS:,}")
        self.times = _union(self.times, _bounds(table, OWN_TIME[self._place.book]))
        if self._place.book in SLOTTED:
            first, last = _bounds(table, "event_at")
            self.slots = _union(self.slots, (slot_of(first), slot_of(last)))


def _bounds(table: pa.Table, column: str) -> Bounds:
    if (found := column_bounds(table[column])) is None:
        raise Invalid(f"the column {column} of some rows is empty")
    return found


def _union(one: tuple[int, int] | None, other: tuple[int, int]) -> tuple[int, int]:
    return other if one is None else (min(one[0], other[0]), max(one[1], other[1]))
