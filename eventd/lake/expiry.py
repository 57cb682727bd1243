"""Records when retention marked segments as expired: readers may use them for one more day.

The marks are stored beside a node's state, not in it, because the node rewrites its state regularly.
"""

from __future__ import annotations

import msgspec

from eventd.lake.layout import expiry_path
from eventd.lake.listed_files import read_small
from eventd.lake.manifest import Unreadable, decode, encode
from eventd.lake.schema import SCHEMA_VERSION, Ledger
from eventd.lake.storage import Storage


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """A mark: segments up to row `upto` were marked as expired at `at` (microseconds), except those that a mark with a
    lower `upto` covers."""

    upto: int
    at: int


class Expiry(msgspec.Struct, frozen=True, kw_only=True):
    """The marks of one node and epoch, by ledger, each list ordered by `upto`."""

    schema: int = SCHEMA_VERSION
    marks: dict[Ledger, tuple[Mark, ...]] = {}


def read_expiry(storage: Storage, slug: str, epoch: str) -> Expiry:
    """Read the marks of one epoch of a node, given the node's slug. Raises LakeUnavailable.

    A missing, unreadable or too large file counts as no marks, so that the segments stay longer.
    """
    path = expiry_path(slug, epoch)
    text = read_small(storage, [path]).get(path)
    try:
        return Expiry() if text is None else decode(text, Expiry)
    except Unreadable:
        return Expiry()


def write_expiry(storage: Storage, slug: str, epoch: str, expiry: Expiry) -> None:
    """Replace the marks of one epoch of a node; without marks, the file is deleted. Raises LakeUnavailable."""
    kept = {book: marks for book, marks in expiry.marks.items() if marks}
    if kept:
        storage.put(expiry_path(slug, epoch), encode(Expiry(marks=kept)))
    else:
        storage.delete([expiry_path(slug, epoch)])
