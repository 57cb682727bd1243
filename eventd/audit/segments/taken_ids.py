"""The events that a peer refused because it holds another event with the same id, from another source."""

from __future__ import annotations

from typing import Final

import msgspec

from eventd.audit.arrays.columns import Columns

TAKEN_COLUMNS: Final = ("group", "peer", "source", "id", "outcome", "error")
"""The columns of `deliveries` that show these events."""
_REASON: Final = "id_conflict"
MOST_TAKEN: Final = 1_000
"""Maximum number of these events that are kept of a segment. All rows of a lake may name one."""


class TakenId(msgspec.Struct, frozen=True, array_like=True, order=True):
    """An event of `source` that `peer` refused: it has the id from another source."""

    group: str
    id: str
    source: str
    peer: str


def find_taken_ids(table: Columns) -> list[TakenId]:
    """Return these events of a segment of `deliveries`, at most `MOST_TAKEN`."""
    rows = table.words("error").where(_REASON.__eq__) & table.words("outcome").where("refused".__eq__)
    if not rows.any():
        return []
    columns = (table.some(name, rows) for name in ("group", "id", "source", "peer"))
    return sorted({TakenId(*row) for row in zip(*columns, strict=True)})[:MOST_TAKEN]
