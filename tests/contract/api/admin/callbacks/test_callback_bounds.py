"""The operations on callbacks and the Routemaster surface, with values at and beyond every bound: never a fault."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import ValidationError

from eventd.api.errors.codes import API_FORM
from eventd.api.framework.operations import Services
from eventd.api.routes import OPERATIONS
from eventd.errors import Conflict, EventdError, Invalid, NotFound
from eventd.groups import callbacks
from eventd.log.core.eventlog import EventLog
from eventd.log.core.head import read_head
from eventd.log.cursors.cursors import read_cursors
from eventd.log.cursors.dead_letters import DeadLetter, insert_dead_letters
from eventd.log.routemaster.publish import PublishedEvent, PublishEvent
from eventd.log.routemaster.subscriptions import PutSubscriber, SubscriptionSettings
from eventd.log.routemaster.surface_topic import surface_topic_config
from eventd.log.topics.source_page import SourceStart
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import fetch
from eventd.store.rows.callback_cursors import callback_name
from eventd.testing import NOW, ManualClock, draft
from tests.support import operations

DECLARED = """
apiVersion: federation.routerd.net/v1alpha1
kind: EventGroup
metadata: {name: g}
spec: {nodeName: n}
---
apiVersion: federation.routerd.net/v1alpha1
kind: EventCallback
metadata: {name: hook}
spec: {source: {groupRef: g}, url: "https://billing.example/", from: earliest}
"""
SUBSCRIBER = "rm/app--1"
NUMBERS = (-(2**63), -1, 0, 1, 1000, 1001, 2**31, 2**32, 2**62, 2**63 - 2, 2**63 - 1)
"""The API refuses larger ones before any operation sees them."""
TIMES = (
    *("", "0s", "1ns", "-1s", "292y", "106751d", "2562047h", "99999999999h", f"{10**30}d", "soon", "now", "1" * 5000),
    *("0001-01-01T00:00:00Z", "1969-12-31T23:59:59Z", "9999-12-31T23:59:59Z", "9999-12-31T23:59:59-23:59"),
    *("0001-01-01T00:00:00+23:59", "10000-01-01T00:00:00Z", "2026-13-01T00:00:00Z", "2026-11-20T12:00:00.999999999Z"),
)
TEXTS = ("", "x", "rm/", "rm/none", "/", "..", "EventCallback/hook", "x" * 100_000, "\U0010ffff", "%00", "'; --")


@pytest.fixture
async def services(log: EventLog) -> Services:
    """A declared callback and a subscriber with three events each; the cursors are at the end of the log."""
    found = Services(log)
    await operations.run(found, "resources.apply", sources=[{"name": "f", "text": DECLARED}])
    wanted = SubscriptionSettings(("orders",), "https://app.example/", "")
    await log.submit(PutSubscriber("app--1", wanted, config=surface_topic_config(), random=bytes(16)))
    await log.append(await log.topic("group:g"), [draft(f"e{number}") for number in range(3)])
    for _ in range(3):
        event = PublishedEvent("orders", "create", "https://a")
        await log.submit(
            PublishEvent(event, "shop--1", flushes=log.flushes, config=surface_topic_config(), random=bytes(16))
        )
    await resume_at_the_end(found)
    return found


async def resume_at_the_end(services: Services) -> None:
    """Let both callbacks run, with all events sent."""
    for name in ("hook", SUBSCRIBER):
        await operations.run(services, "callbacks.resume", callback=name)
        await operations.run(services, "callbacks.reset", callback=name, latest=True)


async def attempt(services: Services, name: str, /, **params: Any) -> Any:
    """Return the answer, or the status of a refusal. Raises what would be a fault of the node."""
    try:
        return await operations.run(services, name, **params)
    except ValidationError:
        return 400
    except EventdError as error:
        if API_FORM.status(error) >= 500:
            raise
        return API_FORM.status(error)


def _of(name: str) -> list[str]:
    return [str(field.alias) for field in operations.params_of(name).model_fields.values()]


OURS = [name for name in OPERATIONS if name.split(".")[0] in ("callbacks", "callback_letters", "routemaster")]
OURS.remove("callbacks.test")
GIVEN = {"callback": "hook", "name": "orders", "handle": "x", "client": "app--1"}


async def test_no_value_of_any_parameter_is_a_fault(services: Services) -> None:
    for name in OURS:
        await resume_at_the_end(services)  # others may have paused them, or moved their cursors
        fields = _of(name)
        base = {field: value for field, value in GIVEN.items() if field in fields}
        values = (*NUMBERS, *TIMES, *TEXTS, True, None, [], {}, 1.5, float("inf"))
        for field, value in itertools.product(fields, values):
            for given in (value, [value] * 3):
                await attempt(services, name, **(base | {field: given}))


@pytest.mark.parametrize(("callback", "fields"), [("hook", ("fromSeq", "toSeq")), (SUBSCRIBER, ("since", "until"))])
async def test_no_range_of_a_replay_is_a_fault(services: Services, callback: str, fields: tuple[str, str]) -> None:
    values: tuple[Any, ...] = NUMBERS if fields[0] == "fromSeq" else TIMES
    ends = (None, values[0], values[-1])
    mixed = [pair for one, end in itertools.product(values, ends) for pair in ((one, end), (end, one))]
    for first, last in (*mixed, *zip(values, values, strict=True)):
        given = {name: value for name, value in zip(fields, (first, last), strict=True) if value is not None}
        for failed in (False, True):
            await attempt(services, "callbacks.replay", callback=callback, **given, failed=failed, dryRun=True)


@pytest.mark.parametrize("callback", ["hook", SUBSCRIBER])
async def test_a_replay_that_ends_before_it_begins_is_refused_with_both_ends(services: Services, callback: str) -> None:
    with pytest.raises((Invalid, ValidationError), match=r"toSeq \(2\) must not be less than fromSeq \(3\)"):
        await operations.run(services, "callbacks.replay", callback=callback, fromSeq=3, toSeq=2)
    with pytest.raises(Invalid, match=r"until \(2m\) is before since"):
        await operations.run(services, "callbacks.replay", callback=callback, since="1m", until="2m")
    for first in (4, 2**62, 2**63 - 1):
        with pytest.raises(Conflict, match="nothing to send"):
            await operations.run(services, "callbacks.replay", callback=callback, fromSeq=first)
    found = await operations.run(services, "callbacks.replay", callback=callback, toSeq=2**63 - 1, dryRun=True)
    assert found["events"] == 3


@pytest.mark.parametrize("since", ["9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z", "106751d"])
async def test_a_reset_to_any_time_is_within_the_log(services: Services, since: str) -> None:
    await attempt(services, "callbacks.reset", callback="hook", since=since)
    (cursor,) = await services.database.read(read_cursors, name=callback_name("hook"))
    assert 0 <= cursor.position <= (await services.database.read(read_head)).last


async def test_a_reset_deletes_the_dead_letters_of_all_events_that_it_sends_again(
    services: Services, clock: ManualClock
) -> None:
    clock.advance(60)
    await services.log.append(await services.log.topic("group:g"), [draft("late")])
    head = (await services.database.read(read_head)).last
    cursor = callback_name("hook")
    # The oldest is of the newest event: a resend of earlier events has failed since.
    positions = [head, *range(-1500, 0)]
    await services.database.write(_add_letters, cursor, positions)
    await operations.run(services, "callbacks.reset", callback="hook", since="30s")
    left = await services.database.read(fetch, "SELECT position FROM dead_letters WHERE cursor = ?", (cursor,))
    assert sorted(position for (position,) in left) == positions[1:]
    dropped = await operations.run(services, "callback_letters.drop", callback="hook", all=True)
    assert dropped == {"dropped": 1500}


def _add_letters(conn: Connection, name: str, positions: Sequence[int]) -> None:
    (cursor,) = read_cursors(conn, name=name)
    for position in positions:
        letter = DeadLetter(name, position, cursor.topic_id, f"e{position}", "refused", "no", 1, 0)
        insert_dead_letters(conn, [letter])


async def test_the_hint_for_an_unknown_callback_names_some_declared_ones_and_no_subscribers(services: Services) -> None:
    async def hint() -> str:
        with pytest.raises(NotFound) as caught:
            await operations.run(services, "callbacks.describe", callback="zzz")
        return caught.value.hint

    assert await hint() == "declared: hook"
    kind = DECLARED.partition("---\n")[2]
    more = "---\n".join(kind.replace("hook", f"hook{number:03}") for number in range(100))
    await operations.run(services, "resources.apply", sources=[{"name": "f", "text": more}])
    assert (await hint()).startswith("declared: hook, hook000, hook001")
    assert (await hint()).endswith("hook018; routerctl callback list shows all")


async def test_events_are_found_by_id_without_reading_the_log(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = [NOW + seconds * 10**6 for seconds in (600, 1200)]
    for end in ends:  # the second one refreshes the first
        await services.log.append(await services.log.topic("group:g"), [draft("state", expires=end)])
    head = (await services.database.read(read_head)).last
    read: list[tuple[int, int | None]] = []
    read_page = callbacks.read_source_page

    def count(conn: Connection, topic_id: int, start: SourceStart, *given: Any, **named: Any) -> Any:
        read.append((start.position, named["until"]))
        return read_page(conn, topic_id, start, *given, **named)

    monkeypatch.setattr(callbacks, "read_source_page", count)

    async def places(*ids: str, upto: int = head, now: int = NOW) -> dict[str, int | str]:
        read.clear()
        one = await services.database.read(callbacks.find_callback, "hook")
        topic = await services.log.topic("group:g")
        return await services.database.read(callbacks.read_places, one, topic, ids, upto, now)

    last = f"state-{ends[1]:x}"
    assert await places("e1", "state", last) == {"e1": 2, "state": head, last: head}
    assert read == [(1, 2), (head - 1, head)]
    assert await places("state", now=ends[1] + 1) == {"state": "it has expired"}
    assert read == [(head - 1, head)]
    first = f"state-{ends[0]:x}"
    assert await places("e1", first) == {"e1": 2, first: head - 1}
    assert await places("state", upto=head - 1) == {"state": head - 1}
    unknown = "the callback has received no stored event with this id"
    assert await places("e1", "none", "e1-0", "") == {"e1": 2, "none": unknown, "e1-0": unknown, "": unknown}
