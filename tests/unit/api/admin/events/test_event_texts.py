"""Events that are validated as texts, in pieces: the same are refused as when they are decoded first."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import Raw

from eventd.api.admin.events import event_texts
from eventd.api.admin.events.emitted import BadEvents, EventsTooLarge, drafts_from
from eventd.api.admin.events.event_texts import are_texts, decode_texts
from eventd.errors import EventdError
from eventd.resources.group_configuration import GroupConfig
from eventd.resources.reading.problems import MOST_FOUND
from eventd.testing import NOW
from tests.unit.api.admin.events.test_event_columns import EDGE as GROUP

GOOD = {"type": "t", "payload": {"a": "b"}}
LARGE = {"type": "t", "payload": {"a": "x" * GROUP.limits.max_event_bytes}}
FAR = {"type": "t", "payload": {"a": "x" * 3 * GROUP.limits.max_event_bytes}}


def texts_of(events: list[Any]) -> list[Any]:
    return msgspec.json.decode(msgspec.json.encode(events), type=list[Raw])


def refused(events: list[Any], group: GroupConfig) -> tuple[type[EventdError], list[int], int]:
    judge: Any = decode_texts if are_texts(events) else drafts_from
    with pytest.raises((BadEvents, EventsTooLarge)) as error:
        judge(events, group, now=NOW, random=bytes)
    detail = error.value.detail
    return type(error.value), [problem["index"] for problem in detail], len(detail)


@pytest.mark.parametrize(
    "events",
    [
        [GOOD, {"tipe": "x"}],
        [GOOD] * 5 + [7, None, {"type": "t", "ttl": "soon"}] + [GOOD] * 5 + [{"type": ""}],
        [GOOD] * 5 + [LARGE] + [GOOD] * 5 + [LARGE],
        [LARGE, {"type": ""}, GOOD, GOOD, GOOD, GOOD, LARGE],
        [{"type": ""}] * (2 * MOST_FOUND),
    ],
)
def test_the_same_events_are_refused(events: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_texts, "_EVENTS", 3)
    assert refused(texts_of(events), GROUP) == refused(events, GROUP)


def test_an_event_far_over_the_limit_is_refused_before_it_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_texts, "_EVENT", None)
    assert refused(texts_of([FAR]), GROUP) == (EventsTooLarge, [0], 1)


@pytest.mark.parametrize("padding", [" ", "\n", "\t", "\r"])
def test_white_space_and_escapes_do_not_count(padding: str) -> None:
    most = GROUP.limits.max_event_bytes
    escaped = "\\u0061" * (most // 2)
    body = f'[{{"type":"t",{padding * 3 * most}"payload":{{"a":"{escaped}"}}}}]'
    events = msgspec.json.decode(body.encode(), type=list[Raw])
    decode_texts(events, GROUP, now=NOW, random=bytes)
    assert events[0].payload == {"a": "a" * (most // 2)}


def test_all_events_are_decoded_where_they_are() -> None:
    events = texts_of([GOOD, {"type": "u", "seq": 3}])
    decode_texts(events, GROUP, now=NOW, random=bytes)
    assert not are_texts(events)
    drafts = drafts_from(events, GROUP, now=NOW, random=bytes)
    assert drafts.types == {"t", "u"}


def test_nothing_is_decoded_where_one_is_wrong() -> None:
    events = texts_of([GOOD, {"type": ""}])
    with pytest.raises(BadEvents):
        decode_texts(events, GROUP, now=NOW, random=bytes)
    assert all(isinstance(event, Raw) for event in events)
