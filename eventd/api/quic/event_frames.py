"""The frames of a page of a stream: its records as batches of events, encoded once for all subscribers of a form."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from eventd.api.topics.shared_reads import Page
from eventd.streams.base64_text import write_bytes
from eventd.streams.frames import encode_frame
from eventd.streams.layouts import EventBatch, write_events
from eventd.streams.messages import EventBatchMessage, write_message
from eventd.streams.names import StreamName
from eventd.streams.payloads import payloads_of


class EventForm(NamedTuple):
    """The form of a subscriber's events: the maximum of events, and of the bytes of their payloads, in a frame.

    `offsets`: whether binary frames contain the offset. `as_json`: the stream whose events are messages instead.
    """

    max_events: int
    max_bytes: int
    offsets: bool = True
    as_json: StreamName | None = None


class EventFrames(NamedTuple):
    """Whole frames and their number, with the number of their events and the bytes of the payloads."""

    data: bytes
    frames: int
    events: int
    size: int


NO_FRAMES = EventFrames(b"", 0, 0, 0)


def frames_of(page: Page, form: EventForm) -> EventFrames:
    """Return the records of a page as frames, which are made once for each form."""
    found = page.found
    if found is None or not found.records:
        return NO_FRAMES
    return page.made(form, lambda: _encode(found.seqs, found.records, form))


def _encode(seqs: Sequence[int], records: Sequence[str], form: EventForm) -> EventFrames:
    payloads = payloads_of(records)
    sizes = [*map(len, payloads)]
    frames = [
        _frame(payloads[start:stop], seqs[start] - 1, form)
        for first, last in runs_of(seqs)
        for start, stop in split(sizes, first, last, form)
    ]
    return EventFrames(b"".join(frames), len(frames), len(payloads), sum(sizes))


def _frame(payloads: Sequence[bytes], base: int, form: EventForm) -> bytes:
    if form.as_json is None:
        return write_events(EventBatch(payloads, base_offset=base if form.offsets else None))
    tenant, namespace, stream = form.as_json
    texts = [*map(write_bytes, payloads)]
    message = EventBatchMessage(tenant_id=tenant, namespace=namespace, stream=stream, payloads=texts, base_offset=base)
    return encode_frame(0, write_message(message))


def runs_of(seqs: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the index ranges, from inclusive to exclusive, of consecutive seqs: a hole ends a frame."""
    start, end = 0, len(seqs)
    if seqs[-1] - seqs[0] == end - 1:
        yield 0, end
        return
    for index in range(1, end):
        if seqs[index] != seqs[index - 1] + 1:
            yield start, index
            start = index
    yield start, end


def split(sizes: Sequence[int], first: int, last: int, form: EventForm) -> Iterator[tuple[int, int]]:
    """Yield the index ranges of frames for the payloads from `first` to before `last`.

    A payload that is too large to share a frame is alone.
    """
    start = first
    while start < last:
        stop = min(start + form.max_events, last)
        if sum(sizes[start:stop]) > form.max_bytes:
            ends = accumulate(sizes[start:stop])
            stop = start + max(1, sum(1 for end in ends if end <= form.max_bytes))
        yield start, stop
        start = stop
