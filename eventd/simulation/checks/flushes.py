"""V3 on Postgres: what is acknowledged as durable was committed by a transaction that waited for the disk, or flushed.

A commit that waits for the disk flushes all commits before it. No server loses its power here: this is what shows that
nothing would be lost.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Final

from eventd.simulation.checks.tables import StoredTables
from eventd.simulation.checks.violation import Violation
from eventd.simulation.world.journal import Asked, HeadCommit, Journal

_DURABLE: Final = "fsync"


class Flushes:
    """What the commits of one node's log have flushed, by position."""

    def __init__(self, commits: Sequence[HeadCommit]) -> None:
        flushed = 0
        self._positions: list[int] = []  # rising
        self._times: list[float] = []  # when everything below each position was flushed
        for commit in commits:
            if commit.is_durable and commit.next_position > flushed:
                flushed = commit.next_position
                self._positions.append(flushed)
                self._times.append(commit.at)

    def is_flushed(self, position: int, at: float) -> bool:
        """Return whether a record was flushed at a time."""
        index = bisect_left(self._positions, position + 1)
        return index < len(self._times) and self._times[index] <= at


def flush_violations(journal: Journal, tables: StoredTables, host: str, begin: float) -> Iterator[Violation]:
    """Yield what a node has acknowledged as durable before it was flushed."""
    flushes = Flushes(journal.commits.get(host, []))
    for asked in journal.asked:
        if asked.host != host or not asked.is_good:
            continue
        for what, position in _durable_records(asked, tables):
            if not flushes.is_flushed(position, asked.answered_at):
                detail = f"{what} at position {position} was acknowledged before it was flushed"
                yield Violation("V3", host, detail, asked.answered_at - begin)
                return


def _durable_records(asked: Asked, tables: StoredTables) -> Iterator[tuple[str, int]]:
    """Yield the records that an answer acknowledges as durable, each with its position."""
    if asked.kind == "emit":
        for result in asked.answer["results"]:
            if result["id"] in tables.first_positions:
                yield result["id"], tables.first_positions[result["id"]]
    elif asked.kind == "write" and asked.question["config"]["durability"] == _DURABLE:
        topic = asked.path.rpartition("/")[2]
        for seq in asked.answer["seqs"]:
            if (position := tables.position(topic, seq)) is not None:
                yield f"seq {seq} of {topic}", position
