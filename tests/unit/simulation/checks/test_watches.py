"""The checks of watches name a lost, repeated, missing or changed record, and a tombstone without a loss."""

from __future__ import annotations

from typing import Any

import pytest

from eventd.simulation.checks.watches import WatchReference
from eventd.simulation.load.watches import GROUP_TOPIC, LOOKING, SESSION, WATCH, WATCHED, id_of_places, watched_record
from eventd.simulation.world.event_stream import SentEvent
from eventd.simulation.world.journal import Asked, Journal

CONTENT = {"text": "x"}


def records(*numbers: int, after: int = 0) -> SentEvent:
    sent = [{"$seq": seq, "data": watched_record(number)["data"]} for seq, number in enumerate(numbers, after + 1)]
    upto = after + len(numbers)
    data = {"topic": WATCHED, "from_seq": after, "to_seq": upto, "records": sent}
    return SentEvent(5.1, "record", id_of_places({WATCHED: upto}), data)


def caught_up(seq: int) -> SentEvent:
    return SentEvent(5.2, "caught-up", id_of_places({WATCHED: seq}), {"topic": WATCHED, "head_seq": seq})


def found(*events: SentEvent, topic: str = WATCHED) -> set[str]:
    """Return the invariants that these events violate on a stream that reads all, after writes of records 0 and 1."""
    session = {"wid": "w", "topics": {topic: {"from_seq": 0}}}
    question = {"wid": "w", "last_id": "", "lane": LOOKING, "pause": 0.0}
    emitted = {"events": [{"id": "e", "type": "door.open", "payload": CONTENT}]}
    journal = Journal(
        [
            Asked("emit", "a", 1.0, 1.1, 200, emitted, {"results": []}),
            Asked("watched write", "a", 1.0, 1.1, 200, {"records": [watched_record(0)]}, {"seqs": [1], "last_seq": 1}),
            Asked("watched write", "a", 2.0, 2.1, 200, {"records": [watched_record(1)]}, {"seqs": [2], "last_seq": 2}),
            Asked(SESSION, "a", 4.0, 4.1, 200, {}, session),
            Asked(WATCH, "a", 5.0, 5.5, 200, question, ("hung up", list(events))),
        ]
    )
    return {each.invariant for each in WatchReference(journal, "a", 0.0).violations()}


def test_a_topic_that_is_read_whole_violates_nothing() -> None:
    assert found(records(0, 1), caught_up(2)) == set()


def test_an_error_of_the_stream_violates_nothing() -> None:
    error = SentEvent(5.2, "error", id_of_places({WATCHED: 1}), {"error": "overloaded"})
    assert found(records(0), error) == set()


@pytest.mark.parametrize(
    ("events", "violation"),
    [
        ([records(0), caught_up(1)], "V3"),
        ([records(0, 1, 1), caught_up(3)], "V5"),
        ([records(1, 0), caught_up(2)], "V7"),
        ([records(1, after=1), caught_up(2)], "V14"),
        ([records(0), caught_up(2)], "V14"),
        ([SentEvent(5.1, "tombstone", "", {"topic": WATCHED, "earliest_seq": 1})], "V10"),
    ],
)
def test_a_wrong_stream_is_named(events: list[SentEvent], violation: str) -> None:
    assert violation in found(*events)


@pytest.mark.parametrize(("payload", "violations"), [(CONTENT, set()), ({"text": "y"}, {"V7"})])
def test_an_event_with_another_payload_is_named(payload: dict[str, Any], violations: set[str]) -> None:
    sent = [{"$seq": 1, "meta": {"id": "e"}, "data": payload}]
    data = {"topic": GROUP_TOPIC, "from_seq": 0, "to_seq": 1, "records": sent}
    assert found(SentEvent(5.1, "record", id_of_places({GROUP_TOPIC: 1}), data), topic=GROUP_TOPIC) == violations
