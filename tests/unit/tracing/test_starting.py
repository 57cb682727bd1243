"""What turns tracing on, what keeps it off, and which traces a busy node records."""

from __future__ import annotations

import logging

import pytest
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.trace import Link, SpanContext, TraceFlags

from eventd.testing import ManualClock
from eventd.tracing import tracing
from eventd.tracing.sampling import TRACES_PER_SECOND, default_sampler
from eventd.tracing.starting import find_fault, start_tracing

ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://user:hunter2@127.0.0.1:4318"}


@pytest.mark.parametrize(
    ("name", "value", "must_be"),
    [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "nonsense", "a URL"),
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://[::1", "a URL"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://", "a URL"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "http/protobuf"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "-1", "a number"),
        ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "soon", "a number"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "x", "none, gzip or deflate"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "hunter2", "NAME=VALUE"),
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/nonexistent/hunter2", "a file"),
        ("OTEL_TRACES_SAMPLER", "nonsense", "one of always_on"),
    ],
)
def test_a_variable_that_cannot_be_used_is_named_without_its_value(
    name: str, value: str, must_be: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        start_tracing({**ENDPOINT, name: value}, "1", ManualClock().monotonic, trusts_hints=True)()
    [line] = caplog.records
    assert line.msg == "tracing is off"
    assert f"{name} must be {must_be}" in vars(line)["reason"]
    assert "hunter2" not in str(vars(line))
    assert not tracing.on


def test_variables_that_are_empty_or_right_are_no_fault() -> None:
    usable = {
        "OTEL_EXPORTER_OTLP_TIMEOUT": "2.5",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_EXPORTER_OTLP_HEADERS": "a=b,c=d",
        "OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
        "OTEL_EXPORTER_OTLP_CERTIFICATE": " ",
    }
    assert find_fault({**ENDPOINT, **usable}) == ""


def test_nothing_begins_without_an_endpoint_or_when_the_sdk_is_disabled() -> None:
    for environment in ({}, {**ENDPOINT, "OTEL_SDK_DISABLED": "true"}, {"OTEL_EXPORTER_OTLP_ENDPOINT": " "}):
        start_tracing(environment, "1", ManualClock().monotonic, trusts_hints=True)()
        assert not tracing.on


def test_a_busy_node_records_some_traces_of_each_second_and_all_that_belong_to_them() -> None:
    clock = ManualClock()
    sampler = default_sampler(clock.monotonic)

    def taken(*links: Link) -> bool:
        return sampler.should_sample(None, 1, "work", links=links).decision is Decision.RECORD_AND_SAMPLE

    assert sum(taken() for _ in range(1000)) == TRACES_PER_SECOND
    clock.advance(0.1)
    assert sum(taken() for _ in range(1000)) == TRACES_PER_SECOND / 10
    clock.advance(60)
    assert sum(taken() for _ in range(1000)) == TRACES_PER_SECOND
    assert taken(Link(SpanContext(1, 1, is_remote=True, trace_flags=TraceFlags(1))))
    assert not taken(Link(SpanContext(1, 1, is_remote=True, trace_flags=TraceFlags(0))))
