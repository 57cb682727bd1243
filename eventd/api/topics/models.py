"""Models that several routes of /v0 share."""

from __future__ import annotations

from msgspec import Struct

from eventd.errors import Invalid
from federation.lines import size_of

INT64_MAX = 2**63 - 1
MOST_FILTERED = 1000
MOST_FILTERED_BYTES = 16 << 10
"""Total size of the node ids whose records one reader may exclude."""


class Tombstone(Struct, kw_only=True):
    """Records that a reader missed: those of the seqs `gap_from` to `gap_to`, both inclusive.

    `reason`: a limit removed them, or the source of a router lost them; or none is lost (`recreated`), but the reader's
    seqs are of another topic or epoch. Records that a request deleted leave no tombstone.
    """

    gap_from: int
    gap_to: int
    reason: str
    missed_estimate: int
    earliest_seq: int
    head_seq: int


def filter_ids(node: str | list[str] | None) -> frozenset[str]:
    """Return the node names whose records a reader excludes.

    Raises `Invalid` for too many, because a watch session keeps them in memory.
    """
    if node is None:
        return frozenset()
    ids = frozenset((node,) if isinstance(node, str) else node)
    if len(ids) > MOST_FILTERED or sum(map(size_of, ids)) > MOST_FILTERED_BYTES:
        raise Invalid(
            f"`node` contains more than {MOST_FILTERED} names, or {MOST_FILTERED_BYTES} bytes of them",
            hint="name only the nodes that the reader itself writes as",
        )
    return ids
