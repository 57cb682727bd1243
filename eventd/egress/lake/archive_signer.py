"""Signs segments of the archive during one tidying of a lake: only those with the rows that their node shipped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from eventd.egress.lake.coverage import LakeCoverage
from eventd.egress.lake.state_signer import StateSigner
from eventd.lake.archive_checks import LandingAuthor, SignedLines, archived_segments, verified_archives
from eventd.lake.layout import SegmentName
from eventd.lake.storage import Storage


class ArchiveSigner:
    """Compares segments with the lines of their trees, which it reads once: the lines of a year take seconds.

    `verified`: the names of segments of the archive that are compared already, which outlasts the tidying.
    """

    def __init__(self, storage: Storage, signer: StateSigner, known: LakeCoverage, verified: set[str]) -> None:
        self._storage = storage
        self._signer = signer
        self._known = known
        self._verified = verified
        self._lines: dict[tuple[str, str], SignedLines | None] = {}

    def author(self, place: SegmentName, node: str, manifest: bytes) -> LandingAuthor:
        """Return who wrote a segment of the landing with this manifest. Raises LakeUnavailable."""
        lines = self._lines_of(node, place.epoch)
        return LandingAuthor.UNSIGNED if lines is None else lines.author(place, manifest)

    def announce(self, place: SegmentName, node: str, manifest: bytes) -> None:
        """Sign a segment of the archive that is about to get this manifest. Raises LakeUnavailable."""
        self._signer.archived(place, node, manifest, self._known)
        self._verified.add(place.name)

    def verify(self, nodes: Iterable[str]) -> Iterator[SegmentName]:
        """Sign the segments of the archive that another program wrote, if they have the rows of signed ones.

        Yields each that is compared; it is not compared again. Raises LakeUnavailable.
        """
        for node in nodes:
            there = archived_segments(self._storage, node, self._known.epoch)
            new = [place for place in there if place.name not in self._verified]
            lines = self._lines_of(node, self._known.epoch) if new else None
            for place, manifest in () if lines is None else verified_archives(self._storage, node, lines, new):
                if manifest:
                    self.announce(place, node, manifest)
                self._verified.add(place.name)  # not before, or an outage would leave it unsigned
                yield place

    def _lines_of(self, node: str, epoch: str) -> SignedLines | None:
        if (node, epoch) not in self._lines:
            self._lines[node, epoch] = self._signer.signed_lines(node, epoch, self._known)
        return self._lines[node, epoch]
