"""Benchmarks of streams and caches over QUIC, compared with a bare QUIC echo, NATS and Redis in the same run."""

from __future__ import annotations
