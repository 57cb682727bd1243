"""The settings of the listener, as its parts use them."""

from __future__ import annotations

from dataclasses import dataclass

from eventd.settings.quic import QuicSettings

AUTH_SECONDS = 10.0
"""How long a stream may take to authenticate."""
UNPROVEN_FRAME_BYTES = 64 << 10
"""Maximum payload of a frame of a stream that is not authenticated."""
MOST_UNANSWERED = 1024
"""Number of unanswered requests of a stream from which on no further frame of that stream is handled."""


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """Sizes in bytes, durations in seconds; see the settings of the same names."""

    max_frame_bytes: int = 16 << 20
    max_connections: int = 1024
    auto_create: bool = False
    inflight_bytes: int = 64 << 20
    conn_inflight_bytes: int = 16 << 20
    ingress_wait: float = 2.0
    batch_events: int = 64
    batch_bytes: int = 64 << 10
    batch_delay: float = 0.0
    max_subscriptions: int = 4096
    drain: float = 25.0

    @classmethod
    def of(cls, settings: QuicSettings) -> StreamOptions:
        """Return the options that the settings of a node say."""
        return cls(
            max_frame_bytes=settings.quic_max_frame_bytes,
            max_connections=settings.quic_max_connections,
            auto_create=settings.quic_auto_create,
            inflight_bytes=settings.quic_inflight_bytes,
            conn_inflight_bytes=settings.quic_conn_inflight_bytes,
            ingress_wait=settings.quic_ingress_wait,
            batch_events=settings.quic_batch_events,
            batch_bytes=settings.quic_batch_bytes,
            batch_delay=settings.quic_batch_delay,
            max_subscriptions=settings.quic_max_subscriptions,
            drain=settings.quic_drain,
        )
