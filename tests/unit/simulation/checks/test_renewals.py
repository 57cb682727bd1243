"""The check of topics that are created again names a stream that continues in another topic, or skips records."""

from __future__ import annotations

from typing import Any

import pytest

from eventd.simulation.checks.renewals import RenewalReference
from eventd.simulation.load.renewals import DELETION, RENEWAL, RENEWED_STREAM
from eventd.simulation.world.event_stream import SentEvent
from eventd.simulation.world.journal import Asked, Journal


def written(number: int, at: float, status: int = 200) -> Asked:
    return Asked(RENEWAL, "a", at - 0.1, at, status, {"records": [{"data": {"topic": number}}]}, {})


def deleted(at: float, status: int = 200) -> Asked:
    return Asked(DELETION, "a", at - 0.1, at, status, None, None)


def records(topic: int, *seqs: int, event_id: str = "") -> SentEvent:
    sent = [{"$seq": seq, "data": {"topic": topic}} for seq in seqs]
    return SentEvent(2.1, "record", event_id or f"{topic} {seqs[-1]}", {"records": sent})


def caught_up(seq: int, event_id: str = "end") -> SentEvent:
    return SentEvent(2.2, "caught-up", event_id, {"head_seq": seq})


def tombstone(reason: str = "recreated") -> SentEvent:
    return SentEvent(2.05, "tombstone", "begin", {"reason": reason, "earliest_seq": 1})


def found(*streams: tuple[str, list[SentEvent]], writes: list[Asked], status: int = 200) -> set[str]:
    """Return what streams after these last ids violate, the first from the time 2 on; the second has the status."""
    asked = list(writes)
    for number, (last_id, events) in enumerate(streams):
        question: dict[str, Any] = {"wid": "w", "last_id": last_id}
        answered = status if number == 1 else 200
        asked.append(Asked(RENEWED_STREAM, "a", 2.0 + number, 2.5 + number, answered, question, events))
    return {each.invariant for each in RenewalReference(Journal(asked, []), "a", 0.0).violations()}


FIRST = ("", [records(0, 1, 2, 3), caught_up(3, "0 3")])
WRITES = [deleted(0.5), written(0, 1.0), deleted(1.9), written(1, 2.9)]


@pytest.mark.parametrize(
    ("last_id", "events"),
    [
        ("0 3", [tombstone(), records(1, 1, 2), records(1, 3), caught_up(3)]),
        ("", [tombstone(), records(1, 1)]),
        ("0 3", [SentEvent(3.0, "topic-deleted", "", {})]),
    ],
)
def test_a_stream_that_begins_with_a_tombstone_violates_nothing(last_id: str, events: list[SentEvent]) -> None:
    assert found(FIRST, (last_id, events), writes=WRITES) == set()


@pytest.mark.parametrize(
    ("last_id", "events"),
    [
        ("0 3", [caught_up(3)]),  # nothing tells the client of the new topic
        ("0 3", [records(1, 4)]),
        ("0 3", [tombstone(), records(1, 2)]),
        ("0 3", [tombstone(), records(1, 1, 3)]),
        ("0 3", [tombstone(), records(1, 1), caught_up(2)]),
        ("0 3", [tombstone("cap"), records(1, 1)]),
        ("0 3", [tombstone(), records(1, 1, 2, 3, event_id="0 3")]),  # one id for two topics
    ],
)
def test_a_stream_that_continues_wrongly_is_named(last_id: str, events: list[SentEvent]) -> None:
    assert found(FIRST, (last_id, events), writes=WRITES) == {"V14"}


@pytest.mark.parametrize(
    ("deletion", "violations"),
    [(deleted(1.9), set()), (deleted(0.5), {"V14"}), (deleted(0.5, status=0), set()), (deleted(9.0), {"V14"})],
)
def test_a_tombstone_in_a_topic_that_was_not_deleted_is_named(deletion: Asked, violations: set[str]) -> None:
    """A deletion that was not answered may come late."""
    writes = [deletion, written(0, 1.0)]
    assert found(FIRST, ("0 3", [tombstone(), records(0, 1, 2, 3)]), writes=writes) == violations


def test_a_topic_of_before_the_session_may_be_there_again_after_a_restore() -> None:
    assert found(FIRST, writes=[written(0, 1.0), written(1, 1.5)]) == set()


def test_a_stream_without_an_answer_may_have_begun_or_not() -> None:
    first, writes = ("", [records(0, 1), records(0, 2, 3)]), WRITES[:1]
    for seq, violations in ((1, set()), (2, set()), (3, {"V14"})):
        streams = [first, ("0 1", []), ("", [records(0, seq)])]
        assert found(*streams, writes=writes, status=0) == violations


def test_the_records_of_a_write_without_an_answer_may_come_into_the_next_topic() -> None:
    late = [tombstone(), records(1, 1), records(0, 2)]
    assert found(("", late), writes=[written(0, 1.0), written(1, 1.5)]) == {"V14"}
    assert found(("", late), writes=[written(0, 0.9, 0), written(0, 1.0), written(1, 1.5)]) == set()
