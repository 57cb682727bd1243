"""The span of a received batch, and the traces of the events in it, for the nodes they are forwarded to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from eventd.ingress.batch import StoreResult, VerifiedBatch
from eventd.tracing import tracing
from eventd.tracing.contexts import BatchTrace
from eventd.tracing.spans import Attributes

UNTRACED: Final = BatchTrace()
"""Stands for a batch whose sender names no traces, or whose traces are ignored."""


@contextmanager
def receiving(batch: VerifiedBatch, trace: BatchTrace) -> Iterator[Callable[[StoreResult], StoreResult]]:
    """Open the span `receive` while a batch is stored. Yields a function, to be called with the result."""
    header = batch.header
    about: Attributes = {
        "eventd.group": header.group,
        "eventd.node": header.to_node,
        "eventd.peer": header.from_node,
        "eventd.batch": header.batch_id,
        "eventd.events": len(batch.positions),
    }
    # A position that is not in the batch links to nothing: a sender may write what it likes.
    sampled = [(index, trace.events[at]) for index, at in enumerate(batch.positions) if at in trace.events]
    links = [context for _, context in sampled]
    with tracing.span("receive", "server", parent=trace.parent, links=links, attributes=about) as span:

        def note(stored: StoreResult) -> StoreResult:
            span.set("eventd.accepted", stored.accepted)
            if stored.stored_at:
                for index, context in sampled:
                    tracing.sampled.remember([stored.stored_at[index]], context)
            return stored

        yield note
