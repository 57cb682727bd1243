"""A lake that grows while it is read: shipped segments appear in steps."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from eventd.lake.layout import HEAD, state_path
from eventd.lake.manifest import NodeState, SegmentRange, encode
from eventd.lake.reader import Survey, survey
from eventd.lake.schema import Ledger
from eventd.lake.storage import connect
from eventd.lake.writer import Segment


class GrowingLake:
    """A copy of the lake `whole`, empty at first. Segments appear before the states that promise them."""

    def __init__(self, whole: Path, lake: Path) -> None:
        self.whole = whole
        self.lake = lake
        self.survey: Survey = survey(connect(str(whole)))
        lake.mkdir()
        shutil.copy(whole / HEAD, lake / HEAD)

    def grow_until(self, time: int) -> None:
        """Add everything that was recorded before `time`, and states that promise no more than that."""
        early = [one for one in self.survey.segments if one.manifest.times and one.manifest.times[0] < time]
        self._hand_over(early)
        for state in self.survey.nodes:
            # Later records are not shipped yet, so the positions of links are unknown too.
            self._say(replace(_cut(state, early), complete_until=time, as_of=time + 1))

    def grow(self, *, without: Sequence[Segment] = ()) -> None:
        """Add everything except some segments; the states still promise that nothing is missing."""
        there = [one for one in self.survey.segments if one not in without]
        self._hand_over(there)
        for state in self.survey.nodes:
            self._say(_cut(state, there))

    def late(self, book: Ledger, node: str, time: int) -> list[Segment]:
        """Return the segments of a node's ledger table that begin after `time`."""
        mine = [one for one in self.survey.segments if (one.place.book, one.manifest.node) == (book, node)]
        return [one for one in mine if one.manifest.times and one.manifest.times[0] > time]

    def _hand_over(self, segments: Sequence[Segment]) -> None:
        for place, _ in segments:
            for path in (place.data, place.manifest):
                (self.lake / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(self.whole / path, self.lake / path)

    def _say(self, state: NodeState) -> None:
        connect(str(self.lake)).put(state_path(state.node, state.epoch), encode(state))


def _cut(state: NodeState, segments: Sequence[Segment]) -> NodeState:
    """Return the state with the tables that are present, and the head that they reach; seqs of groups are not known."""
    ends: dict[Ledger, int] = {}
    for place, manifest in segments:
        if (manifest.node, manifest.epoch) == (state.node, state.epoch):
            ends[place.book] = max(place.upto, ends.get(place.book, 0))
    reaches = {
        book: SegmentRange(after=reach.after, upto=min(reach.upto, ends[book]))
        for book, reach in state.segments.items()
        if book in ends
    }
    groups = tuple(replace(group, last_seq=-1) for group in state.groups)
    head = min(state.head, ends.get(Ledger.EVENTS, 0))
    return replace(state, head=head, books=ends, segments=reaches, groups=groups)
