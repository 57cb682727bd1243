"""Base models of requests and responses: each serves for decoding, encoding and describing."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

U64_MAX = 2**64 - 1

U32 = Annotated[int, Meta(ge=0, le=2**32 - 1)]
U64 = Annotated[int, Meta(ge=0, extra_json_schema={"maximum": U64_MAX})]
"""An unsigned integer of up to 64 bits. The decoder cannot check this maximum; models check it with `require_u64`."""


class Body(Struct, kw_only=True):
    """Base of a request body. Unknown members are ignored."""

    @classmethod
    def require_bounded(cls, text: bytes | bytearray) -> None:
        """Raises `EventdError` for a text whose decoding would fill memory; here for none. A model may override it."""


class Performance(Struct, kw_only=True):
    """The durations of a request and its parts, in milliseconds, and how many seqs were read for its page."""

    server_total_ms: float
    wal_append_ms: float | UnsetType = UNSET
    fsync_ms: float | UnsetType = UNSET
    records_scanned: int | UnsetType = UNSET


class ResponseModel(Struct, kw_only=True):
    """Base of a response. Members that are UNSET are left out."""

    performance: Performance


class Query(Struct, kw_only=True, frozen=True):
    """Base of a query string: members of type bool, int or str, each with a default.

    A value of the wrong type becomes the default, and unknown names are ignored.
    """


class NoQuery(Query, frozen=True):
    """A query without parameters."""


def require_u64(**members: int) -> None:
    """Raises ValueError, which names the member, for a number of more than 64 bits."""
    for name, value in members.items():
        if value > U64_MAX:
            raise ValueError(f"`{name}` must be at most {U64_MAX}")
