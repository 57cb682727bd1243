"""The spans of a process: none while tracing is off, and no task works in a span that has ended."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping

import pytest

from eventd.observe.error_reports import ErrorReports
from eventd.observe.log_lines import fields_of
from eventd.observe.metrics import Metrics
from eventd.observe.trace_figures import exemplar
from eventd.runtime.log_pause import LogPause
from eventd.tracing import tracing
from eventd.tracing.contexts import TraceContext
from eventd.tracing.spans import Attributes, Kind, TracedWork, Value


class Work:
    """A span that is kept."""

    def __init__(self, name: str, number: int, attributes: Attributes) -> None:
        self.name = name
        self.context = TraceContext(f"{number:032x}", f"{number:016x}", sampled=True)
        self.attributes: dict[str, Value] = dict(attributes)
        self.failure = ""
        self.ended = self.discarded = False

    def set(self, name: str, value: Value) -> None:
        self.attributes[name] = value

    def fail(self, reason: str) -> None:
        self.failure = reason

    def discard(self) -> None:
        self.discarded = True

    def end(self) -> None:
        self.ended = True


class Kept:
    """An exporter that keeps everything."""

    def __init__(self) -> None:
        self.works: list[Work] = []
        self.reports: list[tuple[str, str, str, Attributes]] = []

    def begin(
        self,
        name: str,
        kind: Kind,
        parent: TraceContext | None,
        links: Iterable[TraceContext],
        attributes: Attributes,
        began: int | None,
    ) -> TracedWork:
        work = Work(name, len(self.works) + 1, attributes)
        self.works.append(work)
        return work

    def report(self, kind: str, message: str, frames: str, about: Attributes, parent: TraceContext | None) -> None:
        self.reports.append((kind, message, frames, about))

    def counts(self) -> Mapping[str, int]:
        return {"exported": len(self.works)}

    def loss(self) -> str:
        return ""


@pytest.fixture
def kept() -> Iterator[Kept]:
    kept = Kept()
    tracing.start(kept)
    yield kept
    tracing.stop()


def test_nothing_is_made_while_tracing_is_off() -> None:
    with tracing.span("work") as span:
        span.set("a", 1)
        assert (span.context, tracing.current(), exemplar()) == (None, None, None)
    assert b'trace_spans_total{result="exported"} 0.0' in Metrics().render()


def test_a_span_is_the_current_one_until_it_ends(kept: Kept) -> None:
    with tracing.span("outer") as outer:
        with tracing.span("inner") as inner:
            assert tracing.current() == inner.context
        assert tracing.current() == outer.context
        assert exemplar() == {"trace_id": f"{1:032x}", "span_id": f"{1:016x}"}
        line = fields_of(logging.makeLogRecord({"msg": "said"}))
        assert line == {"trace_id": f"{1:032x}", "span_id": f"{1:016x}"}
    assert tracing.current() is None
    assert [(work.name, work.ended) for work in kept.works] == [("outer", True), ("inner", True)]
    assert b'trace_spans_total{result="exported"} 2.0' in Metrics().render()


async def test_a_task_that_outlives_its_span_is_no_part_of_it(kept: Kept) -> None:
    ended = asyncio.Event()

    async def outlive() -> tuple[TraceContext | None, TraceContext | None]:
        before = tracing.current()
        await ended.wait()
        return before, tracing.current()

    with tracing.span("request") as span:
        task = asyncio.create_task(outlive())
        await asyncio.sleep(0)
    ended.set()
    assert await task == (span.context, None)
    assert kept.works[0].ended


def test_an_error_fails_the_span_by_its_class_alone(kept: Kept) -> None:
    with pytest.raises(ValueError, match="hunter2"), tracing.span("work"):
        raise ValueError("hunter2")
    assert (kept.works[0].failure, kept.works[0].ended) == ("ValueError", True)


def test_a_defect_is_reported_once_a_minute_without_what_it_quotes(kept: Kept) -> None:
    now = 0.0
    reports = ErrorReports(LogPause(lambda: now))
    logger = logging.getLogger("eventd.test_reports")
    logger.addHandler(reports)
    logger.propagate = False
    try:
        for _ in range(3):
            try:
                raise ValueError("hunter2")
            except ValueError:
                logger.exception("view failed", extra={"route": "/x", "secret": "hunter2"})
        logger.error("no defect")
        now = 61.0
        try:
            raise OSError(28, "No space left")
        except OSError:
            logger.exception("write failed")
    finally:
        logger.removeHandler(reports)
    assert [(kind, message) for kind, message, _, _ in kept.reports] == [
        ("ValueError", "ValueError"),
        ("OSError", "OSError: [Errno 28] No space left"),
    ]
    assert kept.reports[0][3] == {"eventd.route": "/x", "eventd.message": "view failed"}
    assert "test_a_defect_is_reported" in kept.reports[0][2]
    assert "hunter2" not in str(kept.reports)
