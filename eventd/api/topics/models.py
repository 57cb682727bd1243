"""Models that several routes of /v0 share."""

from __future__ import annotations

from msgspec import Struct

from eventd.errors import Invalid
from federation.lines import size_of

INT64_MAX = 2**63 - 1
MOST_FILTERED = 1000
MOST_FILTERED_BYTES = 16 << 10
"""Nodes whose records one reader may leave out."""


class Tombstone(Struct, kw_only=True):
    """Records a reader has missed: `gap_from` to `gap_to` went involuntarily, for `reason`."""

    gap_from: int
    gap_to: int
    reason: str
    missed_estimate: int
    earliest_seq: int
    head_seq: int


def filter_ids(node: str | list[str] | None) -> frozenset[str]:
    """The node ids a reader asks not to get records of. Raises `Invalid` for more than a reader has nodes.

    A watch keeps them for as long as its session lives.
    """
    if node is None:
        return frozenset()
    ids = frozenset((node,) if isinstance(node, str) else node)
    if len(ids) > MOST_FILTERED or sum(map(size_of, ids)) > MOST_FILTERED_BYTES:
        raise Invalid(
            f"`node` holds more than {MOST_FILTERED} names, or {MOST_FILTERED_BYTES} bytes of them",
            hint="name the nodes that the reader itself writes as",
        )
    return ids
