"""Trace contexts from outside: read exactly as the standard says, and never in part."""

from __future__ import annotations

import pytest

from eventd.tracing.contexts import (
    MOST_HINTS,
    TraceContext,
    read_batch_trace,
    read_context,
    read_hints,
    show_hints,
    trace_headers,
)

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLED = f"00-{TRACE}-{SPAN}-01"
CONTEXT = TraceContext(TRACE, SPAN, sampled=True)


def test_a_context_is_read_and_shown_as_it_was() -> None:
    assert read_context(SAMPLED) == CONTEXT
    assert CONTEXT.show() == SAMPLED
    unsampled = read_context(f"00-{TRACE}-{SPAN}-02")
    assert unsampled == TraceContext(TRACE, SPAN, sampled=False)
    assert unsampled.show().endswith("-00")


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "00",
        SAMPLED.upper(),
        f"01-{TRACE}-{SPAN}-01x",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"{SAMPLED}-00",
        f" {SAMPLED}",
        f"{SAMPLED}\n",
        SAMPLED.replace("-01", "-0g"),
        SAMPLED.replace("a", "а"),
    ],
)
def test_a_malformed_context_counts_as_none(text: str | None) -> None:
    assert read_context(text) is None


def test_a_context_of_a_later_version_is_read_as_far_as_it_is_known() -> None:
    assert read_context(f"01-{TRACE}-{SPAN}-01") == CONTEXT
    assert read_context(f"cc-{TRACE}-{SPAN}-01-what-the-future-brings") == CONTEXT


def test_hints_are_read_and_shown_as_they_were() -> None:
    hints = {position: CONTEXT for position in range(1, MOST_HINTS + 1)}
    assert read_hints(show_hints(hints.items())) == hints
    assert read_hints(f"7=00-{TRACE}-{SPAN}-00") == {}, "only sampled events matter"


@pytest.mark.parametrize(
    "text",
    [
        f"0={SAMPLED}",
        f"-1={SAMPLED}",
        f"{10**19}={SAMPLED}",
        f"1={SAMPLED}, 2=",
        f"1={SAMPLED},2={SAMPLED}",
        ", ".join(f"{position}={SAMPLED}" for position in range(1, MOST_HINTS + 2)),
        "1=" * 100_000,
    ],
)
def test_malformed_or_too_many_hints_count_as_none(text: str) -> None:
    assert read_hints(text) == {}


def test_a_batch_says_its_span_and_its_events() -> None:
    headers = trace_headers(CONTEXT, [(3, CONTEXT)])
    assert headers == {"traceparent": SAMPLED, "Eventd-Trace": f"3={SAMPLED}"}
    assert read_batch_trace(headers) == (CONTEXT, {3: CONTEXT})
    assert read_batch_trace({}) == (None, {})
    assert trace_headers(None, [(3, CONTEXT)]) == {}
