"""A key with the scope `look` sees states, counts and names of a node, and no content."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

from eventd.api.framework.route import Route
from eventd.api.framework.withholding import withhold
from eventd.api.routes import OPERATIONS
from eventd.egress.cursors import reconcile
from eventd.log.core.head import lock_head
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import execute, fetch, insert_row
from eventd.store.rows.registry import read_resources
from tests.support.declared import callback, declare, group, peer
from tests.support.derived import plugin, subscription
from tests.support.every_route import SERVED, has_field, name_of, send
from tests.support.histories import OWNER, signed, start
from tests.support.source import ROOT
from tests.support.v0 import Server, serving

CANARY = "canary7"
NAMES = {"group": "edge", "topic": "orders", "subscription": "claims", "callback": "hook", "router": "copy"}
LOOKING = [route for route in SERVED if route.scopes == ("look",)]


def fill(conn: Connection, now: int) -> None:
    """Make every link, subscription and callback fail with texts that quote events, with runs and dead letters."""
    lock_head(conn)
    reconcile(conn, read_resources(conn), now)
    execute(conn, "UPDATE cursors SET state = 'blocked', reason = 'refused', last_error = ?", (CANARY,))
    run: dict[str, Any] = dict.fromkeys(("trigger", "coalesced", "stdout_digest", "source"), "")
    run |= {"trigger": "events", "coalesced": "[]", "event_ids": json.dumps([CANARY]), "stderr": CANARY}
    run |= {"plugin": "routes", "subscription": "claims", "cursor": "subscription:edge/claims", "error": CANARY}
    run |= {"after": 0, "upto": 1, "group_name": "edge", "events": 1, "attempt": 1, "status": "failed"}
    run = {f'"{name}"' if name in ("trigger", "after") else name: value for name, value in run.items()}
    insert_row(conn, "plugin_runs", run | {"started_at": now, "completed_at": now, "exit_code": 1})
    execute(conn, "UPDATE trees SET trouble = ?", (CANARY,))
    for name, topic in fetch(conn, "SELECT name, topic_id FROM cursors"):
        letter = {"cursor": name, "position": 1, "topic_id": topic, "event_id": CANARY, "reason": CANARY}
        insert_row(conn, "dead_letters", letter | {"detail": CANARY, "attempts": 3, "parked_at": now})


@pytest.fixture
async def server(migrated_sqlite_url: str) -> AsyncIterator[Server]:
    async with serving(migrated_sqlite_url, keys="looker:look,reader:read,operator") as server:
        declared = declare(
            group("here", name="edge", listen={"address": "127.0.0.77", "port": 7777}, auth={"secretFile": "/no/key"}),
            peer("there", 9, endpoint=f"http://{CANARY}.example:9"),
            callback("hook", url=f"https://{CANARY}.example/{CANARY}"),
            plugin(f"/opt/{CANARY}"),
            subscription(),
        )
        for route, names, fields in (
            (OPERATIONS["resources.apply"], {}, {"sources": [{"name": "f", "text": declared}]}),
            (OPERATIONS["events.emit"], NAMES, {"events": [event()]}),
            (route_of("POST", "/v0/topics/{topic}"), NAMES, {"records": [{"data": CANARY, "$tag": CANARY}]}),
        ):
            answer = await send(server, route, "operator", names, fields)
            assert answer.status in (200, 201), answer
        topic, _ = await start(server.log, OWNER._replace(group="edge", node="here"), "group:edge")
        await signed(server.log, topic, OWNER._replace(group="edge", node="here"))
        await server.log.database.write(fill, server.log.clock.now())
        yield server


def event() -> dict[str, Any]:
    return {"id": CANARY, "type": "routerd.client.observed", "subject": CANARY, "payload": {CANARY: CANARY}}


def route_of(method: str, path: str) -> Route:
    return next(route for route in SERVED if (route.method, route.path) == (method, path))


def fields_of(route: Route) -> list[dict[str, Any]]:
    """Return the queries to send to a route: none, and each switch that shows more."""
    found: list[dict[str, Any]] = [{}]
    found += [{"group": "edge"}] if has_field(route, "group") and "{group}" not in route.path else []
    found += [{"remediationPlan": "true"}] if has_field(route, "remediation_plan") else []
    return found


async def test_no_answer_to_look_has_content(server: Server) -> None:
    for route in LOOKING:
        for fields in fields_of(route):
            answer = await send(server, route, "looker", NAMES, fields)
            assert answer.status == 200 or (fields == {} and answer.status == 400), f"{name_of(route)}: {answer}"
            for content in (CANARY, "127.0.0.77", "/no/key"):
                assert content not in answer.text, f"{name_of(route)} {fields}: {answer.text}"


async def test_the_content_is_there_for_read(server: Server) -> None:
    """Without this, the test above would prove nothing."""
    shown = set()
    for route in LOOKING:
        for fields in fields_of(route):
            answer = await send(server, route, "reader", NAMES, fields)
            shown |= {name_of(route)} if CANARY in answer.text or "127.0.0.77" in answer.text else set()
    assert shown >= {
        "groups.status",
        "links.status",
        "subscriptions.list",
        "callbacks.list",
        "doctor.examine",
        "history.status",
    }


async def test_states_and_counts_are_the_same_for_look(server: Server) -> None:
    for name in ("links.status", "subscriptions.list", "callbacks.list", "groups.status"):
        route = OPERATIONS[name]
        looked, read = [json.loads((await send(server, route, key, NAMES)).text) for key in ("looker", "reader")]
        assert looked.pop("withheld") == sorted(route.withheld)
        emptied = withhold(read, route.withheld)
        emptied.pop("withheld")
        assert without_moving(looked) == without_moving(emptied), name


def without_moving(answer: Any) -> str:
    return re.sub(r'"(lagSeconds|waitingSeconds)": [\d.]+', "", json.dumps(answer))


def test_members_are_emptied_at_any_depth_and_named() -> None:
    answer = {"a": 1, "list": [{"secret": "x", "b": [{"secret": ["y"]}]}], "secret": {"z": 1}}
    assert withhold(answer, ("secret",)) == {
        "a": 1,
        "list": [{"secret": "", "b": [{"secret": []}]}],
        "secret": None,
        "withheld": ["secret"],
    }
    assert withhold(answer, ()) is answer
    assert answer["secret"] == {"z": 1}


async def test_looking_at_a_topic_is_no_read_of_it(server: Server) -> None:
    show = route_of("GET", "/v0/topics/{topic}")
    await send(server, show, "looker", NAMES)
    await send(server, route_of("GET", "/v0/topics"), "looker", {}, {"touch": "true"})
    assert json.loads((await send(server, show, "looker", NAMES)).text)["last_read_ts"] is None
    await send(server, show, "reader", NAMES)
    assert json.loads((await send(server, show, "looker", NAMES)).text)["last_read_ts"] is not None


def test_the_reference_says_what_is_withheld() -> None:
    page = (ROOT / "docs/reference/http-api.md").read_text(encoding="utf-8")
    section = page.partition("## What `look` shows")[2].partition("\n## ")[0]
    told = {
        path: set(re.findall(r"`(\w+)`", row))
        for path, row in re.findall(r"^\| `GET (\S+)` \| (.+) \|$", section, re.M)
    }
    assert told == {route.path: {*route.withheld} for route in OPERATIONS.values() if route.withheld}
