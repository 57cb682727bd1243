"""Starts and stops the tracing of this process, by OpenTelemetry's own environment variables."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final
from urllib.parse import urlsplit

from eventd.tracing.spans import tracing

ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
"""The variables that turn tracing on."""
FLUSH_SECONDS: Final = 2.0
"""Seconds that the end of a process may wait for a collector."""
SAMPLER: Final = "OTEL_TRACES_SAMPLER"
_NAMED: Final = ("OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES")
_SAMPLERS: Final = [
    f"{parent}{kind}" for parent in ("", "parentbased_") for kind in ("always_on", "always_off", "traceidratio")
]

logger = logging.getLogger("eventd.tracing")


def start_tracing(
    environment: Mapping[str, str], version: str, monotonic: Callable[[], float], *, trusts_hints: bool
) -> Callable[[], None]:
    """Turn tracing on if the environment asks for it.

    Return the function that exports the waiting spans and turns tracing off. Without the extra `otel`, or with a
    variable that cannot be used, a warning is logged and the node works without. Call it in the process that makes the
    spans: its thread does not survive a fork.
    """
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return _nothing
    if not any(environment.get(name, "").strip() for name in ENDPOINTS):
        return _nothing
    if fault := find_fault(environment):
        logger.warning("tracing is off", extra={"reason": fault})
        return _nothing
    try:
        from eventd.tracing.otlp import OtlpExporter
        from eventd.tracing.sampling import default_sampler
    except ImportError:
        hint = f"pip install 'routerd-eventd[otel]', or unset {ENDPOINTS[0]}"
        logger.warning("tracing is off", extra={"reason": "OpenTelemetry is not installed", "hint": hint})
        return _nothing
    sampler = None if environment.get(SAMPLER, "").strip() else default_sampler(monotonic)
    try:
        exporter = OtlpExporter(_attributes(environment, version), version, sampler, monotonic)
    except Exception as error:  # the SDK raises what its parsers raise, and a value may hold a secret
        about = {"reason": f"OpenTelemetry refuses a variable OTEL_…: {type(error).__name__}"}
        logger.warning("tracing is off", extra=about)
        return _nothing
    tracing.start(exporter, trusts_hints=trusts_hints)

    def stop() -> None:
        tracing.stop()
        exporter.close(FLUSH_SECONDS)

    return stop


def find_fault(environment: Mapping[str, str]) -> str:
    """Return which variable cannot be used and what it must be, never its value; empty if there is none.

    The SDK itself logs a warning, and then does something else, or fails with each export.
    """
    for name, value in environment.items():
        must_be, is_usable = _CHECKS.get(_without_signal(name), ("", _is_anything))
        if value.strip() and not is_usable(value.strip()):
            return f"{name} must be {must_be}"
    return ""


def _without_signal(name: str) -> str:
    return name.replace("OTLP_TRACES_", "OTLP_")


def _is_anything(_value: str) -> bool:
    return True


def _is_url(value: str) -> bool:
    with suppress(ValueError):
        url = urlsplit(value)
        return url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    return False


def _is_positive(value: str) -> bool:
    with suppress(ValueError):
        return 0 < float(value) < float("inf")
    return False


def _is_file(value: str) -> bool:
    return os.path.isfile(value) and os.access(value, os.R_OK)


def _are_headers(value: str) -> bool:
    return all("=" in part for part in value.split(",") if part.strip())


_FILE: Final = ("a file that this user can read", _is_file)
_CHECKS: Final[Mapping[str, tuple[str, Callable[[str], bool]]]] = {
    ENDPOINTS[0]: ("a URL that begins with http:// or https://", _is_url),
    "OTEL_EXPORTER_OTLP_PROTOCOL": ("http/protobuf: gRPC is not supported", "http/protobuf".__eq__),
    "OTEL_EXPORTER_OTLP_TIMEOUT": ("a number of seconds above 0", _is_positive),
    "OTEL_EXPORTER_OTLP_COMPRESSION": ("none, gzip or deflate", ("none", "gzip", "deflate").__contains__),
    "OTEL_EXPORTER_OTLP_HEADERS": ("NAME=VALUE, separated by commas", _are_headers),
    "OTEL_EXPORTER_OTLP_CERTIFICATE": _FILE,
    "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE": _FILE,
    "OTEL_EXPORTER_OTLP_CLIENT_KEY": _FILE,
    SAMPLER: (f"one of {', '.join(_SAMPLERS)}", _SAMPLERS.__contains__),
}


def _nothing() -> None:
    """Do nothing: the function to stop tracing while tracing is off."""


def _attributes(environment: Mapping[str, str], version: str) -> dict[str, str]:
    """Return the attributes of this process; attributes that the environment names are left to the SDK."""
    named = " ".join(environment.get(name, "") for name in _NAMED)
    own = {"service.version": version, "service.instance.id": f"{socket.gethostname()}:{os.getpid()}"}
    if not environment.get("OTEL_SERVICE_NAME"):
        own["service.name"] = "routerd-eventd"
    return {name: value for name, value in own.items() if f"{name}=" not in named}
