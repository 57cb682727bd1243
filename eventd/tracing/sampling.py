"""The default sampler, if the environment names none: it records all traces of an idle node, and some of a busy
one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from opentelemetry.context import Context
from opentelemetry.sdk.trace.sampling import Decision, ParentBased, Sampler, SamplingResult
from opentelemetry.trace import Link, SpanKind, TraceState
from opentelemetry.util.types import Attributes

TRACES_PER_SECOND: Final = 50.0
"""Maximum number of traces that begin in a process in a second: a span costs as much as 5 to 10 events."""


def default_sampler(monotonic: Callable[[], float]) -> Sampler:
    """Return the sampler: spans with a parent follow it, and those that begin a trace have a limited rate."""
    return ParentBased(_RateLimited(TRACES_PER_SECOND, monotonic))


class _RateLimited(Sampler):
    """Samples a limited number of traces a second, and each span with a link to a sampled span, to keep pictures
    complete."""

    def __init__(self, rate: float, monotonic: Callable[[], float]) -> None:
        self._rate = rate
        self._monotonic = monotonic
        self._left = rate
        self._at = monotonic()

    def should_sample(
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: SpanKind | None = None,
        attributes: Attributes = None,
        links: Sequence[Link] | None = None,
        trace_state: TraceState | None = None,
    ) -> SamplingResult:
        linked = any(link.context.trace_flags.sampled for link in links or ())
        taken = linked or self._take()
        return SamplingResult(Decision.RECORD_AND_SAMPLE if taken else Decision.DROP, attributes if taken else None)

    def _take(self) -> bool:
        now = self._monotonic()
        self._left = min(self._rate, self._left + (now - self._at) * self._rate)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True

    def get_description(self) -> str:
        return f"RateLimited({self._rate:g}/s)"
