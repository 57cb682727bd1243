"""What audits of this process have made of segments: hundreds of tests audit lakes that differ in a few segments only.

An audit reads each segment of a lake that it does not know. What it makes of one depends on the bytes of its file and
on its job, which has the manifest and all that an audit asks of the segment, and on nothing else. The sizes of its
pages, which are measured whenever rows of it are read, depend on the bytes alone.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple
from unittest.mock import patch

import msgspec

from eventd.audit.engine import state
from eventd.audit.receipts.receipt_terms import ReceiptTerms
from eventd.audit.segments import segment_jobs
from eventd.audit.segments.segment_jobs import SegmentJob, TaskResult
from eventd.errors import NotFound
from eventd.lake import segment_file
from eventd.lake.file_sizes import TooLargeFile
from eventd.lake.storage import FileReader

if TYPE_CHECKING:
    import pyarrow as pa

_MOST = 4000
_make_cells = segment_jobs._cells
_measure = segment_file.with_dictionaries


class _KnownCells(NamedTuple):
    cells: pa.Table
    result: TaskResult


known: dict[bytes, _KnownCells] = {}
"""By the segment's digest and its job. A test that changes how cells are made takes an empty one for itself."""
_measured: dict[tuple[bytes, int, int, bool], list[int]] = {}


class _OneKey:
    """Gives each audit the same key for the hashes of its rows, which would otherwise be other ones in each audit."""

    def token(self, length: int) -> bytes:
        return b"k" * length


@contextlib.contextmanager
def knowing_cells() -> Iterator[None]:
    """Take the cells of a segment from an earlier audit of this process that read the same segment for the same job."""
    with (
        patch.object(segment_jobs, "_cells", _cells),
        patch.object(segment_file, "with_dictionaries", _with_dictionaries),
        patch.object(state, "SYSTEM", _OneKey()),
    ):
        yield


def _cells(lake: FileReader, job: SegmentJob, terms: ReceiptTerms, result: TaskResult) -> pa.Table:
    try:
        data = lake.read_within(job.segment.place.data, job.manifest.bytes)
    except (NotFound, TooLargeFile):
        return _make_cells(lake, job, terms, result)
    key = hashlib.sha256(data).digest() + msgspec.msgpack.encode(job)
    made = known.get(key)
    if made is None:
        own = TaskResult()
        made = _KnownCells(_make_cells(lake, job, terms, own), own)
        if len(known) == _MOST:
            known.clear()
        known[key] = made
    for name in TaskResult.__struct_fields__:
        if isinstance(found := getattr(result, name), dict):
            found.update(getattr(made.result, name))
    return made.cells


def _with_dictionaries(data: bytes, columns: int, rows: int, *, nested: bool = False) -> list[int]:
    name = (hashlib.sha256(data).digest(), columns, rows, nested)
    if name not in _measured:
        _measured[name] = _measure(data, columns, rows, nested=nested)
    return _measured[name]
