"""The traces of this process: off until it has an exporter, and then a span for each request, commit, batch and run.

One for the process, as loggers are: a commit or a run of a plugin is deep below all that could hand over a tracer, and
OpenTelemetry reads its settings from the environment of the process, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar, Token
from typing import Final, Literal, Protocol

from eventd.tracing.contexts import TraceContext
from eventd.tracing.sampled import SampledEvents

Kind = Literal["server", "client", "internal"]
Value = str | int | float | bool
Attributes = Mapping[str, Value]


class _Held:
    """The context of the current span; None once the span has ended.

    A task that outlives the span that started it, such as the consumer of a new link, is no part of its trace.
    """

    __slots__ = ("context",)

    def __init__(self, context: TraceContext | None) -> None:
        self.context = context


_OUTSIDE: Final = _Held(None)
_CURRENT: Final[ContextVar[_Held]] = ContextVar("trace_context", default=_OUTSIDE)


class TracedWork(Protocol):
    """One piece of work that becomes a span, from its begin to its end. `context` is None while tracing is off."""

    @property
    def context(self) -> TraceContext | None: ...

    def set(self, name: str, value: Value) -> None:
        """Set an attribute."""
        ...

    def fail(self, reason: str) -> None:
        """Mark the work as failed. `reason` is a code or a class of errors, never what a caller has sent."""
        ...

    def discard(self) -> None:
        """Do not export this work: `end` has no effect."""
        ...

    def end(self) -> None: ...


class Exporter(Protocol):
    """Makes spans and exports them."""

    def begin(
        self,
        name: str,
        kind: Kind,
        parent: TraceContext | None,
        links: Iterable[TraceContext],
        attributes: Attributes,
        began: int | None,
    ) -> TracedWork:
        """Return a span that has begun, at `began` (nanoseconds since 1970) or now."""
        ...

    def report(self, kind: str, message: str, frames: str, about: Attributes, parent: TraceContext | None) -> None:
        """Export an error that a defect caused."""
        ...

    def counts(self) -> Mapping[str, int]:
        """Return the number of spans that were exported, that a collector has not taken, and that were dropped."""
        ...

    def loss(self) -> str:
        """Return why the last spans were not exported; empty if they were."""
        ...


class _NoSpan:
    """Takes the place of a span while tracing is off."""

    context = None

    def set(self, name: str, value: Value) -> None:
        pass

    def fail(self, reason: str) -> None:
        pass

    def discard(self) -> None:
        pass

    def end(self) -> None:
        pass


_NO_SPAN: Final = nullcontext[TracedWork](_NoSpan())


_NOTHING: Final = nullcontext[None](None)


@contextmanager
def _within(context: TraceContext) -> Iterator[None]:
    token = _CURRENT.set(_Held(context))
    try:
        yield
    finally:
        _CURRENT.reset(token)


class _Entered(AbstractContextManager[TracedWork]):
    """Makes a span the current one until the block ends.

    An error that leaves the block marks the span as failed, by its class alone.
    """

    __slots__ = ("_held", "_span", "_token")

    def __init__(self, span: TracedWork) -> None:
        self._span = span

    def __enter__(self) -> TracedWork:
        self._held = _Held(self._span.context)
        self._token: Token[_Held] = _CURRENT.set(self._held)
        return self._span

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        _CURRENT.reset(self._token)
        self._held.context = None
        if error is not None:
            self._span.fail(type(error).__name__)
        self._span.end()


class Tracing:
    """Makes the spans of this process. `on`: whether they are exported; otherwise nothing is made or remembered."""

    def __init__(self) -> None:
        self.on = False
        self.trusts_hints = True
        self.sampled = SampledEvents()
        self._exporter: Exporter | None = None

    def start(self, exporter: Exporter, *, trusts_hints: bool = True) -> None:
        """Turn tracing on: hand all further spans to an exporter.

        `trusts_hints`: whether contexts that peers send are used.
        """
        self._exporter, self.trusts_hints, self.on = exporter, trusts_hints, True

    def stop(self) -> None:
        """Turn tracing off: make no further spans."""
        self.on, self._exporter = False, None
        self.sampled.clear()

    def current(self) -> TraceContext | None:
        """Return the context of the span in which this task works; None outside of any."""
        return _CURRENT.get().context if self.on else None

    def within(self, context: TraceContext | None) -> AbstractContextManager[None]:
        """Return a context manager in which this context is the current one; with None, nothing changes."""
        return _NOTHING if context is None else _within(context)

    def span(
        self,
        name: str,
        kind: Kind = "internal",
        *,
        parent: TraceContext | None = None,
        links: Iterable[TraceContext] = (),
        attributes: Attributes | None = None,
    ) -> AbstractContextManager[TracedWork]:
        """Return a context manager for work that begins now. Without a parent, a trace of its own begins."""
        if self._exporter is None:
            return _NO_SPAN
        return _Entered(self._exporter.begin(name, kind, parent, links, attributes or {}, None))

    def past(
        self, name: str, began: int, *, links: Iterable[TraceContext], attributes: Attributes
    ) -> TraceContext | None:
        """Export a span that began at `began` (nanoseconds since 1970) and ends now; return its context."""
        if self._exporter is None:
            return None
        span = self._exporter.begin(name, "internal", None, links, attributes, began)
        span.end()
        return span.context

    def report(self, kind: str, message: str, frames: str, about: Attributes) -> None:
        """Export an error that a defect caused."""
        if self._exporter is not None:
            self._exporter.report(kind, message, frames, about, self.current())

    def counts(self) -> Mapping[str, int]:
        """Return the number of spans that were exported, not taken by a collector, and dropped."""
        return {} if self._exporter is None else self._exporter.counts()

    def loss(self) -> str:
        """Return why the last spans were not exported; empty if they were, and while tracing is off."""
        return "" if self._exporter is None else self._exporter.loss()


tracing: Final = Tracing()
