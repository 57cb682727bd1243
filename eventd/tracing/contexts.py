"""Trace contexts as text: `traceparent` (W3C Trace Context) and the hints that travel with a batch."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

TRACEPARENT: Final = "traceparent"
HINTS: Final = "Eventd-Trace"
"""The header with the contexts of sampled events of a batch: `POSITION=CONTEXT, …`, positions of the sender."""
MOST_HINTS: Final = 64
_LONGEST: Final = MOST_HINTS * 80
_CONTEXT: Final = re.compile(r"00-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})")
_LATER: Final = re.compile(rf"(?!00|ff)[0-9a-f]{{2}}-{_CONTEXT.pattern[3:]}(-.*)?")
"""A later version of `traceparent`, of which the known fields are read (W3C Trace Context, 4.3)."""
_HINT: Final = re.compile(rf"([1-9][0-9]{{0,18}})=({_CONTEXT.pattern})")


class TraceContext(NamedTuple):
    """A reference to a span: the ids of its trace (32 hex digits) and of the span (16), and whether it is recorded."""

    trace_id: str
    span_id: str
    sampled: bool

    def show(self) -> str:
        """Return the value of `traceparent` (W3C Trace Context, 3.2)."""
        return f"00-{self.trace_id}-{self.span_id}-{'01' if self.sampled else '00'}"


def read_context(text: str | None) -> TraceContext | None:
    """Return the context of a `traceparent`; None for any other text, as if there were none."""
    found = (_CONTEXT.fullmatch(text) or _LATER.fullmatch(text)) if text else None
    return None if found is None else TraceContext(found[1], found[2], bool(int(found[3], 16) & 1))


class BatchTrace(NamedTuple):
    """The trace contexts that a sender gives for a batch: its own span, and the contexts of sampled events by
    position.

    They are not signed: use them for links between spans, never for a decision.
    """

    parent: TraceContext | None = None
    events: Mapping[int, TraceContext] = MappingProxyType({})


def read_batch_trace(headers: Mapping[str, str]) -> BatchTrace:
    """Return the trace contexts in the headers of a batch, without those in malformed headers."""
    return BatchTrace(read_context(headers.get(TRACEPARENT)), read_hints(headers.get(HINTS)))


def read_hints(text: str | None) -> dict[int, TraceContext]:
    """Return the contexts of sampled events by position.

    Empty if any part of the header is malformed or there are too many.
    """
    if not text or len(text) > _LONGEST:
        return {}
    parts = text.split(", ")
    found = [match for part in parts if (match := _HINT.fullmatch(part))]
    if len(found) != len(parts) or len(found) > MOST_HINTS:
        return {}
    contexts = {int(match[1]): read_context(match[2]) for match in found}
    return {position: context for position, context in contexts.items() if context is not None and context.sampled}


NO_TRACE: Final[Mapping[str, str]] = MappingProxyType({})
"""The headers of a request without a trace."""


def trace_headers(context: TraceContext | None, hints: Iterable[tuple[int, TraceContext]] = ()) -> dict[str, str]:
    """Return the headers that hand a context, and those of sampled events, to the receiver of a request."""
    if context is None:
        return {}
    told = show_hints(hints)
    return {TRACEPARENT: context.show(), **({HINTS: told} if told else {})}


def show_hints(hints: Iterable[tuple[int, TraceContext]]) -> str:
    """Return the value of the header `Eventd-Trace`."""
    return ", ".join(f"{position}={context.show()}" for position, context in hints)
