"""A continuous audit of a lake: it runs when a node has reported, and when none has for as long as one may be silent.

A batch is an incremental `audit`; its cost depends on the new segments. Spark starts batches, and keeps in a
checkpoint which node states it has seen. Everything else depends on the lake alone, so a batch that is repeated after a
crash does no harm.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from eventd.audit.assembly.final_hours import FinalHours, final_rows, first_hour, open_final
from eventd.audit.engine.output_lock import hold_location
from eventd.audit.engine.request import AuditRequest
from eventd.audit.engine.run import QUICK, audit
from eventd.audit.engine.state import open_state
from eventd.audit.report.report import Report
from eventd.audit.source.options import STATES
from eventd.audit.spark.session import (
    is_remote,
    last_cause,
    open_session,
    own_session,
    quiet,
    silence_log,
)
from eventd.errors import CheckFailed, Conflict, EventdError, Invalid, LakeUnavailable, LakeUnusable, NotFound
from eventd.lake.address import shown, without_secrets
from eventd.lake.manifest import NodeState
from eventd.lake.state_files import state_files
from eventd.lake.storage import Storage, connect, open_lake
from eventd.runtime.backoff import Backoff
from eventd.runtime.chance import SYSTEM
from eventd.runtime.clock import SECOND, Clock, SystemClock

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

CHECKPOINT: Final = "checkpoint"
POLL: Final = 1
"""Seconds between checks of whether the stream should end."""
WAIT: Final = Backoff(base=1.0, cap=60.0)
"""Waits between attempts to reach an unavailable lake."""
_OURS: Final = re.compile(r"eventd\.errors\.(LakeUnavailable|LakeUnusable|NotFound): (.+)")
"""Matches one of our errors in the text of Spark, which reports the exceptions of other processes."""
_ENDED: Final = re.compile(r"terminated with exception: (.{1,300}?)(?: SQLSTATE|\n|$)")
"""Matches the reason why a query ended, in the text of Spark."""


@dataclass(frozen=True)
class StreamRequest:
    """A request for a continuous audit. Spans in microseconds.

    `since` is called for each batch and returns the begin of the period (microseconds since 1970, None: everything), so
    that a window can move; it replaces `audit.since`. `every`: the interval of looking for new node states.
    `watermark`: an hour becomes final when the ledgers are complete until this long after its end. `checkpoint`: empty
    for a folder in the output. `once`: audit the present lake, and end.
    """

    audit: AuditRequest
    since: Callable[[], int | None] = lambda: None
    every: int = 30 * SECOND
    watermark: int = 3600 * SECOND
    checkpoint: str = field(default="", repr=False)
    once: bool = False


class StreamBatch(NamedTuple):
    """The result of a batch: the report, how many rows of hours became final or were revised, and its duration."""

    report: Report
    final: int
    seconds: float


class Listener(Protocol):
    """The interface to the caller of a stream, which receives its results and may end it."""

    @property
    def ended(self) -> bool:
        """Return whether the stream should end."""
        ...

    def listen(self) -> None:
        """Called when Spark has started: set signal handlers again here, because Spark may have replaced them."""
        ...

    def batch(self, batch: StreamBatch) -> None:
        """Called after each audit of the stream, with its result."""
        ...

    def trouble(self, error: LakeUnavailable, seconds: float) -> None:
        """Called when lake or output cannot be reached; the next attempt is in `seconds`."""
        ...


def stream_on(request: StreamRequest, listener: Listener) -> None:
    """Audit a lake continuously on a Spark session opened for it, until the listener ends the stream.

    With `once`, audit the present lake and return. Raises CheckFailed as soon as a failure condition is met; NotFound,
    LakeUnusable and Conflict like `run_on`; Invalid if no checkpoint can be kept; LakeUnavailable with `once`, or if
    the output cannot be locked (otherwise, it is retried); EventdError for a failure inside of Spark.
    """
    places = request.audit.places()
    place = checkpoint_of(request)
    if not places.by_spark:  # report errors of the lake before Spark starts
        with contextlib.suppress(*(() if request.once else (LakeUnavailable,))):
            _check(places.lake.open(), places.out.open())
    with (
        hold_location(places.out),
        open_session(
            request.audit.master or None,
            app="routerctl audit stream",
            memory=request.audit.memory,
            progress=False,
            conf=QUICK,
        ) as spark,
    ):
        listener.listen()
        with quiet(spark):
            Stream(spark, replace(request, checkpoint=place), listener).follow()


def checkpoint_of(request: StreamRequest) -> str:
    """Return the address of the checkpoint in Spark's form: as requested, or a folder in the output.

    Raises Invalid if none is requested and the output is an address that Spark does not write to.
    """
    if request.checkpoint:
        given = request.checkpoint
        return given if "://" in given else f"file://{connect(given).locate('')}".rstrip("/")
    out = request.audit.places().out
    if out.by_spark:
        return out.for_spark(CHECKPOINT)
    storage = out.open()
    place = storage.locate(CHECKPOINT)
    if "://" in place:
        raise Invalid(
            f"--out {storage.url} is an address, where Spark may not be able to keep its checkpoint",
            hint="add --checkpoint DIR: a folder, or an address that Spark can write to",
        )
    return f"file://{place}"


def _check(lake: Storage, out: Storage) -> FinalHours:
    """Open the final hours of a lake, and check that lake and output belong together. Raises like `stream_on`."""
    head = open_lake(lake)
    try:
        open_state(out, head)
    except Conflict as error:
        raise Conflict(error.message, hint="choose another --out") from None
    return open_final(out, head.id)


class Stream:
    """The continuous audit of a lake. The checkpoint of the request is one that `checkpoint_of` returned."""

    def __init__(
        self, spark: SparkSession, request: StreamRequest, listener: Listener, *, clock: Clock | None = None
    ) -> None:
        self._session = own_session(spark)
        self._places = request.audit.places(spark)
        self._reports: dict[tuple[str, str], int] = {}
        self._request = request
        self._listener = listener
        self._clock = clock or SystemClock()
        self._final: FinalHours | None = None
        self._failure: BaseException | None = None
        self._batches = 0
        self._failures = 0
        self._found_before = False
        self._auditing = threading.Lock()
        self._audited_at = self._clock.monotonic()

    def follow(self) -> None:
        """Run until the listener ends the stream or, with `once`, until one query has ended. Raises like `stream_on`.

        Without `once`, an unavailable lake is tried again.
        """
        while not self._listener.ended:
            try:
                self._run_query()
                return
            except LakeUnavailable as error:
                if self._request.once:
                    raise
                self._failures += 1
                seconds = WAIT.delay(self._failures, SYSTEM.fraction())
                self._listener.trouble(error, seconds)
                self._wait(seconds)

    def _wait(self, seconds: float) -> None:
        until = self._clock.monotonic() + seconds
        while not self._listener.ended and self._clock.monotonic() < until:
            threading.Event().wait(POLL)

    def _run_query(self) -> None:
        """Run one streaming query of Spark, until the query ends or the listener ends the stream.

        With `once`, audit even if the query had no batch.
        """
        begun, self._failure = self._batches, None
        self._final = self._opened()
        if is_remote(self._session):
            self._poll()
            return
        try:
            query = self._start()
            try:
                while not (self._listener.ended or query.awaitTermination(POLL)):
                    self._audit_silence()
            finally:
                self._stop(query)
            if self._request.once and self._batches == begun and not self._listener.ended:
                self._audit()  # no node has reported since the last run, but the listener still gets a report
        except EventdError:
            raise
        except Exception as error:  # Spark's exceptions have no common base class
            if not self._listener.ended:
                raise self._reason(error, begun) from None

    def _poll(self) -> None:
        """Audit whenever a node has reported, without a query of Spark: Spark Connect would run batches elsewhere."""
        while not self._listener.ended:
            try:
                found = self._states()
                if self._request.once or found != self._reports:
                    self._audit()
                    self._reports = found  # an audit that failed is repeated
                else:
                    self._audit_silence()
            except NotFound as error:
                raise self._as_unavailable(error) from None
            if self._request.once:
                return
            self._wait(self._request.every / SECOND)

    def _audit_silence(self) -> None:
        """Audit if the last audit is older than patience and `every`: Spark starts batches only for new reports."""
        patience = max(self._request.audit.patience, self._request.every) / SECOND
        if self._clock.monotonic() - self._audited_at < patience:
            return
        try:
            self._audit()
        except NotFound as error:
            raise self._as_unavailable(error) from None

    def _opened(self) -> FinalHours:
        try:
            found = _check(self._places.lake.open(self._session), self._places.out.open(self._session))
        except NotFound as error:
            raise self._as_unavailable(error) from None
        self._found_before = True
        found.clean()
        return found

    def _start(self) -> StreamingQuery:
        writer = self._rows().writeStream.foreachBatch(self._on_batch)
        writer = writer.option("checkpointLocation", self._request.checkpoint)
        if self._request.once:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{self._request.every // 1000} milliseconds").start()

    def _rows(self) -> DataFrame:
        """Return a stream with a batch whenever a node has reported.

        If Spark reads the lake, Python cannot read the reports while it plans a batch. Then there is a batch at every
        interval, and `_on_batch` looks for new reports.
        """
        if self._places.lake.by_spark:
            return self._session.readStream.format("rate").option("rowsPerSecond", 1).load()
        if find_spec("pyspark_eventd") is None:  # only our code was sent to the cluster
            from eventd.audit.source import register

            register(self._session)
        rows = self._session.readStream.format("eventd").option("book", STATES).option("onGap", "skip")
        return rows.load(self._request.audit.lake)

    def _states(self) -> dict[tuple[str, str], int]:
        """Return the time of each node's last report (microseconds), by slug and epoch; 0 for an unreadable one."""
        files = state_files(self._places.lake.open(self._session))
        return {(file.slug, file.epoch): file.state.as_of if isinstance(file.state, NodeState) else 0 for file in files}

    def _stop(self, query: StreamingQuery) -> None:
        """End the query. A running batch is abandoned; the files it has written are complete."""
        with contextlib.suppress(Exception):
            if query.isActive:
                silence_log(self._session)  # do not log the tasks that are cancelled
                query.stop()

    def _on_batch(self, rows: DataFrame, number: int) -> None:
        """Run a batch, called by Spark on a separate thread.

        Spark would return an exception as text, so the exception is kept here. Spark gets a short one instead, because
        it parses the text.
        """
        try:
            if not self._listener.ended:
                found = self._states() if self._places.lake.by_spark else None
                if found is None or found != self._reports:
                    self._audit()
                    self._reports = found or {}
                return
        except BaseException as error:
            self._failure = error
        raise EventdError("the batch did not finish")  # so that Spark does not commit it

    def _audit(self) -> None:
        with self._auditing:  # batches run on a thread of Spark
            self._audit_now()

    def _audit_now(self) -> None:
        begun = self._audited_at = self._clock.monotonic()
        request = replace(self._request.audit, since=self._request.since())
        report, hours, found = audit(self._session, request, clock=self._clock)
        made = 0
        if self._final is not None:
            if (first := first_hour(found)) is not None:
                self._final.forget(first)
            made = self._final.add(final_rows(found, hours, self._request.watermark), self._clock.now())
        self._batches, self._failures = self._batches + 1, 0
        self._listener.batch(StreamBatch(report, made, round(self._clock.monotonic() - begun, 3)))
        if report.failed:
            raise CheckFailed(
                f"the audit fails on {', '.join(report.failed)}", hint=f"see report.html in {shown(request.out)}"
            )

    def _reason(self, error: Exception, begun: int) -> BaseException:
        """Return the error of this program that caused or describes an exception of Spark.

        `begun`: the number of batches before the query.
        """
        failure = self._failure
        if isinstance(failure, EventdError | OSError):
            return self._as_unavailable(failure)
        text = without_secrets(str(failure or error), *self._request.audit.addresses, self._request.checkpoint)
        if ours := _OURS.findall(text):
            kinds: dict[str, type[EventdError]] = {
                one.__name__: one for one in (LakeUnavailable, LakeUnusable, NotFound)
            }
            return self._as_unavailable(kinds[ours[-1][0]](ours[-1][1]))
        if failure is None and self._batches == begun:
            ended = _ENDED.search(text)
            return EventdError(
                f"the stream cannot start: {ended[1] if ended else last_cause(text)}",
                hint=f"if its checkpoint {shown(self._request.checkpoint)} is corrupt, remove it: nothing else is lost",
            )
        return EventdError(f"the audit failed in Spark: {last_cause(text)}")

    def _as_unavailable(self, error: EventdError | OSError) -> BaseException:
        """Return the error, or LakeUnavailable for a missing lake that was found before: it may be unmounted."""
        if isinstance(error, NotFound) and self._found_before:
            return LakeUnavailable(error.message)
        return error
