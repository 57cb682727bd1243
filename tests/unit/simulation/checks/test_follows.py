"""The checks of pages name a missing record, one with other data, and a tombstone without a loss."""

from __future__ import annotations

from typing import Any

import pytest

from eventd.simulation.checks.follows import FollowReference
from eventd.simulation.load.follows import FOLLOW
from eventd.simulation.world.journal import Asked, Journal


def page(*records: dict[str, Any], upto: int = 1, **answer: Any) -> Asked:
    """Return a page of the group's topic, after seq 0, with these records."""
    document = {"topic": "group:site", "epoch": "e", "tombstone": None, "records": list(records), "next_from_seq": upto}
    return Asked(FOLLOW, "a", 5.0, 5.1, 200, {"from_seq": 0, "epoch": "e"}, document | answer, path="group:site")


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
