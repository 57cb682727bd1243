"""Where things lie in a lake, and how they are called. A segment's name alone says whose it is and what it covers."""

from __future__ import annotations

import hashlib
import re
from datetime import UTC, datetime
from typing import Final, NamedTuple

from eventd.lake.schema import Book
from eventd.runtime.clock import SECOND

HEAD: Final = "eventd-lake.json"
"""The file that makes a folder a lake."""
LANDING: Final = "landing"
ARCHIVE: Final = "archive"
NODES: Final = "nodes"
DATA: Final = ".parquet"
MANIFEST: Final = ".json"
TEMPORARY: Final = ".tmp"
"""How the name of a file ends that is not complete yet. Nobody reads it."""

MINUTE: Final = 60 * SECOND
"""Microseconds of a slot: both ends of a link put an event into the same one, by its own time."""

_SLUG_CHARACTERS: Final = 40
_SEGMENT: Final = re.compile(
    rf"(?P<tree>{LANDING}|{ARCHIVE})/(?P<book>[a-z]+)/dt=(?P<day>\d{{4}}-\d\d-\d\d)/node=(?P<slug>[a-z0-9-]+)/"
    r"(?P=slug)-(?P<epoch>[A-Za-z0-9_]+)-(?P<after>\d{20})-(?P<upto>\d{20})(?P<suffix>\.parquet|\.json)"
)
_STATE: Final = re.compile(rf"{NODES}/(?P<slug>[a-z0-9-]+)/(?P<epoch>[A-Za-z0-9_]+)\.json")


class Place(NamedTuple):
    """What a segment is called, taken apart. It covers the numbers in (after, upto] of a book. `day`: YYYY-MM-DD."""

    tree: str
    book: Book
    day: str
    slug: str
    epoch: str
    after: int
    upto: int

    @property
    def name(self) -> str:
        """The segment's name: its path in the lake without the ending."""
        folder = f"{self.tree}/{self.book.value}/dt={self.day}/node={self.slug}"
        return f"{folder}/{self.slug}-{self.epoch}-{self.after:020d}-{self.upto:020d}"

    @property
    def data(self) -> str:
        """Path of the Parquet file."""
        return self.name + DATA

    @property
    def manifest(self) -> str:
        """Path of the manifest."""
        return self.name + MANIFEST


def slug(node: str) -> str:
    """A node's name for folders: lower-case ASCII, digits and dashes. Two names never share one."""
    plain = re.sub(r"[^a-z0-9]+", "-", node.lower()).strip("-")[:_SLUG_CHARACTERS].rstrip("-")
    mark = hashlib.sha256(node.encode()).hexdigest()[:8]
    return f"{plain}-{mark}" if plain else mark


def day_of(micros: int) -> str:
    """The UTC day of a time, as folders are called: YYYY-MM-DD."""
    return datetime.fromtimestamp(micros // SECOND, UTC).strftime("%Y-%m-%d")


def slot_of(micros: int) -> int:
    """The minute since 1970 that a time lies in."""
    return micros // MINUTE


def landing(book: Book, node: str, epoch: str, after: int, upto: int, *, at: int) -> Place:
    """The place of a new segment whose first row is of the time `at` (microseconds)."""
    return Place(LANDING, book, day_of(at), slug(node), epoch, after, upto)


def archived(book: Book, node: str, epoch: str, after: int, upto: int, *, day: str) -> Place:
    """The place of the segment that takes the place of others of one day."""
    return Place(ARCHIVE, book, day, slug(node), epoch, after, upto)


def parse_place(path: str) -> Place | None:
    """The place of a segment's file or manifest, by its path in the lake; None for any other file."""
    match = _SEGMENT.fullmatch(path)
    if match is None or match["book"] not in list(Book):
        return None
    book, after, upto = Book(match["book"]), int(match["after"]), int(match["upto"])
    return Place(match["tree"], book, match["day"], match["slug"], match["epoch"], after, upto)


def parse_name(name: str) -> Place | None:
    """The place of a segment by its name, which is its path without the ending."""
    return parse_place(name + DATA)


def state_path(node: str, epoch: str) -> str:
    """Path of the small file in which a node says how far its books are."""
    return f"{NODES}/{slug(node)}/{epoch}.json"


def expiry_path(slug: str, epoch: str) -> str:
    """Path of the file with the times at which retention marked a node's segments as expired; no state is named so."""
    return f"{NODES}/{slug}/{epoch}-expired.json"


def is_state(path: str) -> bool:
    """Whether a path is that of a node's state."""
    return _STATE.fullmatch(path) is not None
