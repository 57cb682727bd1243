"""How the next range over a link begins: decided from the peer's mark, and from what the peer confirmed before."""

from __future__ import annotations

from typing import NamedTuple

from eventd.egress.loop.sink import Blocked, Rewind
from eventd.log.core.values import Head
from eventd.log.cursors.cursors import Cursor
from federation.ranges import Mark


class RangeStart(NamedTuple):
    """`fresh`: the peer has no mark that a range could continue. `gone_until`: end of evicted positions that the peer
    lacks; 0: none is known."""

    fresh: bool = False
    gone_until: int = 0

    def must_report(self, gap_end: int, after: int, lost_position: int, upto: int) -> bool:
        """Return whether an empty batch up to `upto` must report records that retention evicted too early; see `begin`.

        If the cursor passed the gap silently, the next range would claim after a restart that everything was sent. A
        page that ends before the gap does, because there was no memory for it, reports nothing: it is read again.
        """
        return after < (gap_end if self.fresh else max(lost_position, self.gone_until)) <= upto

    def begin(self, after: int, gap_end: int, lost_position: int) -> tuple[int, int | None]:
        """Return the position after which the range begins, and the one after which the loss before it begins.

        The latter is None unless a loss is reported: retention evicted records that a peer with a mark lacks. `after`:
        where the previous range ended. `gap_end` and `lost_position`: see `PageRange`; 0 stands for none.
        """
        if self.fresh:
            return max(after, gap_end), None
        edge = max(lost_position, self.gone_until)
        return (edge, after) if edge > after else (after, None)


def impossible_mark(upto: int, head: Head) -> Blocked:
    """Return the error for a peer that claims to have records beyond this log's end.

    The claim does not prove that this node's database is an older copy, so it blocks that peer's link and nothing else.
    """
    return Blocked(
        "impossible_mark",
        f"the peer claims to have everything up to position {upto} of the epoch {head.epoch}, "
        f"but this log ends at position {head.last}",
    )


def compare_mark(node: str, mark: Mark | None, cursor: Cursor, head: Head, gap_end: int) -> RangeStart:
    """Compare the mark of the peer `node` with what it confirmed before; return how the next range begins.

    Raises `Rewind` if the mark is less or missing, and `Blocked` if it is beyond the end of this log. `gap_end` is the
    end of the evicted positions right after the cursor; 0: none.

    A confirmation counts in the epoch in which it was given, whatever the present one is. A mark of any other epoch
    cannot be compared with it: the peer may have lost everything, and ids make sending it again harmless.
    """
    if mark is not None and mark.epoch == head.epoch and mark.upto > head.last:
        raise impossible_mark(mark.upto, head)
    same = mark if mark is not None and mark.epoch == cursor.sent_epoch else None
    upto = same.upto if same is not None else 0
    if cursor.sent_epoch and upto < cursor.sent_upto:
        has = f"is at position {upto}" if same is not None else f"has no mark of the epoch {cursor.sent_epoch}"
        words = f"{node} {has}, but had confirmed everything up to position {cursor.sent_upto}"
        raise Rewind(upto, words, epoch=same.epoch if same else "")
    again = cursor.rewound_from is not None and cursor.position < cursor.rewound_from
    fresh = mark is None or not (again or mark.epoch in (head.epoch, cursor.sent_epoch))
    return RangeStart(fresh, gap_end if again else 0)
