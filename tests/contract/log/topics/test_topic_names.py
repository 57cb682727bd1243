"""The names of topics by their ids, for the rates, which are counted by id."""

from __future__ import annotations

from eventd.log.core.eventlog import EventLog
from eventd.log.core.topic_row import read_topic_names


async def test_topics_in_use_have_their_names(log: EventLog) -> None:
    ids = [await log.topic(f"group:g{number}") for number in range(3)]
    read = log.database.read
    assert await read(read_topic_names, ids[:2]) == {ids[0]: "group:g0", ids[1]: "group:g1"}
    assert await read(read_topic_names, [ids[2], 10**9]) == {ids[2]: "group:g2"}
    assert await read(read_topic_names, []) == {}
