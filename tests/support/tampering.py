"""Changes the ledgers of a lake as somebody would who covers it up: files and manifests fit each other again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import pyarrow as pa
from msgspec.structs import replace

from eventd.lake.manifest import NodeState
from eventd.lake.reader import survey
from eventd.lake.schema import Ledger
from eventd.lake.segment_reader import read_segment
from eventd.lake.storage import Storage
from eventd.lake.writer import Segment, write_segment, write_state


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


def edit(
    storage: Storage, node: str, book: Ledger, wanted: Callable[[dict[str, object]], bool], **values: object
) -> None:
    """Give columns of the wanted rows of a node's ledger other values; there must be such rows."""
    met = 0
    for segment in segments_of(storage, node, book):
        table = read_segment(storage, segment)
        rows = table.to_pylist()
        chosen = [wanted(row) for row in rows]
        met += sum(chosen)
        if any(chosen):
            edited = [row | values if one else row for row, one in zip(rows, chosen, strict=True)]
            rewrite(storage, segment, pa.Table.from_pylist(edited, table.schema))
    assert met, f"no row of {book} of {node} is wanted"


def change_state(storage: Storage, node: str, **fields: object) -> NodeState:
    """Replace fields of the latest state of a node, and return it as it is now."""
    states = [one for one in survey(storage).nodes if one.node == node]
    state = replace(max(states, key=lambda one: one.began_at), **fields)
    write_state(storage, state)
    return state


class CutSegment(NamedTuple):
    """A removed segment, and whether events entered the federation at the node in it."""

    segment: Segment
    own: bool


def cut_ledger(storage: Storage, node: str, book: Ledger) -> CutSegment:
    """Remove the last segment of a node's ledger, let its state promise no more than the rest, and return the segment.

    For `events`, the state also says that the log and its groups end there.
    """
    *kept, last = segments_of(storage, node, book)
    own = book is Ledger.EVENTS and any(row["own"] for row in read_segment(storage, last, ["own"]).to_pylist())
    storage.delete([last.place.manifest, last.place.data])
    state = change_state(storage, node)
    upto = last.place.after
    fields: dict[str, object] = {
        "segments": {**state.segments, book: replace(state.segments[book], upto=upto)},
        "books": {**state.books, book: upto},
    }
    if book is Ledger.EVENTS:
        seqs = [row["seq"] for one in kept for row in read_segment(storage, one, ["seq"]).to_pylist()]
        groups = tuple(replace(group, last_seq=max(seqs, default=0)) for group in state.groups)
        fields |= {"head": upto, "groups": groups}
    change_state(storage, node, **fields)
    return CutSegment(last, own)


def withdraw(storage: Storage, node: str, book: Ledger, segments: int) -> tuple[str, int]:
    """Delete the first segments of a ledger, with a state that begins after them; return its key and the last row."""
    gone = segments_of(storage, node, book)[:segments]
    storage.delete(path for one in gone for path in (one.place.manifest, one.place.data))
    (state,) = (one for one in survey(storage).nodes if one.node == node)
    upto = gone[-1].place.upto
    left = replace(state.segments[book], after=upto)
    change_state(storage, node, segments={**state.segments, book: left})
    return f"{node}/{state.epoch}/{book.value}", upto
