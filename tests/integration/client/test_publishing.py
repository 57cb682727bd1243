"""Publishing over a real server: batching, the result for each event, and that a faulty network loses nothing."""

from __future__ import annotations

import asyncio
import uuid
from datetime import UTC, datetime
from typing import Any

import pytest

from eventd.client import Client, Lost, NewEvent
from eventd.errors import Conflict, Invalid, NotFound, TooLarge, Unavailable
from tests.integration.client.conftest import Pauses
from tests.support.flaky_proxy import LOST, UNANSWERED, Fault, FlakyProxy
from tests.support.publishing import apply_group, stored_subjects
from tests.support.v0 import Server


@pytest.fixture(autouse=True)
async def group(server: Server) -> None:
    await apply_group(server)


stored = stored_subjects
WAYS = pytest.mark.parametrize("websocket", [True, False], ids=["websocket", "requests"])


def facts(count: int) -> list[NewEvent]:
    return [NewEvent("t", subject=f"{number:04}") for number in range(count)]


@WAYS
async def test_what_is_emitted_together_is_stored_each_once(client: Client, server: Server, websocket: bool) -> None:
    events = facts(700)
    async with client.publisher("lab", window=64, websocket=websocket) as publisher:
        assert await asyncio.gather(*map(publisher.emit, events)) == ["new"] * 700
    assert sorted(await stored(server)) == [event.subject for event in events]
    assert len({event.id for event in events}) == 700
    assert {uuid.UUID(event.id).version for event in events} == {7}


async def test_all_that_is_given_is_stored(client: Client, server: Server) -> None:
    at = datetime(2026, 5, 30, 10, 13, 20, 500000, tzinfo=UTC)
    event = NewEvent(
        "t", "s", {"k": "v"}, id="i", source_node="z", dedupe_key="d", observed_at=at, expires_at=at.replace(year=2100)
    )
    async with client.publisher("lab") as publisher:
        assert await publisher.emit(event) == "new"
        assert await publisher.emit(NewEvent("t", ttl="1h")) == "new"
    async with server.session.get(f"{server.url}/api/v1/groups/lab/events?id=i") as answer:
        (shown,) = (await answer.json())["events"]
    assert {name: shown[name] for name in ("id", "sourceNode", "type", "subject", "dedupeKey", "payload")} == {
        "id": "i",
        "sourceNode": "z",
        "type": "t",
        "subject": "s",
        "dedupeKey": "d",
        "payload": {"k": "v"},
    }
    assert (shown["observedAt"], shown["expiresAt"]) == ("2026-05-30T10:13:20.500000Z", "2100-05-30T10:13:20.500000Z")


async def test_the_same_event_again_is_a_duplicate(client: Client, server: Server) -> None:
    event = NewEvent("t", "s")
    async with client.publisher("lab") as publisher:
        assert [await publisher.emit(event), await publisher.emit(event)] == ["new", "duplicate"]
    assert await stored(server) == ["s"]


@WAYS
async def test_each_event_is_refused_by_itself(client: Client, server: Server, websocket: bool) -> None:
    await_none = NewEvent("", "no type"), NewEvent("t", "large", {"k": "x" * 5000}), NewEvent("t", "\ud800")
    wrong = NewEvent("t", "wrong", {"k": 7})  # type: ignore[dict-item]
    unwritable = NewEvent("t", "unwritable", {"k": {1, 2}})  # type: ignore[dict-item]
    events = [
        NewEvent("t", "a", id="1"),
        *await_none,
        NewEvent("t", "b", id="1"),
        wrong,
        unwritable,
        NewEvent("t", "c"),
    ]
    async with client.publisher("lab", requests=1, websocket=websocket) as publisher:
        fates = [await publisher.emit(events[0]), *await publisher.emit_all(events[1:])]
    told = [fate if isinstance(fate, str) else (type(fate), fate.message) for fate in fates]
    assert told[0] == told[7] == "new"
    assert told[1] == (Invalid, "type is empty: an event has a type")
    assert told[2][0] in (Invalid, TooLarge), "as the others of its request are"
    assert "over the limit of 4096 of group lab" in told[2][1]
    assert told[3] == (Invalid, "subject contains a lone surrogate, which UTF-8 cannot express")
    assert told[4] == (Conflict, "the id 1 is taken in group lab by another event of a")
    assert told[5] == (Invalid, "payload['k'] is an int: each value of a payload is a text")
    assert told[6][0] is Invalid
    assert await stored(server) == ["a", "c"]


@WAYS
async def test_an_event_that_is_too_large_by_itself_is_so_for_its_emitter_alone(
    client: Client, websocket: bool
) -> None:
    async with client.publisher("lab", websocket=websocket) as publisher:
        with pytest.raises(TooLarge, match="over the limit of 4096"):
            await publisher.emit(NewEvent("t", payload={"k": "x" * 5000}))
        with pytest.raises(Conflict):
            await asyncio.gather(*map(publisher.emit, (NewEvent("t", "a", id="1"), NewEvent("t", "b", id="1"))))


@WAYS
async def test_what_is_too_large_for_one_request_goes_in_several(
    client: Client, server: Server, websocket: bool
) -> None:
    async with client.publisher("lab", window=4000, requests=1, websocket=websocket) as publisher:
        events = [NewEvent("t", f"{number:04}", {"k": "x" * 3500 if number < 600 else ""}) for number in range(1200)]
        assert await publisher.emit_all(events) == ["new"] * 1200
    async with server.session.get(f"{server.url}/api/v1/status") as answer:
        assert (await answer.json())["groups"][0]["events"] == 1200


@WAYS
async def test_a_group_that_is_not_there_is_told_to_each(client: Client, websocket: bool) -> None:
    async with client.publisher("lib", websocket=websocket) as publisher:
        fates = await publisher.emit_all(facts(3))
    assert [type(fate) for fate in fates] == [NotFound] * 3
    assert [str(fate) for fate in fates] == ["EventGroup lib is not declared (did you mean lab?)"] * 3
    assert len({id(fate) for fate in fates}) == 3


async def test_answers_that_get_lost_double_nothing(far: Client, network: FlakyProxy, server: Server) -> None:
    network.faults = [Fault("/events", what) for what in (LOST, UNANSWERED, 503, UNANSWERED)]
    async with far.publisher("lab", window=50, websocket=False) as publisher:
        fates = await publisher.emit_all(facts(300))
    assert set(fates) <= {"new", "duplicate"}
    assert sorted(await stored(server)) == [event.subject for event in facts(300)]
    assert "duplicate" in fates, "it was sent again, as it was"


async def test_it_gives_up_when_the_node_does_not_come_back(far: Client, network: FlakyProxy, pauses: Pauses) -> None:
    network.faults = [Fault("/events")] * 5
    async with far.publisher("lab", requests=1, websocket=False) as publisher:
        with pytest.raises(Lost):
            await publisher.emit(NewEvent("t"))
        assert len(pauses) == 4
        assert await publisher.emit(NewEvent("t")) == "new", "the next one is tried again"


@WAYS
async def test_whoever_is_cancelled_holds_nobody_up(client: Client, server: Server, websocket: bool) -> None:
    async with client.publisher("lab", window=2, websocket=websocket) as publisher:
        tasks = [asyncio.ensure_future(publisher.emit(event)) for event in facts(20)]
        await asyncio.sleep(0)
        for task in tasks[1::2]:
            task.cancel()
        fates = await asyncio.gather(*tasks, return_exceptions=True)
        assert fates[::2] == ["new"] * 10
        assert await publisher.emit(NewEvent("t", "last")) == "new"
    assert {event.subject for event in facts(20)[::2]} <= set(await stored(server))


@WAYS
async def test_its_end_waits_for_what_is_on_its_way(client: Client, server: Server, websocket: bool) -> None:
    publisher = client.publisher("lab", window=7, websocket=websocket)
    async with publisher:
        emitted = [asyncio.ensure_future(publisher.emit(event)) for event in facts(100)]
        await asyncio.sleep(0)
    assert await asyncio.gather(*emitted) == ["new"] * 100
    assert len(await stored(server)) == 100
    for _ in range(8):  # one more than the window has room for
        with pytest.raises(Unavailable, match="the publisher is not open"):
            await publisher.emit(NewEvent("t"))


async def test_an_end_in_trouble_waits_for_nothing(far: Client) -> None:
    emitted: list[asyncio.Future[str]] = []

    async def fail() -> None:
        async with publisher:
            emitted.extend(asyncio.ensure_future(publisher.emit(event)) for event in facts(9))
            await asyncio.sleep(0)
            raise ZeroDivisionError

    publisher = far.publisher("lab", window=3)
    with pytest.raises(ZeroDivisionError):
        await fail()
    fates = await asyncio.gather(*emitted, return_exceptions=True)
    assert {str(fate).partition(" (")[0] for fate in fates} == {
        "the publisher was closed before the event was confirmed"
    }
    async with publisher:
        assert await asyncio.gather(*map(publisher.emit, facts(9))) == ["new"] * 9, "it can be opened again"


def test_bounds_of_a_publisher(client: Client) -> None:
    with pytest.raises(Invalid, match="at least 1"):
        client.publisher("lab", window=0)


@WAYS
async def test_an_object_that_is_no_event_is_refused_alone(client: Client, server: Server, websocket: bool) -> None:
    wrong: Any = {"type": "t"}
    async with client.publisher("lab", websocket=websocket) as publisher:
        with pytest.raises(Invalid, match="is a NewEvent, not a dict"):
            await publisher.emit(wrong)
        one, two, three = await publisher.emit_all([NewEvent("t", "1"), wrong, NewEvent("t", "2")])
    assert (one, three) == ("new", "new")
    assert isinstance(two, Invalid)
    assert await stored(server) == ["1", "2"]
