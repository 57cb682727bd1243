"""The audit of a lake, kept up to date: whenever a node has said something new, the figures of `run` are made again.
They are also made again when no node has reported for as long as a node may be silent.

A batch is the same incremental audit that `run` makes; what it costs is what is new. Spark says when there is something
to do, and keeps in a checkpoint what was seen. All else depends on the lake alone, so a batch that is repeated after a
crash does no harm.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from eventd.audit.engine.final_hours import FinalHours, final_rows, first_hour, open_final
from eventd.audit.engine.run import QUICK, Request, audit, own_session
from eventd.audit.engine.run_lock import holding
from eventd.audit.engine.state import open_state
from eventd.audit.report.report import Report
from eventd.audit.source.options import STATES
from eventd.audit.spark.session import last_cause, open_session, quiet
from eventd.errors import CheckFailed, Conflict, EventdError, Invalid, LakeUnavailable, LakeUnusable, NotFound
from eventd.lake.storage import connect, open_lake
from eventd.runtime.backoff import Backoff
from eventd.runtime.chance import SYSTEM
from eventd.runtime.clock import SECOND, Clock, SystemClock

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

CHECKPOINT: Final = "checkpoint"
LOOK: Final = 1
"""Seconds between two looks at whether the end was asked for."""
WAIT: Final = Backoff(base=1.0, cap=60.0)
"""Between two tries to reach a lake that is away."""
_OURS: Final = re.compile(r"eventd\.errors\.(LakeUnavailable|LakeUnusable|NotFound): (.+)")
"""An error of ours in the words of Spark, which passes on what another process raised."""
_ENDED: Final = re.compile(r"terminated with exception: (.{1,300}?)(?: SQLSTATE|\n|$)")
"""Why a query ended, in the words of Spark."""


@dataclass(frozen=True)
class Following:
    """What to keep up to date, and how. Spans in microseconds.

    `since`: since when events are looked at, asked anew for each batch: a window that moves. `every`: how often to look
    for news. `watermark`: how long after its end an hour is waited for before it is final. `once`: what is there now.
    """

    request: Request
    since: Callable[[], int | None] = lambda: None
    every: int = 30 * SECOND
    watermark: int = 3600 * SECOND
    checkpoint: str = ""
    once: bool = False


class Batch(NamedTuple):
    """What a batch came to: the report, and how many rows were made final."""

    report: Report
    final: int
    seconds: float


class Listener(Protocol):
    """Who wants the stream, hears of it, and may have it end."""

    @property
    def ended(self) -> bool:
        """Whether it is to end."""
        ...

    def listen(self) -> None:
        """Spark has started, and may have taken signals for itself."""
        ...

    def batch(self, batch: Batch) -> None:
        """Another one is done."""
        ...

    def trouble(self, error: LakeUnavailable, seconds: float) -> None:
        """Lake or output cannot be reached, and will be tried again in so many seconds."""
        ...


def stream_on(following: Following, listener: Listener, *, memory: str = "2g") -> None:
    """Follow a lake on a Spark of its own until it is to end; with `once`, until what is there now is done.

    Raises CheckFailed as soon as a condition is met; NotFound, LakeUnusable and Conflict as `run`, Invalid where no
    checkpoint can be kept, and LakeUnavailable with `once`.
    """
    out = connect(following.request.out)
    place = checkpoint_of(following)
    with contextlib.suppress(*(() if following.once else (LakeUnavailable,))):
        _look_first(following.request)  # what is wrong with a lake is told before Spark starts
    with (
        holding(out),
        open_session(
            following.request.master or None, app="routerctl audit stream", memory=memory, progress=False, conf=QUICK
        ) as spark,
    ):
        listener.listen()
        with quiet(spark):
            Stream(spark, replace(following, checkpoint=place), listener).follow()


def checkpoint_of(following: Following) -> str:
    """Where Spark keeps what was seen, as Spark calls it. Raises Invalid."""
    if following.checkpoint:
        given = following.checkpoint
        return given if "://" in given else f"file://{connect(given).locate('')}".rstrip("/")
    place = connect(following.request.out).locate(CHECKPOINT)
    if "://" in place:
        raise Invalid(
            f"{connect(following.request.out).url} is an address, where Spark may not be able to keep its checkpoint",
            hint="say --checkpoint DIR: a folder, or an address that Spark knows",
        )
    return f"file://{place}"


def _look_first(request: Request) -> FinalHours:
    """What has been made final so far, of a lake and into an output that belong together. Raises as `stream_on`."""
    out, head = connect(request.out), open_lake(connect(request.lake))
    try:
        open_state(out, head)
    except Conflict as error:
        raise Conflict(error.message, hint="choose another --out") from None
    return open_final(out, head.id)


class Stream:
    """A lake that is followed. The checkpoint is as Spark calls it."""

    def __init__(
        self, spark: SparkSession, following: Following, listener: Listener, *, clock: Clock | None = None
    ) -> None:
        self._session = own_session(spark)
        self._following = following
        self._listener = listener
        self._clock = clock or SystemClock()
        self._final: FinalHours | None = None
        self._failure: BaseException | None = None
        self._batches = 0
        self._failures = 0
        self._seen = False
        self._auditing = threading.Lock()
        self._audited_at = self._clock.monotonic()

    def follow(self) -> None:
        """Until it is to end. Raises as `stream_on`."""
        while not self._listener.ended:
            try:
                self._run_query()
                return
            except LakeUnavailable as error:
                if self._following.once:
                    raise
                self._failures += 1
                seconds = WAIT.delay(self._failures, SYSTEM.fraction())
                self._listener.trouble(error, seconds)
                self._wait(seconds)

    def _wait(self, seconds: float) -> None:
        until = self._clock.monotonic() + seconds
        while not self._listener.ended and self._clock.monotonic() < until:
            threading.Event().wait(LOOK)

    def _run_query(self) -> None:
        """One query from its start to its end."""
        begun, self._failure = self._batches, None
        self._final = self._opened()
        try:
            query = self._start()
            try:
                while not (self._listener.ended or query.awaitTermination(LOOK)):
                    self._audit_silence()
            finally:
                self._stop(query)
            if self._following.once and self._batches == begun and not self._listener.ended:
                self._audit()  # nobody has said anything since the last time; what there is is told all the same
        except EventdError:
            raise
        except Exception as error:  # Spark's errors have no common base
            if not self._listener.ended:
                raise self._reason(error, begun) from None

    def _audit_silence(self) -> None:
        """Audit although no node has reported, where that has lasted too long. Spark begins a batch for news alone."""
        patience = max(self._following.request.patience, self._following.every) / SECOND
        if self._clock.monotonic() - self._audited_at < patience:
            return
        try:
            self._audit()
        except NotFound as error:
            raise self._softened(error) from None

    def _opened(self) -> FinalHours:
        try:
            found = _look_first(self._following.request)
        except NotFound as error:
            raise self._softened(error) from None
        self._seen = True
        found.clean()
        return found

    def _start(self) -> StreamingQuery:
        if find_spec("pyspark_eventd") is None:  # only our code was sent along
            from eventd.audit.source import register

            register(self._session)
        rows = self._session.readStream.format("eventd").option("book", STATES).option("onGap", "skip")
        writer = rows.load(self._following.request.lake).writeStream.foreachBatch(self._on_batch)
        writer = writer.option("checkpointLocation", self._following.checkpoint)
        if self._following.once:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{self._following.every // 1000} milliseconds").start()

    def _stop(self, query: StreamingQuery) -> None:
        """End the query. A batch at hand is abandoned: what it has put down is whole, and the next one begins there."""
        with contextlib.suppress(Exception):
            if query.isActive:
                self._session.sparkContext.setLogLevel("OFF")  # of tasks that are ended there is nothing to tell
                query.stop()

    def _on_batch(self, rows: DataFrame, number: int) -> None:
        """Called by Spark on a thread of its own. What is raised here comes back in Java's words, so it is kept.

        Spark gets a short word instead: it takes the text apart, and that of an error of its own is too long for it.
        """
        try:
            if not self._listener.ended:
                self._audit()
                return
        except BaseException as error:
            self._failure = error
        raise EventdError("the batch did not come to its end")  # so that Spark does not take it for done

    def _audit(self) -> None:
        with self._auditing:  # batches come on a thread of Spark's
            self._audit_now()

    def _audit_now(self) -> None:
        begun = self._audited_at = self._clock.monotonic()
        request = replace(self._following.request, since=self._following.since())
        report, hours, found = audit(self._session, request, clock=self._clock)
        made = 0
        if self._final is not None:
            if (first := first_hour(found)) is not None:
                self._final.forget(first)
            made = self._final.add(final_rows(found, hours, self._following.watermark), self._clock.now())
        self._batches, self._failures = self._batches + 1, 0
        self._listener.batch(Batch(report, made, round(self._clock.monotonic() - begun, 3)))
        if report.failed:
            raise CheckFailed(
                f"the audit fails on {', '.join(report.failed)}", hint=f"see report.html in {request.out}"
            )

    def _reason(self, error: Exception, begun: int) -> BaseException:
        """What was wrong, in our words."""
        failure = self._failure
        if isinstance(failure, EventdError | OSError):
            return self._softened(failure)
        text = str(failure or error)
        if told := _OURS.findall(text):
            kinds: dict[str, type[EventdError]] = {
                one.__name__: one for one in (LakeUnavailable, LakeUnusable, NotFound)
            }
            return self._softened(kinds[told[-1][0]](told[-1][1]))
        if failure is None and self._batches == begun:
            ended = _ENDED.search(text)
            return EventdError(
                f"the stream cannot begin: {ended[1] if ended else last_cause(text)}",
                hint=f"if its checkpoint {self._following.checkpoint} is spoilt, remove it: nothing else is lost",
            )
        return EventdError(f"the audit failed in Spark: {last_cause(text)}")

    def _softened(self, error: EventdError | OSError) -> BaseException:
        """A lake that has been there and is not found now is away: a folder, perhaps, that is not mounted now."""
        if isinstance(error, NotFound) and self._seen:
            return LakeUnavailable(error.message)
        return error
