"""Starts and stops the tracing of this process, by OpenTelemetry's own environment variables."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Mapping
from typing import Final

from eventd.tracing.spans import tracing

ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
"""The variables that turn tracing on."""
FLUSH_SECONDS: Final = 2.0
"""How long the end of a process may wait for a collector."""
_NAMED: Final = ("OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES")

logger = logging.getLogger("eventd.tracing")


def start_tracing(environment: Mapping[str, str], version: str, *, trusts_hints: bool) -> Callable[[], None]:
    """Turn tracing on if the environment asks for it; return the function that exports what waits and turns it off.

    Without the extra `otel`, or with settings that the SDK refuses, a warning is logged and the node works without.
    Call it in the process that makes the spans: its thread does not survive a fork.
    """
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return _nothing
    if not any(environment.get(name, "").strip() for name in ENDPOINTS):
        return _nothing
    try:
        from eventd.tracing.otlp import OtlpExporter
    except ImportError:
        hint = f"pip install 'routerd-eventd[otel]', or unset {ENDPOINTS[0]}"
        logger.warning("tracing is off", extra={"reason": "OpenTelemetry is not installed", "hint": hint})
        return _nothing
    try:
        exporter = OtlpExporter(_attributes(environment, version), version)
    except Exception as error:  # the SDK raises what its parsers raise, and a value may hold a secret
        about = {"reason": f"the variables OTEL_… cannot be used: {type(error).__name__}"}
        logger.warning("tracing is off", extra=about)
        return _nothing
    tracing.start(exporter, trusts_hints=trusts_hints)

    def stop() -> None:
        tracing.stop()
        exporter.close(FLUSH_SECONDS)

    return stop


def _nothing() -> None:
    """Stop nothing: tracing is off."""


def _attributes(environment: Mapping[str, str], version: str) -> dict[str, str]:
    """Return the attributes of this process. What the environment names itself is left to the SDK."""
    named = " ".join(environment.get(name, "") for name in _NAMED)
    own = {"service.version": version, "service.instance.id": f"{socket.gethostname()}:{os.getpid()}"}
    if not environment.get("OTEL_SERVICE_NAME"):
        own["service.name"] = "routerd-eventd"
    return {name: value for name, value in own.items() if f"{name}=" not in named}
