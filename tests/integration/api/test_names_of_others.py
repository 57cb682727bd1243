"""A key for some prefixes learns nothing of other names: not in lists, counts, searches or suggestions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import product
from typing import Any

import pytest

from eventd.api.framework.route import Route
from eventd.api.routes import OPERATIONS
from eventd.egress.cursors import reconcile
from eventd.log.core.head import lock_head
from eventd.store.engine.database import Connection
from eventd.store.rows.registry import read_resources
from tests.support.declared import callback, declare, group, peer
from tests.support.derived import plugin, subscription
from tests.support.every_route import SERVED, has_field, name_of, send
from tests.support.v0 import Server, serving

MINE, THEIRS = "mine-1", "zz-foreign"
UNKNOWN = (f"{THEIRS}-event", "no-such-event")
KEYS = "operator,limited::mine-,limited-look:look:mine-"


def own(name: str) -> dict[str, str]:
    """Return the names of one party's objects, by their places in paths and their fields."""
    return {
        "group": name, "topic": name, "router": name, "subscription": f"{name}-sub", "callback": f"{name}-hook",
        "peer": f"{name}-peer", "book": "batches", "kind": "EventGroup", "name": name, "id": f"{name}-event",
    }  # fmt: skip


def declared(name: str) -> list[dict[str, Any]]:
    return [
        group(f"{name}-node", name=name, auth={"secretFile": "/no/key"}),
        peer(f"{name}-peer", 9, group=name),
        callback(f"{name}-hook", group=name),
        plugin("/bin/true", name=f"{name}-plugin"),
        subscription(name=f"{name}-sub", group=name, plugin=f"{name}-plugin"),
    ]


def _reconcile(conn: Connection, now: int) -> None:
    lock_head(conn)
    reconcile(conn, read_resources(conn), now)


def route_of(method: str, path: str) -> Route:
    return next(route for route in SERVED if (route.method, route.path) == (method, path))


@pytest.fixture
async def server(migrated_sqlite_url: str) -> AsyncIterator[Server]:
    async with serving(migrated_sqlite_url, keys=KEYS) as server:
        both = [*declared(MINE), *declared(THEIRS)]
        await _do(server, OPERATIONS["resources.apply"], {}, {"sources": [{"name": "f", "text": declare(*both)}]})
        for name in (MINE, THEIRS):
            event = {"id": f"{name}-event", "type": "routerd.client.observed", "subject": name, "payload": {name: name}}
            await _do(server, OPERATIONS["events.emit"], own(name), {"events": [event]})
            for topic in (name, f"{name}-copy"):
                records = [{"data": name} for _ in range(7777 if name == THEIRS else 3)]
                write = route_of("POST", "/v0/topics/{topic}")
                await _do(server, write, {"topic": topic}, {"records": records})
            router = {"source": name, "dest": f"{name}-copy"}
            await _do(server, route_of("PUT", "/v0/routers/{router}"), own(name), router)
        await server.log.database.write(_reconcile, server.log.clock.now())
        server.checks[f"group {THEIRS}"] = f"cannot listen: {THEIRS}"
        yield server


async def _do(server: Server, route: Route, names: dict[str, str], fields: dict[str, Any]) -> None:
    answer = await send(server, route, "operator", names, fields)
    assert answer.status in (200, 201), answer


def fields_of(route: Route, name: str) -> list[dict[str, Any]]:
    """Return the fields to send to a route: none, its group, and each field of an operation that names an object."""
    known = [field for field in own(name) if has_field(route, field) and f"{{{field}}}" not in route.path]
    grouped = {"group": MINE} if "group" in known else {}
    return [{}, grouped, *({**grouped, field: own(name)[field]} for field in known if field != "group")]


READING = [route for route in SERVED if route.method in ("GET", "HEAD") and not route.upgrade]


async def test_no_answer_names_or_counts_what_is_of_others(server: Server) -> None:
    for key in ("limited", "limited-look"):
        for name in (MINE, "mine-missing", "mine-1-missing"):
            await _require_nothing_of_others(server, key, name)


async def _require_nothing_of_others(server: Server, key: str, name: str) -> None:
    seen = 0
    for route in READING:
        for fields in fields_of(route, name):
            answer = await send(server, route, key, own(name), fields)
            assert answer.status < 500 or route.probe, f"{name_of(route)}: {answer}"
            assert THEIRS not in answer.text, f"{name_of(route)} {fields}: {answer.text}"
            seen += answer.status == 200
            is_list_of_topics = route.path in ("/v0/topics", "/v0/metrics", "/v0/routers")
            assert not (is_list_of_topics and "7777" in answer.text), f"{name_of(route)}: {answer.text}"
    assert seen > (20 if name == MINE and key == "limited" else 3), "nearly everything was refused"


async def test_a_search_by_prefix_finds_nothing_of_others(server: Server) -> None:
    for path, prefix in product(("/v0/topics", "/v0/routers"), ("", "zz", "z", "mine-", THEIRS)):
        answer = await send(server, route_of("GET", path), "limited", {}, {"prefix": prefix, "page_size": 1})
        assert answer.status == 200
        assert THEIRS not in answer.text, (path, prefix)
        assert "next_cursor" not in answer.text or MINE in answer.text, (path, prefix)


async def test_an_object_of_others_is_as_unknown_as_one_that_is_not_there(server: Server) -> None:
    """Only the name that was asked for differs between the two answers."""
    for field in ("subscription", "callback", "peer", "node", "owner"):
        await _require_as_unknown(server, field)


async def _require_as_unknown(server: Server, field: str) -> None:
    asked = [route for route in OPERATIONS.values() if has_field(route, field) and has_field(route, "group")]
    for route in asked:
        answers = []
        for value in (f"{THEIRS}-sub", "xx-missing-sub"):
            names = own(MINE) | {field: value}
            fields = {"group": MINE} | {field: value} if "{group}" not in route.path else {field: value}
            fields = {name: each for name, each in fields.items() if f"{{{name}}}" not in route.path}
            answer = await send(server, route, "limited", names, fields)
            answers.append((answer.status, answer.text.replace(value, "VALUE")))
        assert answers[0] == answers[1], name_of(route)


async def test_an_event_of_others_is_not_found_by_its_id(server: Server) -> None:
    find = OPERATIONS["events.find"]
    mine, theirs, missing = [await send(server, find, "limited", {"id": id}) for id in (f"{MINE}-event", *UNKNOWN)]
    assert (mine.status, f"{MINE}-event" in mine.text) == (200, True)
    assert (theirs.status, theirs.text.replace(*UNKNOWN)) == (missing.status, missing.text)


async def test_the_hint_of_a_missing_group_names_none_to_a_limited_key(server: Server) -> None:
    route = OPERATIONS["links.status"]
    limited, operator = [await send(server, route, key, {"group": "mine-x"}) for key in ("limited", "operator")]
    assert (limited.status, operator.status) == (404, 404)
    assert MINE in operator.text
    assert MINE not in limited.text
    assert "is not declared" in limited.text
