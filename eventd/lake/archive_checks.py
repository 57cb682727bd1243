"""Checks that a segment of the archive has the rows that its node shipped, so that the node may sign it.

Another program, such as `routerctl lake compact`, archives without the node's key. As long as the segments of the
landing exist that it replaces, the node can compare, and signs nothing that it did not write itself.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from enum import Enum
from hashlib import sha256
from typing import TYPE_CHECKING

from eventd.lake.coverage import Span, choose, holes
from eventd.lake.file_tree import LineKind, read_line
from eventd.lake.layout import ARCHIVE, LANDING, LedgerSlug, SegmentName, parse_name, parse_path, slug
from eventd.lake.listed_files import read_small
from eventd.lake.manifest import Manifest, Unreadable, decode
from eventd.lake.segment_file import BadSegment
from eventd.lake.segment_reader import read_segment
from eventd.lake.storage import Storage
from eventd.lake.writer import Segment

if TYPE_CHECKING:
    import pyarrow as pa


class LandingAuthor(Enum):
    """Who wrote a segment of the landing. `UNSIGNED`: the node signs nothing of it, such as one that is older than its
    tree; `FOREIGN`: another program, as far as the node signs what it writes itself."""

    SIGNED = "signed"
    UNSIGNED = "unsigned"
    FOREIGN = "foreign"


class SignedLines:
    """The lines of a tree, by segment. `lines` is None if those in the lake are not the ones that the node added.

    `archives`: the names of the segments of the archive that have a line.
    """

    def __init__(self, lines: Iterable[str] | None) -> None:
        self.archives = set[str]()
        self._digests: dict[str, tuple[str, ...]] = {}
        self._begins: dict[str, int] = {}
        self._by_ledger = defaultdict[LedgerSlug, list[tuple[int, str]]](list)
        for line in map(read_line, lines or ()):
            if line is None:
                continue
            if line.kind is LineKind.SHIP and (place := parse_name(line.name)) is not None:
                if line.name not in self._digests and place.tree == LANDING:
                    self._by_ledger[place.ledger].append((place.after, line.name))
                self._digests[line.name] = (*self._digests.get(line.name, ()), *line.values)
            elif line.kind is LineKind.ARCHIVE:
                self.archives.add(line.name)
            elif line.kind is LineKind.BEGIN:
                self._begins[line.name] = int(line.values[0])
        for names in self._by_ledger.values():
            names.sort()

    def is_older(self, place: SegmentName) -> bool:
        """Return whether a segment is older than the tree, so that it has no line."""
        return place.upto <= self._begins.get(place.book.value, 0)

    def is_shipped(self, place: SegmentName, manifest: bytes) -> bool:
        """Return whether the node has shipped this segment with this manifest."""
        return sha256(manifest).hexdigest() in self._digests.get(place.name, ())

    def author(self, place: SegmentName, manifest: bytes) -> LandingAuthor:
        """Return who wrote a segment of the landing with this manifest."""
        if self.is_shipped(place, manifest):
            return LandingAuthor.SIGNED
        return LandingAuthor.UNSIGNED if self.is_older(place) else LandingAuthor.FOREIGN

    def within(self, place: SegmentName) -> list[SegmentName]:
        """Return the segments with lines whose rows are in the range of this one."""
        names = self._by_ledger.get(place.ledger, [])
        first, last = (bisect_left(names, (number, "")) for number in (place.after, place.upto))
        found = (parse_name(name) for _, name in names[first:last])
        return [one for one in found if one is not None and one.upto <= place.upto]


def archived_segments(storage: Storage, node: str, epoch: str) -> Iterator[SegmentName]:
    """Yield the segments of the archive of a node and epoch. Raises LakeUnavailable."""
    for entry in storage.list(ARCHIVE):
        place = parse_path(entry.path)
        if place is not None and (place.slug, place.epoch) == (slug(node), epoch) and entry.path == place.manifest:
            yield place


def verified_archives(
    storage: Storage, node: str, lines: SignedLines, places: Collection[SegmentName]
) -> Iterator[tuple[SegmentName, bytes]]:
    """Yield each of these segments of the archive, once it is compared. Raises LakeUnavailable.

    With it comes its manifest if it has no line in the tree and the rows of segments that have one; otherwise nothing.
    """
    for place in places:
        is_known = place.name in lines.archives or lines.is_older(place)
        text = b"" if is_known else read_small(storage, [place.manifest]).get(place.manifest, b"")
        yield place, text if text and is_copy(storage, node, place, text, lines) else b""


def is_copy(storage: Storage, node: str, place: SegmentName, text: bytes, lines: SignedLines) -> bool:
    """Return whether a segment of the archive with this manifest has the rows of segments of the landing whose
    manifests have these lines. Raises LakeUnavailable."""
    parts = _parts(storage, place, lines)
    try:
        whole = decode(text, Manifest)
        if not parts or not _describes(whole, node, place, parts):
            return False
        rows, begin = read_segment(storage, Segment(place, whole)), 0
        for part in parts:
            own = read_segment(storage, part)
            if not _equal(rows.slice(begin, own.num_rows), own):
                return False
            begin += own.num_rows
    except (Unreadable, BadSegment):
        return False
    return begin == int(rows.num_rows)


def _parts(storage: Storage, place: SegmentName, lines: SignedLines) -> list[Segment]:
    """Return the segments with lines whose rows a segment of the archive has; none if some are missing."""
    within = lines.within(place)
    texts = read_small(storage, [one.manifest for one in within])
    kept = [one for one in within if lines.is_shipped(one, texts.get(one.manifest, b""))]
    chosen = choose(kept)
    if holes(chosen, Span(place.after, place.upto)):
        return []
    return [Segment(one, decode(texts[one.manifest], Manifest)) for one in chosen]


def _describes(whole: Manifest, node: str, place: SegmentName, parts: Sequence[Segment]) -> bool:
    """Return whether a manifest says of its segment what those of its parts say."""
    manifests = [one.manifest for one in parts]
    return (
        (whole.book, whole.node, whole.epoch, whole.after, whole.upto)
        == (place.book, node, place.epoch, place.after, place.upto)
        and whole.payloads == any(one.payloads for one in manifests)
        and whole.leaves == any(one.leaves for one in manifests)
        and whole.lost == tuple(lost for one in manifests for lost in one.lost)
        and {*whole.replaces} <= {one.place.name for one in parts}
    )


def _equal(one: pa.Table, other: pa.Table) -> bool:
    """Return whether two tables have the same rows, whatever the dictionaries of their columns."""
    from eventd.lake.extra import pyarrow

    arrow = pyarrow()
    if one.column_names != other.column_names or one.num_rows != other.num_rows:
        return False
    for name in one.column_names:
        first, second = one[name], other[name]
        if arrow.types.is_dictionary(first.type):
            first, second = first.cast(first.type.value_type), second.cast(second.type.value_type)
        if not first.equals(second):
            return False
    return True
