"""Spans that a collector does not take are logged once, and doctor warns of them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from opentelemetry.sdk.trace.export import SpanExportResult

from eventd.api.doctor.tracing import check_tracing
from eventd.testing import ManualClock
from eventd.tracing import tracing
from eventd.tracing.losses import REPEAT_SECONDS, SpanLosses
from eventd.tracing.otlp import OtlpExporter

SECRET = "hunter2"


def test_a_loss_is_logged_once_and_seldom_again(caplog: pytest.LogCaptureFixture) -> None:
    seconds = [0.0]
    losses = SpanLosses(lambda: seconds[0])
    for at in (0.0, 5.0, 10.0, REPEAT_SECONDS):
        seconds[0] = at
        losses.failed("ConnectionError")
        assert losses.reason == "ConnectionError"
        losses.succeeded()
    assert losses.reason == ""
    assert [line.msg for line in caplog.records] == ["spans are lost"] * 2


def test_doctor_warns_while_a_collector_takes_no_spans(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    variables: Mapping[str, str] = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://user:{SECRET}@127.0.0.1:1/{SECRET}",
        "OTEL_EXPORTER_OTLP_TIMEOUT": "0.1",
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    exporter = OtlpExporter({}, "1", None, ManualClock().monotonic)
    assert check_tracing() == []
    tracing.start(exporter, trusts_hints=True)
    try:
        assert exporter._exporter.export([]) is SpanExportResult.FAILURE
        [check] = check_tracing()
    finally:
        tracing.stop()
        exporter.close(2)
    assert (check.status, check.code, check.detail.rpartition(": ")[2]) == ("warn", "spans-lost", "ConnectionError")
    assert [line.msg for line in caplog.records] == ["spans are lost"]
    assert SECRET not in f"{check} {[vars(line) for line in caplog.records]}"
    assert check_tracing() == []
