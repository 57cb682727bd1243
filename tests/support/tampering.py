"""Changes the ledgers of a lake as somebody would who covers it up: files and manifests fit each other again."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa

from eventd.lake.reader import read_segment, survey
from eventd.lake.schema import Ledger
from eventd.lake.storage import Storage
from eventd.lake.writer import Segment, write_segment


def segments_of(storage: Storage, node: str, book: Ledger) -> list[Segment]:
    """Return the segments of a node's ledger, in order."""
    found = [one for one in survey(storage).segments if (one.manifest.node, one.place.book) == (node, book)]
    return sorted(found, key=lambda one: one.place.after)


def rewrite(storage: Storage, segment: Segment, rows: pa.Table) -> None:
    """Replace the rows of a segment, of which some must be left."""
    manifest = segment.manifest
    write_segment(storage, segment.place, rows, node=manifest.node, now=manifest.written_at)


def erase(
    storage: Storage, node: str, book: Ledger, wanted: Callable[[dict[str, object]], bool]
) -> list[dict[str, object]]:
    """Remove the wanted rows from a node's ledger, and return them."""
    return list(_erased(storage, node, book, wanted))


def _erased(
    storage: Storage, node: str, book: Ledger, wanted: Callable[[dict[str, object]], bool]
) -> Iterator[dict[str, object]]:
    for segment in segments_of(storage, node, book):
        table = read_segment(storage, segment)
        chosen = [wanted(row) for row in table.to_pylist()]
        if any(chosen):
            yield from table.filter(pa.array(chosen)).to_pylist()
            rewrite(storage, segment, table.filter(pa.array([not one for one in chosen])))
