"""The settings of the QUIC listener: streams and caches."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, Field

from eventd.settings.values import AgeOrNone, Endpoint, MemorySize, Seconds, Switch, Text, read_endpoint, size_between
from eventd.text.size import KIB, MIB


class QuicSettings(BaseModel):
    """The settings of the listener, each with its default."""

    quic_listen: Annotated[Endpoint | None, BeforeValidator(read_endpoint)] = Field(
        None, description="`HOST:PORT` of streams and caches over QUIC (UDP); without it, the listener is off."
    )
    quic_cert_file: Text = Field(
        "",
        description="PEM file of the listener's certificate, or `credential:NAME`; without it, the node makes one and"
        " keeps it in the data folder.",
    )
    quic_key_file: Text = Field(
        "", description="PEM file of that certificate's private key, or `credential:NAME`; others may not read it."
    )
    quic_max_frame_bytes: Annotated[int, size_between(64 * KIB, 16 * MIB)] = Field(
        16 * MIB, description="Maximum payload of a frame."
    )
    quic_max_connections: int = Field(1024, ge=1, le=1_000_000, description="Maximum number of QUIC connections.")
    quic_auto_create: Switch = Field(
        False, description="Create the topic of a stream at the first publish to it; otherwise the publish is refused."
    )
    quic_inflight_bytes: MemorySize = Field(
        64 * MIB, description="Maximum bytes of all QUIC connections that are received and not yet answered."
    )
    quic_conn_inflight_bytes: MemorySize = Field(
        16 * MIB, description="The same for one connection, which may exceed it by one frame."
    )
    quic_ingress_wait: Seconds = Field(
        2.0, description="How long an unacknowledged publish waits for memory before it is dropped."
    )
    quic_batch_events: int = Field(64, ge=1, le=10_000, description="Maximum number of events in a frame to a client.")
    quic_batch_bytes: Annotated[int, size_between(KIB, 8 * MIB)] = Field(
        64 * KIB, description="Maximum bytes of events in a frame to a client; a single event may be larger."
    )
    quic_batch_delay: AgeOrNone = Field(
        0, description="Shortest pause between two frames of a subscription; 0: none, events are sent at once."
    )
    quic_max_subscriptions: int = Field(
        4096, ge=1, le=1_000_000, description="Maximum number of subscriptions of a QUIC connection."
    )
    quic_cache_bytes: MemorySize = Field(256 * MIB, description="Maximum memory of all caches together.")
    quic_cache_entries: int = Field(
        1_000_000, ge=1, le=1_000_000_000, description="Maximum number of entries of all caches together."
    )
    quic_drain: Seconds = Field(
        25.0, description="How long a stopping listener may take; streams have half of it, at least 1s, to end."
    )
