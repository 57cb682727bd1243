"""Dead letters of all owners in one list: filters, pages, groups with bounded counts, and what a key may see."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from eventd.log.core.eventlog import EventLog
from eventd.log.delivery import dead_letter_groups
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import bulk_insert
from eventd.testing import NOW, ManualClock
from tests.support import operations
from tests.support.fresh import on_sqlite
from tests.support.group_ledger import GroupLedger

COLUMNS = ("cursor", "position", "topic_id", "event_id", "reason", "detail", "attempts", "parked_at")


@pytest.fixture
async def books(log: EventLog, clock: ManualClock) -> GroupLedger:
    """The groups g and h with dead letters of two peers, a subscription and a callback."""
    found = GroupLedger(log, clock)
    await found.declare("b", "c")
    await found.declare("d", group="h")
    await park(found, "peer:g/b", "g", 3, "loop")
    await park(found, "peer:g/c", "g", 2, "too_large")
    await park(found, "subscription:g/s", "g", 1, "failed")
    await park(found, "callback:hook", "h", 2, "410")
    await park(found, "peer:h/d", "h", 1, "loop")
    return found


async def park(books: GroupLedger, cursor: str, group: str, count: int, reason: str) -> None:
    topic = await books.log.topic(f"group:{group}")
    rows = [(cursor, at, topic, f"{cursor}-{at}", reason, "said so", 1, NOW) for at in range(1, count + 1)]

    def write(conn: Connection) -> None:
        bulk_insert(conn, "dead_letters", COLUMNS, rows)

    await books.log.database.write(write)


async def owners(books: GroupLedger, **asked: Any) -> list[str]:
    answer = await books.call("dead_letters.all", **asked)
    return [f"{one['kind']}/{one['owner']}" for one in answer["deadLetters"]]


def counts(answer: dict[str, Any]) -> dict[str, int]:
    return {f"{one['kind']}:{one['group']}/{one['owner']} {one['reason']}": one["count"] for one in answer["groups"]}


async def test_all_are_listed_newest_first_and_counted_by_owner_and_reason(books: GroupLedger) -> None:
    answer = await books.call("dead_letters.all")
    ids = [one["id"] for one in answer["deadLetters"]]
    assert ids == sorted(ids, reverse=True)
    assert len(ids) == 9
    assert answer["next"] is None
    assert answer["groupsComplete"]
    assert counts(answer) == {
        "callback:h/hook 410": 2,
        "peer:g/b loop": 3,
        "peer:g/c too_large": 2,
        "peer:h/d loop": 1,
        "subscription:g/s failed": 1,
    }
    assert all(one["exact"] for one in answer["groups"])


async def test_each_filter_narrows_the_list_and_the_groups(books: GroupLedger) -> None:
    assert await owners(books, kind="callback") == ["callback/hook"] * 2
    assert await owners(books, owner="b") == ["peer/b"] * 3
    assert await owners(books, group="h") == ["peer/d", "callback/hook", "callback/hook"]
    assert await owners(books, reason="loop", kind="peer", group="g") == ["peer/b"] * 3
    assert await owners(books, kind="queue") == []
    assert counts(await books.call("dead_letters.all", reason="loop")) == {"peer:g/b loop": 3, "peer:h/d loop": 1}


@pytest.mark.parametrize("asked", [{}, {"kind": "peer"}])
@pytest.mark.parametrize("most", [200, 2])
async def test_pages_meet_without_overlap(
    books: GroupLedger, monkeypatch: pytest.MonkeyPatch, asked: dict[str, Any], most: int
) -> None:
    every = [one["id"] for one in (await books.call("dead_letters.all", **asked))["deadLetters"]]
    monkeypatch.setattr(dead_letter_groups, "MOST_GROUPS", most)
    found: list[int] = []
    after = 0
    while after is not None:
        page = await books.call("dead_letters.all", limit=2, after=after, brief=True, **asked)
        found += [one["id"] for one in page["deadLetters"]]
        after = page["next"]
        assert page["groupsComplete"] == (most == 200)
        assert page["groups"] == []
    assert found == every


async def test_counts_are_exact_up_to_a_bound(books: GroupLedger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letter_groups, "COUNTED", 2)
    groups = (await books.call("dead_letters.all", kind="peer", group="g"))["groups"]
    assert [(one["owner"], one["count"], one["exact"]) for one in groups] == [("b", 2, False), ("c", 2, True)]
    monkeypatch.setattr(dead_letter_groups, "MOST_COUNTED", 3)
    groups = (await books.call("dead_letters.all", kind="peer"))["groups"]
    assert [(one["owner"], one["count"], one["exact"]) for one in groups][1:] == [("c", 1, False), ("d", 1, True)]


@pytest.mark.parametrize("most", [200, 1])
@on_sqlite
async def test_a_key_for_some_names_sees_only_their_dead_letters_and_counts(
    books: GroupLedger, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(dead_letter_groups, "MOST_GROUPS", most)
    narrow = replace(books.services, sees=lambda name: name.startswith("h"))
    answer = await operations.run(narrow, "dead_letters.all")
    assert {one["group"] for one in answer["deadLetters"]} == {"h"}
    assert {one["group"] for one in answer["groups"]} == {"h"}
    assert len(answer["deadLetters"]) == 3


async def test_very_many_are_counted_up_to_the_bound(books: GroupLedger) -> None:
    for at in range(4):
        await park(books, f"peer:g/many{at}", "g", 10_100, "many")
    await park(books, "peer:g/last", "g", 1, "rare")
    answer = await books.call("dead_letters.all", reason="loop")
    rare = await books.call("dead_letters.all", limit=1)
    assert [one["reason"] for one in rare["deadLetters"]] == ["rare"]
    assert len(answer["deadLetters"]) == 4
    assert {one["count"] for one in rare["groups"] if one["reason"] == "many"} == {10_000}


@on_sqlite
async def test_the_dead_letters_of_a_router_are_for_keys_that_see_the_router(books: GroupLedger) -> None:
    await park(books, "router:orders->audit", "g", 1, "too_large")
    assert await owners(books, kind="router") == ["router/orders->audit"]
    narrow = replace(books.services, sees=lambda name: name.startswith("g"))
    answer = await operations.run(narrow, "dead_letters.all")
    assert {one["kind"] for one in answer["deadLetters"] + answer["groups"]} == {"peer", "subscription"}
