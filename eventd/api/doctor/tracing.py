"""Checks whether a collector takes the spans of the node."""

from __future__ import annotations

from eventd.api.doctor.report import Check, CheckStatus
from eventd.tracing import tracing

NAME, CODE = "tracing", "spans-lost"


def check_tracing() -> list[Check]:
    """Return one warning if the last spans of this process were not exported, else no check."""
    if not (reason := tracing.loss()):
        return []
    detail = f"the collector does not take the spans of this node: {reason}"
    remedy = "check the collector and OTEL_EXPORTER_OTLP_ENDPOINT; see docs/how-to/trace-with-opentelemetry.md"
    return [Check(NAME, CheckStatus.WARN, CODE, detail, remedy)]
