"""The lines of a tree of files: what they say of segments, and their roots."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from itertools import islice
from typing import NamedTuple

from eventd.lake.file_tree import LineKind, read_line
from eventd.lake.layout import SegmentName, parse_name
from federation.history.checkpoints import TREE_ID
from federation.history.merkle import CompactRange, hash_leaf


class TreeLines(NamedTuple):
    """The lines of a tree, which has millions after a year. `signed`: how many of them its checkpoint covers."""

    texts: Sequence[str]
    signed: int

    def numbers(self, kind: LineKind) -> dict[str, int]:
        """Return by ledger the largest number in the signed lines of this kind."""
        found: dict[str, int] = {}
        for line in map(read_line, (text for text in self.texts[: self.signed] if text.startswith(kind))):
            if line is not None:
                found[line.name] = max(int(line.values[0]), found.get(line.name, 0))
        return found

    def before(self) -> Iterator[tuple[str, int]]:
        """Yield the trees that the node had signed before, and how many lines of each."""
        for line in map(read_line, (text for text in self.texts[: self.signed] if text.startswith(LineKind.AFTER))):
            if line is not None and TREE_ID.fullmatch(line.name):
                yield line.name, int(line.values[0])

    def digests(self, names: Collection[str]) -> tuple[Mapping[str, set[str]], Mapping[str, set[str]]]:
        """Return by name of the segment the digests that its manifest may have, of those of these names with lines.

        First those in signed lines, then those that no checkpoint covers yet: anyone may append such a line.
        """
        signed, pending = defaultdict[str, set[str]](set), defaultdict[str, set[str]](set)
        for at, line in enumerate(map(read_line, self.texts)):
            if line is not None and line.name in names:
                (signed if at < self.signed else pending)[line.name].update(line.values)
        return signed, pending

    def shipped(self) -> Iterator[SegmentName]:
        """Yield the segments that the signed lines say were shipped."""
        for text in islice(self.texts, self.signed):
            line = read_line(text) if text.startswith(LineKind.SHIP) else None
            if line is not None and line.kind is LineKind.SHIP and (place := parse_name(line.name)) is not None:
                yield place


def roots_at(texts: Sequence[str], sizes: Set[int]) -> dict[int, bytes]:
    """Return the roots of the first lines at these sizes, as far as there are so many. Each line is hashed once."""
    hashes, found = CompactRange(), dict[int, bytes]()
    for text in islice(texts, max(sizes, default=0)):
        if hashes.size in sizes:
            found[hashes.size] = hashes.root()
        hashes.append(hash_leaf(text.encode()))
    if hashes.size in sizes:
        found[hashes.size] = hashes.root()
    return found
