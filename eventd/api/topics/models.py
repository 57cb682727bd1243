"""The bodies of /v0: what is asked and what is answered, each once, for reading, writing and describing them."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from eventd.errors import Invalid
from federation.lines import size_of

U64_MAX = 2**64 - 1
INT64_MAX = 2**63 - 1
MOST_FILTERED = 1000
MOST_FILTERED_BYTES = 16 << 10
"""Nodes whose records one reader may leave out."""

U32 = Annotated[int, Meta(ge=0, le=2**32 - 1)]
U64 = Annotated[int, Meta(ge=0, extra_json_schema={"maximum": U64_MAX})]
"""Its upper end is beyond what the decoder can check: see `require_u64`."""


class Body(Struct, kw_only=True):
    """Base of what a request brings. Unknown members are ignored."""


class Answer(Struct, kw_only=True):
    """Base of what a request is answered with. Members that are UNSET do not appear."""

    performance: Performance


class Performance(Struct, kw_only=True):
    """Where the time of a request went. Milliseconds."""

    server_total_ms: float
    wal_append_ms: float | UnsetType = UNSET
    fsync_ms: float | UnsetType = UNSET
    records_scanned: int | UnsetType = UNSET


class Query(Struct, kw_only=True, frozen=True):
    """Base of a query string: members that are bool, int or str, each with a default.

    What cannot be read as its type is the default, and unknown names are ignored.
    """


class NoQuery(Query, frozen=True):
    """Nothing is read from the query."""


class Tombstone(Struct, kw_only=True):
    """Records a reader has missed: `gap_from` to `gap_to` went involuntarily, for `reason`."""

    gap_from: int
    gap_to: int
    reason: str
    missed_estimate: int
    earliest_seq: int
    head_seq: int


def require_u64(**members: int) -> None:
    """Raises ValueError for a number no 64 bits hold."""
    for name, value in members.items():
        if value > U64_MAX:
            raise ValueError(f"`{name}` must be at most {U64_MAX}")


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
