"""Checks that a segment of the archive has the rows that its node shipped, so that the node may sign it.

Another program, such as `routerctl lake compact`, archives without the node's key. As long as the segments of the
landing exist that it replaces, the node can compare, and signs nothing that it did not write itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING

from eventd.lake.coverage import Span, choose, holes
from eventd.lake.file_tree import FileTree, LineKind, read_line
from eventd.lake.layout import ARCHIVE, LANDING, SegmentName, parse_name, parse_path, slug
from eventd.lake.listed_files import read_small
from eventd.lake.manifest import Manifest, Unreadable, decode
from eventd.lake.reader import read_segment
from eventd.lake.segment_file import BadSegment
from eventd.lake.storage import Storage
from eventd.lake.writer import Segment

if TYPE_CHECKING:
    import pyarrow as pa

Digests = Mapping[str, Collection[str]]
"""The digests that the manifests of segments may have, by the name of the segment."""


def archived_segments(storage: Storage, node: str, epoch: str) -> Iterator[SegmentName]:
    """Yield the segments of the archive of a node and epoch. Raises LakeUnavailable."""
    for entry in storage.list(ARCHIVE):
        place = parse_path(entry.path)
        if place is not None and (place.slug, place.epoch) == (slug(node), epoch) and entry.path == place.manifest:
            yield place


def verified_archives(
    storage: Storage, node: str, tree: FileTree, places: Collection[SegmentName]
) -> Iterator[tuple[SegmentName, bytes]]:
    """Yield those of these segments of the archive that have no line in the tree and the rows of segments that have
    one, each with its manifest. Raises LakeUnavailable."""
    digests, signed = defaultdict[str, set[str]](set), set[str]()
    for line in map(read_line, tree.all_lines() or ()):
        if line is not None and line.kind is LineKind.SHIP:
            digests[line.name].update(line.values)
        elif line is not None and line.kind is LineKind.ARCHIVE:
            signed.add(line.name)
    for place in places:
        text = b"" if place.name in signed else read_small(storage, [place.manifest]).get(place.manifest, b"")
        if text and is_copy(storage, node, place, text, digests):
            yield place, text


def is_copy(storage: Storage, node: str, place: SegmentName, text: bytes, digests: Digests) -> bool:
    """Return whether a segment of the archive with this manifest has the rows of segments of the landing whose
    manifests have one of these digests. Raises LakeUnavailable."""
    parts = _parts(storage, place, digests)
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


def _parts(storage: Storage, place: SegmentName, digests: Digests) -> list[Segment]:
    """Return the segments with these digests whose rows a segment of the archive has; none if some are missing."""
    names = (parse_name(name) for name in digests)
    within = [
        one
        for one in names
        if one is not None
        and (one.tree, one.ledger) == (LANDING, place.ledger)
        and place.after <= one.after <= one.upto <= place.upto
    ]
    texts = read_small(storage, [one.manifest for one in within])
    kept = [one for one in within if sha256(texts.get(one.manifest, b"")).hexdigest() in digests[one.name]]
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
