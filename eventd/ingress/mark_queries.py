"""Which nodes have asked for their mark: a batch that continues an unknown link is taken only after that."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from eventd.runtime.clock import Clock, StartTime
from federation.errors import Conflict
from federation.ranges import Mark
from federation.wire import BatchHeader

MOST_ASKED: Final = 4096
"""How many undeclared nodes are remembered as having asked for their mark."""


class LinkForgotten(Conflict):
    """A batch continues from a position of a link that is unknown here, and its sender has not asked for its mark.

    On the code `range_ahead` a sender asks for its mark, and so it learns which events this node lacks.
    """

    code = "range_ahead"

    def __init__(self, header: BatchHeader) -> None:
        super().__init__(
            f"this batch of epoch {header.range.epoch} was not signed after a query for the mark of the present epoch;"
            " ask for the mark, then send again"
        )


class MarkQueries:
    """The nodes that have asked for their mark since the group began to be served, which is when this is created.

    Earlier queries do not count: a restored database has lost nonces. A captured query and a captured batch together
    would give the link a mark beyond the lost events, and the sender would never send these again. For the same reason,
    a batch that was signed before the latest query does not count as sent after it: it may be captured, too.
    """

    def __init__(self, clock: Clock) -> None:
        self._begun = StartTime(clock)
        self._asked: dict[str, int] = {}  # by node, when its latest query was signed; most recent last

    def remember(self, node: str, created: int, peers: Collection[str]) -> None:
        """Remember a query that was signed at the time `created`, in seconds since 1970.

        Invented names cannot displace declared peers (`peers`); a displaced node asks again.
        """
        if created < self._begun.seconds():
            return
        self._asked.pop(node, None)
        self._asked[node] = created
        if len(self._asked) > MOST_ASKED + len(peers):
            del self._asked[next(known for known in self._asked if known not in peers)]

    def require(self, header: BatchHeader, created: int, mark: Mark | None) -> None:
        """Require that a batch continues the stored mark's epoch, begins a link at 0, or was signed after a mark query.

        `created` is when the batch was signed. A batch of an earlier epoch that arrives late would otherwise replace
        the mark of the present one, and the batches after it could then be stored out of order. Raises `LinkForgotten`.
        """
        covered, asked = header.range, self._asked.get(header.from_node)
        begins = mark is None and not covered.after
        continues = mark is not None and mark.epoch == covered.epoch
        follows = asked is not None and created >= asked
        if not (begins or continues or follows):
            raise LinkForgotten(header)
