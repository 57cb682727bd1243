"""StreamCache: a cache in memory that clients use over QUIC, and its limits."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from eventd.resources.kinds.fields import (
    Duration,
    Size,
    StreamLabel,
    Whole,
    duration_between,
    size_between,
)
from eventd.resources.kinds.spec import Spec
from eventd.streams.names import DEFAULT
from eventd.text.duration import DAY
from eventd.text.size import GIB, KIB, MIB

LONGEST_TTL = 366 * DAY


class StreamCacheSpec(Spec):
    """The spec of a StreamCache."""

    tenant: StreamLabel = Field(description="The tenant, whose tokens may use the cache.")
    namespace: StreamLabel = Field(default=DEFAULT, description="The namespace of the cache.")
    name: StreamLabel = Field(default=DEFAULT, description="The name of the cache in its namespace.")
    max_bytes: Annotated[Size, size_between(KIB, 1024 * GIB)] = Field(
        default=64 * MIB, description="Maximum memory of the entries: each counts its key, its value and 128 bytes."
    )
    max_entries: Annotated[Whole, Field(ge=1, le=1_000_000_000)] = Field(
        default=1_000_000, description="Maximum number of entries."
    )
    max_ttl: Annotated[Duration, duration_between(0, LONGEST_TTL)] = Field(
        default=0, alias="maxTTL", description="Longest time to live of an entry, also of one without any; 0: no limit."
    )
