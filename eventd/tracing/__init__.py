"""Traces: spans of requests, commits, batches and runs, never of single events, exported with OpenTelemetry.

Off, it imports nothing of OpenTelemetry. It is one for the process, as loggers are: see `spans`.

May import: no other room.
"""

from __future__ import annotations

from eventd.tracing.spans import tracing

__all__ = ["tracing"]
