"""The progress of links, and the versions of their selections, from receipts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec
import numpy as np

from eventd.audit.arrays.columns import Columns, Numbers, Words
from eventd.lake.layout import MINUTE
from eventd.lake.manifest import Number, Time, Unreadable, decode_selection
from eventd.lake.segment_file import BadSegment

MOST_TEXTS: Final = 4
"""Maximum number of texts of one version of a selection that are kept: two of them show that it was edited."""


class LinkProgress(msgspec.Struct, array_like=True):
    """The progress of a link, from receipts of batches that no repair sent: they cover positions in (after, upto].

    Both are -1 without such receipts. `versions`: (last position, selection version) of each run of batches;
    `selections`: by version, as JSON, at most `MOST_TEXTS` different ones: of a genuine version one, or none if it is
    not known. `first_used`: by version, when the first batch was acknowledged (microseconds). `repaired`: by version,
    the last position of repairs. `acknowledged`: (position, time in microseconds), one for each minute, in order: the
    peer had acknowledged all up to the position.
    """

    group: str
    peer: str
    after: Number
    upto: Number
    versions: list[tuple[Number, Number]]
    selections: dict[Number, tuple[str, ...]]
    first_used: dict[Number, Time]
    repaired: dict[Number, Number]
    acknowledged: list[tuple[Number, Time]]


def link_progress(table: Columns, limit: int) -> Iterator[LinkProgress]:
    """Yield the progress of each link in a segment of `receipts`, without rows whose number is above `limit`.

    Raises BadSegment for a selection that cannot be read.
    """
    number, after, upto = (table.numbers(name) for name in ("number", "after", "upto"))
    version, repair = table.numbers("selector_version"), table.booleans("repair")
    selection, acked = table.words("selection"), table.numbers("acked_at")
    for (group, peer), found in table.by("group", "peer"):
        rows = found[number[found] <= limit]
        ordinary = rows[~repair[rows]]
        ordinary = ordinary[np.argsort(upto[ordinary], kind="stable")]
        again = rows[repair[rows]]
        by_version = {int(one): ordinary[version[ordinary] == one] for one in np.unique(version[ordinary])}
        yield LinkProgress(
            group,
            peer,
            int(after[ordinary].min()) if len(ordinary) else -1,
            int(upto[ordinary].max()) if len(ordinary) else -1,
            _changes(version[ordinary], upto[ordinary]),
            {one: _texts(selection.at(mine)) for one, mine in by_version.items()},
            {one: int(acked[mine].min()) for one, mine in by_version.items()},
            {int(one): int(upto[again][version[again] == one].max()) for one in np.unique(version[again])},
            _acknowledged(upto[ordinary], acked[ordinary]),
        )


def _texts(selections: Words) -> tuple[str, ...]:
    """Return some of the different texts, sorted; an empty one stands for an unknown selection.

    Raises BadSegment if one cannot be read.
    """
    found = sorted({selections.values[code] for code in np.unique(selections.codes)} - {""})
    try:
        for text in found:
            decode_selection(text)
    except Unreadable as error:
        raise BadSegment(f"its rows have a selection that {error}") from None
    return tuple(found[:MOST_TEXTS])


def _changes(version: Numbers, upto: Numbers) -> list[tuple[int, int]]:
    """Return (last position, version) of each run of batches with one version, in order."""
    if not len(version):
        return []
    ends = np.append(np.flatnonzero(version[1:] != version[:-1]), len(version) - 1)
    return [(int(upto[end]), int(version[end])) for end in ends]


def _acknowledged(upto: Numbers, acked: Numbers) -> list[tuple[int, int]]:
    """Return, for each minute in order, the last acknowledged position and the time of the last acknowledgement."""
    if not len(upto):
        return []
    minute = acked // MINUTE
    starts = np.concatenate(([0], np.flatnonzero(minute[1:] != minute[:-1]) + 1))
    ends = np.append(starts[1:], len(upto)) - 1
    return list(zip(upto[ends].tolist(), np.maximum.reduceat(acked, starts).tolist(), strict=True))
