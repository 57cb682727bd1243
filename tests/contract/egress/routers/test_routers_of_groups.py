"""Routers from and into the topics of event groups: events become records, records become events."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from eventd.dynamic.guard import OBSERVED
from eventd.egress.routers.projection import EventMap
from eventd.log.core.eventlog import EventLog
from eventd.log.core.units import Publish
from eventd.log.retention.evict import EvictionLimits, evict
from eventd.log.topics.deleted_topics import delete_topic
from eventd.log.topics.errors import RouterCycle, TopicNotFound
from eventd.resources.group_configuration import GroupConfig, effective
from eventd.runtime.clock import SECOND
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import fetch
from eventd.store.rows.registry import StoredResource, announce, put_resource
from eventd.testing import NOW, ManualClock, draft
from tests.contract.egress.conftest import BOTH_DATABASES
from tests.support.declared import API_VERSION
from tests.support.routed import RoutedTopics
from tests.support.stored import read_stored


def group(name: str = "g", *, node: str = "here", **spec: Any) -> GroupConfig:
    fields: dict[str, Any] = {field: None for field in StoredResource.__dataclass_fields__}
    known = {"api_version": API_VERSION, "kind": "EventGroup", "name": name, "annotations": {}}
    return effective([StoredResource(**(fields | known | {"spec": {"nodeName": node, **spec}}))])[name]


@pytest.fixture
async def routed(log: EventLog) -> AsyncIterator[RoutedTopics]:
    opened = RoutedTopics(log, {"g": group(), "h": group("h")})
    for name in opened.groups:
        await log.topic(f"group:{name}")
    await opened.start()
    yield opened
    await opened.stop()


async def events(routed: RoutedTopics, name: str = "g") -> list[dict[str, Any]]:
    await routed.settled(f"group:{name}")
    topic = await routed.log.topic(f"group:{name}")
    return [json.loads(record.body) for record in await routed.log.database.read(read_stored, topic)]


async def publish(routed: RoutedTopics, *ids: str, name: str = "g", **said: Any) -> None:
    topic = await routed.log.topic(f"group:{name}")
    await routed.log.submit(Publish(topic, [draft(each, group=name, **said) for each in ids]))


async def letters(routed: RoutedTopics) -> list[tuple[str, str, str]]:
    return await routed.log.database.read(fetch, "SELECT cursor, event_id, reason FROM dead_letters ORDER BY position")


@BOTH_DATABASES
async def test_facts_become_records_that_say_who_and_what(routed: RoutedTopics) -> None:
    await routed.route("group:g->seen")
    await publish(routed, "e1", node="far", type="lab.seen", subject="s", payload={"a": "1"})
    (record,) = await routed.records("seen")
    assert (record["$node"], record["$tag"], record["data"]) == ("far", "lab.seen", {"a": "1"})
    assert record["meta"].items() >= {"id": "e1", "subject": "s", "dedupeKey": "e1"}.items()


async def test_a_fact_that_has_expired_is_passed_over(routed: RoutedTopics, clock: ManualClock) -> None:
    await routed.route("group:g->seen")
    await routed.stop()
    await publish(routed, "e1", expires=NOW + SECOND)
    await publish(routed, "e2")
    clock.advance(2)
    await routed.start()
    assert [record["meta"]["id"] for record in await routed.records("seen")] == ["e2"]
    assert await routed.losses("seen") == []


@BOTH_DATABASES
async def test_facts_that_retention_took_are_lost_to_the_records(routed: RoutedTopics) -> None:
    await routed.route("group:g->seen")
    await routed.stop()
    await publish(routed, *(f"e{n}" for n in range(5)))
    topic = await routed.log.topic("group:g")
    await routed.log.database.write(evict, topic, EvictionLimits(max_records=2), now=NOW)
    await routed.start()
    assert [record["meta"]["id"] for record in await routed.records("seen")] == ["e3", "e4"]
    assert await routed.losses("seen") == [(1, 3, "source_trim")]


@BOTH_DATABASES
async def test_records_become_facts_that_come_back_as_they_were(routed: RoutedTopics) -> None:
    await routed.route("said->group:g", "group:g->heard")
    await routed.add("said", [{"data": {"n": 1.50}, "node": "w", "tag": "t", "meta": [1]}, {"data": None}])
    first, second = await events(routed)
    assert (first["group"], first["sourceNode"], first["type"]) == ("g", "w", "t")
    assert first["payload"] == {"data": '{"n":1.5}', "meta": "[1]"}
    assert (second["sourceNode"], second["type"], second["payload"]) == ("here", "topic.record", {"data": "null"})
    heard = await routed.records("heard")
    told = [(record["data"], record.get("meta"), record.get("$tag")) for record in heard]
    assert told == [({"n": 1.5}, [1], "t"), (None, None, None)]


async def test_the_same_record_is_the_same_fact_after_a_restart(routed: RoutedTopics) -> None:
    await routed.route("said->group:g")
    await routed.stop()
    await routed.put("said", 1, 2)
    await routed.start(steps=0, heard=False)
    await routed.settled("group:g")
    await routed.stop()
    await routed.start()
    assert [event["payload"]["data"] for event in await events(routed)] == ["1", "2"]


async def test_a_map_says_what_the_facts_are(routed: RoutedTopics) -> None:
    said = EventMap(type="order.${data.kind}", subject="${data.who}", payload={"note": "${tag}: ${data.n}"})
    await routed.route("said->group:g", map=said)
    await routed.add("said", [{"data": {"kind": "made", "who": "ann", "n": 3}, "tag": "t"}])
    (event,) = await events(routed)
    assert (event["type"], event["subject"], event["payload"]) == ("order.made", "ann", {"note": "t: 3"})


async def test_what_is_no_fact_is_set_aside_and_counted(routed: RoutedTopics) -> None:
    await routed.route("said->group:g", map=EventMap(type="${tag}"))
    await routed.add("said", [{"data": 1}, {"data": 2, "tag": "t"}])
    assert [event["payload"]["data"] for event in await events(routed)] == ["2"]
    assert [(cursor, reason) for cursor, _, reason in await letters(routed)] == [("router:said->group:g", "bad_event")]
    line = await routed.line("said->group:g")
    assert (line.forwarded, line.refused, line.seq) == (1, 1, 2)


async def test_facts_go_from_group_to_group_as_they_are(routed: RoutedTopics) -> None:
    await routed.route("group:g->group:h", fan_in=True)
    await publish(routed, "e1", node="far", type="t", subject="s", payload={"k": "v"}, expires=NOW + 60 * SECOND)
    (there,) = await events(routed, "h")
    (here,) = await events(routed, "g")
    assert there == here | {"group": "h"}


async def test_a_cycle_through_a_group_needs_identities(routed: RoutedTopics) -> None:
    await routed.route("t->group:g")
    with pytest.raises(RouterCycle):
        await routed.route("group:g->t", allow_cycle=True)
    await routed.route("t->group:g", fan_in=True)
    await routed.route("group:g->t", fan_in=True)
    await routed.put("t", "said")
    await publish(routed, "e1", payload={"data": '"emitted"'})
    for _ in range(2):
        assert sorted(await routed.data("t")) == ["emitted", "said"]
        assert sorted(event["payload"]["data"] for event in await events(routed)) == ['"emitted"', '"said"']
        await routed.stop()
        await routed.start()
    assert await letters(routed) == []


@BOTH_DATABASES
async def test_a_group_at_its_ceiling_holds_the_router(routed: RoutedTopics) -> None:
    full = replace(group().retention, max_bytes=700)
    routed.groups = {"g": replace(group(), retention=full)}
    await routed.route("said->group:g")
    await routed.put("said", "x" * 200)
    await routed.put("said", "y" * 200)
    assert len(await events(routed)) == 1
    held = await routed.line("said->group:g")
    assert (held.state, held.reason, held.seq) == ("backing-off", "full", 1)
    routed.groups = {"g": group()}
    routed.log.wakeups.touch(held.dest_id)
    assert len(await events(routed)) == 2
    assert (await routed.line("said->group:g")).state == "running"


async def test_a_group_that_this_node_is_not_in_waits(routed: RoutedTopics) -> None:
    routed.groups = {}
    await routed.route("said->group:g")
    await routed.put("said", 1)
    assert await events(routed) == []
    routed.groups = {"g": group()}
    assert routed.routing is not None
    routed.log.wakeups.touch((await routed.line("said->group:g")).dest_id)
    assert len(await events(routed)) == 1


async def test_no_router_leads_to_a_group_that_is_not_there(routed: RoutedTopics) -> None:
    for name in ("said->group:ghost", "group:ghost->said"):
        with pytest.raises(TopicNotFound):
            await routed.route(name)


@BOTH_DATABASES
async def test_routers_go_with_a_group(routed: RoutedTopics) -> None:
    await routed.route("said->group:g", "group:g->heard", "said->kept")

    def retire(conn: Connection) -> None:
        delete_topic(conn, "group:g")

    await routed.log.database.write(retire)
    assert await routed.log.database.read(fetch, "SELECT name FROM routers") == [("said->kept",)]
    await routed.put("said", 1)
    assert await routed.data("kept") == [1]
    assert await routed.data("heard") == []


def capture(conn: Connection, address: str) -> None:
    spec = {"address": address, "capture": {"type": "proxy-arp"}}
    kind, version = "RemoteAddressClaim", "hybrid.routerd.net/v1alpha1"
    put_resource(conn, api_version=version, kind=kind, name="c", annotations={}, spec=spec, now=NOW)
    announce(conn)


async def test_what_this_node_captures_is_not_reported_by_a_router(routed: RoutedTopics) -> None:
    await routed.log.database.write(capture, "192.0.2.7")
    await routed.route("said->group:g", map=EventMap(type=OBSERVED, subject="${data.ip}"))
    await routed.put("said", {"ip": "192.0.2.7"}, {"ip": "192.0.2.8"})
    assert [event["subject"] for event in await events(routed)] == ["192.0.2.8"]
    assert [reason for _, _, reason in await letters(routed)] == ["self_capture"]
