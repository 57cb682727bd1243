"""Pages as frames of events: holes, limits, forms, and that each form is encoded once."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventd.api.quic.event_frames import NO_FRAMES, EventForm, frames_of
from eventd.api.topics.shared_reads import Page
from eventd.log.core.values import Head
from eventd.log.topics.topic_page import TopicPage
from eventd.streams.base64_text import read_bytes
from eventd.streams.frames import Flags, Frame, StreamFrameReader
from eventd.streams.layouts import EventBatch, read_events
from eventd.streams.names import StreamName
from eventd.streams.payloads import record_of

FORM = EventForm(64, 65_536)
NAME = StreamName("t", "n", "s")


def page_of(events: dict[int, bytes]) -> Page:
    """Return a page with these payloads by seq."""
    texts = [*map(record_of, events.values())]
    last = max(events, default=0)
    head = Head(last + 1, "e", 1, 1, 1, 1, "")
    found = TopicPage(1, NAME.topic, "e:1", texts, [*events], last, last, 1, None, last, True, False, True, head)
    return Page(NAME.topic, 0, found)


def frames(data: bytes) -> list[Frame]:
    return [*StreamFrameReader().feed(data)]


def batches(data: bytes) -> list[EventBatch]:
    return [read_events(frame.flags, frame.payload) for frame in frames(data)]


def sizes(found: Sequence[EventBatch]) -> list[tuple[int | None, int]]:
    return [(batch.base_offset, len(batch.payloads)) for batch in found]


def test_a_page_is_one_frame_with_the_offset_of_its_first_event() -> None:
    made = frames_of(page_of({7: b"a", 8: b"\xff"}), FORM)
    [frame] = frames(made.data)
    assert frame.flags == Flags.SHARED_EVENTS | Flags.OFFSETS
    assert batches(made.data) == [EventBatch([b"a", b"\xff"], None, 6)]
    assert (made.events, made.size) == (2, 2)


def test_a_hole_ends_a_frame() -> None:
    made = frames_of(page_of({seq: b"x" for seq in (3, 4, 6, 9, 10)}), FORM)
    assert sizes(batches(made.data)) == [(2, 2), (5, 1), (8, 2)]


def test_a_frame_has_at_most_so_many_events() -> None:
    made = frames_of(page_of({seq: b"" for seq in range(1, 131)}), FORM)
    assert sizes(batches(made.data)) == [(0, 64), (64, 64), (128, 2)]


def test_a_frame_has_at_most_so_many_bytes_and_a_larger_event_is_alone() -> None:
    events = {1: bytes(60), 2: bytes(40), 3: bytes(1), 4: bytes(101), 5: bytes(100), 6: b""}
    made = frames_of(page_of(events), EventForm(64, 100))
    assert [[len(each) for each in batch.payloads] for batch in batches(made.data)] == [[60, 40], [1], [101], [100, 0]]


def test_without_offsets_a_frame_is_only_the_payloads() -> None:
    [frame] = frames(frames_of(page_of({7: b"a"}), FORM._replace(offsets=False)).data)
    assert frame.flags == Flags.SHARED_EVENTS
    assert frame.payload == b"\0\0\0\1\0\0\0\1a"


def test_as_json_a_frame_is_a_message_in_base64() -> None:
    [frame] = frames(frames_of(page_of({7: b"a", 8: b"\xff"}), FORM._replace(as_json=NAME)).data)
    assert frame.flags == 0
    assert frame.payload == (
        b'{"type":"event_batch","tenant_id":"t","namespace":"n","stream":"s","payloads":["YQ==","/w=="],"base_offset":6}'
    )


def test_each_form_of_a_page_is_made_once() -> None:
    page = page_of({1: b"a"})
    assert frames_of(page, FORM) is frames_of(page, EventForm(64, 65_536))
    assert frames_of(page, FORM) is not frames_of(page, FORM._replace(offsets=False))


@pytest.mark.parametrize("page", [page_of({}), Page("t", 0, None)])
def test_a_page_without_records_has_no_frames(page: Page) -> None:
    assert frames_of(page, FORM) is NO_FRAMES


@given(
    st.dictionaries(st.integers(1, 60), st.binary(max_size=40), min_size=1),
    st.integers(1, 8),
    st.integers(1, 100),
    st.booleans(),
)
def test_every_event_has_its_offset_and_no_frame_is_too_large(
    events: dict[int, bytes], most: int, size: int, as_json: bool
) -> None:
    events = dict(sorted(events.items()))
    made = frames_of(page_of(events), EventForm(most, size, as_json=NAME if as_json else None))
    if as_json:
        messages = [json.loads(frame.payload) for frame in frames(made.data)]
        found = [EventBatch([*map(read_bytes, each["payloads"])], None, each["base_offset"]) for each in messages]
    else:
        found = batches(made.data)
    numbered = [(batch.base_offset or 0, batch.payloads) for batch in found]
    assert {base + 1 + i: each for base, payloads in numbered for i, each in enumerate(payloads)} == events
    for batch in found:
        assert 1 <= len(batch.payloads) <= most
        assert sum(map(len, batch.payloads)) <= size or len(batch.payloads) == 1
    assert (made.events, made.size) == (len(events), sum(map(len, events.values())))
