"""Names and folders in a lake.

The name of a segment alone says which node, epoch and ledger it belongs to and which row numbers it covers.
"""

from __future__ import annotations

import hashlib
import re
from datetime import UTC, date, datetime
from typing import Final, NamedTuple

from eventd.lake.schema import Ledger
from eventd.runtime.clock import SECOND
from federation.ranges import MAX_POSITION

HEAD: Final = "eventd-lake.json"
"""The file that makes a folder a lake."""
LANDING: Final = "landing"
ARCHIVE: Final = "archive"
NODES: Final = "nodes"
ACKNOWLEDGEMENTS: Final = "acknowledgements"
"""The folder of what operators have acknowledged of the findings of audits; nodes do not use it."""
DATA: Final = ".parquet"
MANIFEST: Final = ".json"
TEMPORARY: Final = ".tmp"
"""The suffix of incomplete files, which readers ignore."""

MINUTE: Final = 60 * SECOND
"""Microseconds of a slot: both ends of a link assign an event to the same slot, by its own time."""

LARGEST: Final = MAX_POSITION
"""The largest row number, position, seq or count in a lake. Sums of up to 9,000 of them have 64 bits."""

_SLUG_CHARACTERS: Final = 40
_SEGMENT: Final = re.compile(
    rf"(?P<tree>{LANDING}|{ARCHIVE})/(?P<book>[a-z]+)/dt=(?P<day>\d{{4}}-\d\d-\d\d)/node=(?P<slug>[a-z0-9-]+)/"
    r"(?P=slug)-(?P<epoch>[A-Za-z0-9_]+)-(?P<after>\d{20})-(?P<upto>\d{20})(?P<suffix>\.parquet|\.json)"
)
_STATE: Final = re.compile(rf"{NODES}/(?P<slug>[a-z0-9-]+)/(?P<epoch>[A-Za-z0-9_]+)\.json")


class LedgerKey(NamedTuple):
    """One ledger of one node in one epoch, within which row numbers are valid."""

    node: str
    epoch: str
    book: Ledger

    @property
    def key(self) -> str:
        """The key as one text, as offsets and checkpoints of an audit's stream name it."""
        return f"{self.node}/{self.epoch}/{self.book.value}"


class LedgerSlug(NamedTuple):
    """One ledger of one node in one epoch, as the names of segments give it: with the node's slug, not its name."""

    slug: str
    epoch: str
    book: Ledger


class SegmentName(NamedTuple):
    """The name of a segment, parsed. It covers the row numbers in (after, upto] of a ledger. `day` is YYYY-MM-DD."""

    tree: str
    book: Ledger
    day: str
    slug: str
    epoch: str
    after: int
    upto: int

    @property
    def name(self) -> str:
        """The segment's name: its path in the lake without the extension."""
        folder = f"{self.tree}/{self.book.value}/dt={self.day}/node={self.slug}"
        return f"{folder}/{self.slug}-{self.epoch}-{self.after:020d}-{self.upto:020d}"

    @property
    def data(self) -> str:
        """The path of the Parquet file."""
        return self.name + DATA

    @property
    def manifest(self) -> str:
        """The path of the manifest."""
        return self.name + MANIFEST

    @property
    def ledger(self) -> LedgerSlug:
        """The ledger that the segment belongs to."""
        return LedgerSlug(self.slug, self.epoch, self.book)


def slug(node: str) -> str:
    """Return a node's name for folders: lower-case ASCII, digits and dashes, unique for each name."""
    plain = re.sub(r"[^a-z0-9]+", "-", node.lower()).strip("-")[:_SLUG_CHARACTERS].rstrip("-")
    mark = hashlib.sha256(node.encode()).hexdigest()[:8]
    return f"{plain}-{mark}" if plain else mark


def day_of(micros: int) -> str:
    """Return the UTC day of a time in microseconds as YYYY-MM-DD."""
    return datetime.fromtimestamp(micros // SECOND, UTC).strftime("%Y-%m-%d")


def slot_of(micros: int) -> int:
    """Return the minute since 1970 that contains a time in microseconds."""
    return micros // MINUTE


def landing(book: Ledger, node: str, epoch: str, after: int, upto: int, *, at: int) -> SegmentName:
    """Return the name of a new segment whose first row has the time `at` (microseconds)."""
    return SegmentName(LANDING, book, day_of(at), slug(node), epoch, after, upto)


def archived(book: Ledger, node: str, epoch: str, after: int, upto: int, *, day: str) -> SegmentName:
    """Return the name of an archived segment that replaces others of one day."""
    return SegmentName(ARCHIVE, book, day, slug(node), epoch, after, upto)


def parse_path(path: str) -> SegmentName | None:
    """Return the segment's name from the path of its Parquet file or manifest; None for the path of another file."""
    match = _SEGMENT.fullmatch(path)
    if match is None or match["book"] not in list(Ledger):
        return None
    book, after, upto = Ledger(match["book"]), int(match["after"]), int(match["upto"])
    if not after <= upto <= LARGEST or not _is_date(match["day"]):
        return None
    return SegmentName(match["tree"], book, match["day"], match["slug"], match["epoch"], after, upto)


def _is_date(day: str) -> bool:
    """Return whether a text of the form YYYY-MM-DD is a date: Spark reads no folder of the ledger if one is not."""
    try:
        date.fromisoformat(day)
    except ValueError:
        return False
    return True


def parse_name(name: str) -> SegmentName | None:
    """Parse the name of a segment, its path without the extension; None if it is not a valid one."""
    return parse_path(name + DATA)


def state_path(node: str, epoch: str) -> str:
    """Return the path of a node's state (how far its ledgers of an epoch are shipped), given the node's name."""
    return f"{NODES}/{slug(node)}/{epoch}.json"


def expiry_path(slug: str, epoch: str) -> str:
    """Return the path of a node's marks (when retention marked segments as expired), given the node's slug.

    A state cannot have this name: an epoch holds no dash.
    """
    return f"{NODES}/{slug}/{epoch}-expired.json"


def is_state(path: str) -> bool:
    """Return whether a path is that of the state of any node and epoch."""
    return _STATE.fullmatch(path) is not None
