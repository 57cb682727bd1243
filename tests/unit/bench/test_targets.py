"""Written events have the requested size, and can be distinguished from others."""

from __future__ import annotations

import json

import pytest

from eventd.bench.targets import GroupTarget, TopicTarget
from eventd.errors import Invalid
from federation.event import Event, encode, from_micros, normalise

NOW = 1_780_000_000_000_000


@pytest.mark.parametrize("size", [350, 1000])
def test_an_event_is_about_as_large_as_was_asked_for(size: int) -> None:
    target = GroupTarget("edge", "a", "0a1b2c3d", size, NOW)
    for told in json.loads(target.batch(range(3)))["events"]:
        assert told["observedAt"] == "2026-05-28T20:26:40Z"
        event = Event(
            id=told["id"],
            group="edge",
            source_node="a",
            type=told["type"],
            subject=told["subject"],
            payload=told["payload"],
            observed_at=from_micros(NOW),
        )
        assert size - 6 <= len(encode(normalise(event, now=NOW))) <= size


def test_an_event_that_cannot_be_so_small_is_told() -> None:
    with pytest.raises(Invalid, match=r"at least \d{3} bytes"):
        GroupTarget("edge", "a", "0a1b2c3d", 64, NOW)


def test_ids_are_told_apart() -> None:
    target = GroupTarget("edge", "a", "0a1b2c3d", 350, NOW, types=3)
    events = json.loads(target.batch(range(4, 8)))["events"]
    assert [target.number_of(event["id"]) for event in events] == [4, 5, 6, 7]
    assert [event["id"] for event in events] == [target.id_of(number) for number in range(4, 8)]
    assert [event["type"][-1] for event in events] == ["1", "2", "0", "1"]
    assert len(events[0]["id"]) == 36
    for strange in ("x", "bench-0a1b2c3d-7", target.id_of(7).replace("0a", "0b"), target.id_of(7) + "0"):
        assert target.number_of(strange) == strange


def test_records_hold_their_numbers() -> None:
    records = json.loads(TopicTarget("t", 100).batch(range(2, 4)))["records"]
    assert [record["data"]["n"] for record in records] == [2, 3]
    assert {len(json.dumps(record["data"])) for record in records} <= {*range(90, 110)}
