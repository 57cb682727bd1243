"""When retention marked which segments as expired: readers have a day from then on.

The marks lie beside a node's state and not in it: the node writes its state anew all the time.
"""

from __future__ import annotations

import msgspec

from eventd.lake.layout import expiry_path
from eventd.lake.manifest import Unreadable, decode, encode
from eventd.lake.schema import SCHEMA_VERSION, Book
from eventd.lake.storage import Storage


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """Segments with numbers up to `upto` expired at the time `at` (microseconds), if no earlier mark covers them."""

    upto: int
    at: int


class Expiry(msgspec.Struct, frozen=True, kw_only=True):
    """The marks of one node and epoch by book, each list in order of number."""

    schema: int = SCHEMA_VERSION
    marks: dict[Book, tuple[Mark, ...]] = {}


def read_expiry(storage: Storage, slug: str, epoch: str) -> Expiry:
    """The marks of a node, by its slug. A file that cannot be read counts as none, so that its segments stay longer.

    Raises LakeUnavailable.
    """
    path = expiry_path(slug, epoch)
    text = storage.read_many([path]).get(path)
    try:
        return Expiry() if text is None else decode(text, Expiry)
    except Unreadable:
        return Expiry()


def write_expiry(storage: Storage, slug: str, epoch: str, expiry: Expiry) -> None:
    """Replace the marks of a node; a file without marks is removed. Raises LakeUnavailable."""
    kept = {book: marks for book, marks in expiry.marks.items() if marks}
    if kept:
        storage.put(expiry_path(slug, epoch), encode(Expiry(marks=kept)))
    else:
        storage.delete([expiry_path(slug, epoch)])
