"""The checks of pages name a missing record, one with other data, and a tombstone without a loss."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from eventd.simulation.checks.follows import FollowReference
from eventd.simulation.load.follows import FOLLOW
from eventd.simulation.load.watches import GROUP_TOPIC
from eventd.simulation.world.journal import Asked, Journal
from eventd.simulation.world.retention import SmallRetention


def page(*records: dict[str, Any], upto: int = 1, **answer: Any) -> Asked:
    """Return a page of the group's topic, after seq 0, with these records."""
    document = {"topic": "group:site", "epoch": "e", "tombstone": None, "records": list(records), "next_from_seq": upto}
    return Asked(FOLLOW, "a", 5.0, 5.1, 200, {"from_seq": 0, "epoch": "e"}, document | answer, path="group:site")


def tombstone(last: int) -> dict[str, Any]:
    return {"reason": "cap", "gap_from": 1, "gap_to": last, "earliest_seq": last + 1}


def record(text: str = "x", name: str = "a-1") -> dict[str, Any]:
    return {"$seq": 1, "meta": {"id": name}, "data": {"text": text}}


@pytest.mark.parametrize(
    ("pages", "violations"),
    [
        ([page(record())], []),
        ([page(record(text="y"))], ["V7"]),
        ([page(record()), page(record(name="a-2"))], ["V7"]),
        ([page(record(), upto=2)], ["V14"]),
        ([page(record(), tombstone={"reason": "recreated"})], ["V10"]),
    ],
)
def test_a_wrong_page_is_named(pages: list[Asked], violations: list[str]) -> None:
    emitted = {"events": [{"id": "a-1", "type": "door.open", "payload": {"text": "x"}}]}
    journal = Journal([Asked("emit", "a", 1.0, 1.1, 200, emitted, {"results": []}), *pages])
    assert [each.invariant for each in FollowReference(journal, "a", 0.0).violations()] == violations


@pytest.mark.parametrize(
    ("page_of_group", "violations"),
    [
        (page(upto=3, tombstone=tombstone(3)), []),
        (page(upto=3), ["V14"]),  # without a tombstone
        (page(upto=3, tombstone=tombstone(2)), ["V14"]),  # of a part of what is missing
        (page(upto=4, tombstone=tombstone(4)), ["V10"]),  # of what retention keeps
    ],
)
def test_a_reader_gets_a_tombstone_for_what_retention_may_take(page_of_group: Asked, violations: list[str]) -> None:
    answer = page_of_group.answer | {"topic": GROUP_TOPIC, "head_seq": 5}
    journal = Journal([replace(page_of_group, answer=answer)], retentions={"a": SmallRetention(max_events=2)})
    found = [each.invariant for each in FollowReference(journal, "a", 0.0).violations()]
    assert found[:1] == violations


@pytest.mark.parametrize(("last", "violations"), [(2, []), (3, ["V10"]), (4, ["V10"])])
def test_a_tombstone_of_events_that_are_too_young_is_named(last: int, violations: list[str]) -> None:
    """The record of seq 3 was emitted a second before it is reported as evicted, and those after it even later."""
    emitted, answer = (
        {"events": [{"id": "a-3", "type": "door.open"}]},
        {"id": "a-3", "result": "new", "event": {"seq": 3}},
    )
    emit = Asked("emit", "a", 4.0, 4.1, 200, emitted, {"results": [answer]})
    lost = page(upto=last, tombstone=tombstone(last), topic=GROUP_TOPIC, head_seq=5)
    journal = Journal([emit, lost], retentions={"a": SmallRetention(max_age=3.0)})
    assert [each.invariant for each in FollowReference(journal, "a", 0.0).violations()][:1] == violations
