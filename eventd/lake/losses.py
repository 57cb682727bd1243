"""The losses that a node declares of its own ledgers: rows that were deleted before it shipped them.

`gaps` and the manifests of segments name each by a reason. A reason that no node writes declares no loss.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from eventd.lake.schema import Ledger

LOST: Final = "_lost"
"""The suffix of a reason, after the name of a ledger: the events of its rows were evicted before they were shipped."""
FORGOTTEN: Final = "_forgotten"
"""The suffix of a reason, after the name of a ledger whose rows were deleted before they were shipped."""


class LedgerLoss(NamedTuple):
    """A loss of rows of a ledger. Its range is one of row numbers (`by_number`) if the rows themselves were deleted.

    It is one of positions of the log if the events that the rows describe were evicted.
    """

    book: Ledger
    by_number: bool


_LOSSES: Final = {
    f"{book.value}{suffix}": LedgerLoss(book, by_number=suffix == FORGOTTEN)
    for book in Ledger
    for suffix in (LOST, FORGOTTEN)
}


def parse_loss(reason: str) -> LedgerLoss | None:
    """Return the loss of a node's own rows that a reason declares; None for another reason."""
    return _LOSSES.get(reason)
