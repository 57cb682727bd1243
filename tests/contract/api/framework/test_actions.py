"""The record of actions, as requests over HTTP fill it. On both databases."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

import pytest

from eventd.api.framework import action_terms, recorder
from eventd.api.framework.endpoint import load
from eventd.api.routes import OPERATIONS
from eventd.api.topic_routes import TOPIC_ROUTES
from eventd.errors import DatabaseFault
from eventd.log.core.head import lock_head
from eventd.log.cursors.cursors import read_cursors
from eventd.log.cursors.dead_letters import DeadLetter, insert_dead_letters
from eventd.store.engine.database import Connection
from eventd.store.rows.actions import ActionRow, add_action
from eventd.store.rows.callback_cursors import callback_name
from tests.support.acting import OPERATOR, READER, operating
from tests.support.fresh import on_sqlite

READ_ONLY = {"resources.diff", "dynamic.render", "dynamic.diff", "links.verify", "jobs.plan", "history.prove_at_peer"}
"""Operations with POST that change nothing: a body may be larger than a query. `links.verify` compares, and
`history.prove_at_peer` asks a peer."""
NOT_RECORDED = {"events.emit"}
"""Operations whose changes are in the log itself."""
KEPT_OUT = {"keys", "proof", "token"}
"""Fields of actions that are not recorded: secrets and payloads."""

FILES = {"sources": [{"name": "a", "text": "{apiVersion: net.example/v1, kind: Route, metadata: {name: r}, spec: {}}"}]}
BODIES: dict[str, Any] = {
    "resources.apply": FILES,
    "resources.delete_sources": FILES,
    "deliveries.redeliver": {"ids": ["e1"]},
    "callbacks.resend": {"ids": ["e1"]},
    "callbacks.replay": {"since": "1h", "until": "1m"},
}
"""Fields that operations with a dry run need."""


def fields_of(operation: str) -> Collection[str]:
    model = load(OPERATIONS[operation]).params
    return () if model is None else model.model_fields


def described(row: ActionRow) -> tuple[str, str, str]:
    return row.operation, row.object, row.result


def test_every_operation_that_changes_something_is_recorded() -> None:
    changing = {name for name, route in OPERATIONS.items() if route.method != "GET"}
    recorded = {name for name, route in OPERATIONS.items() if route.recorded}
    assert changing - READ_ONLY - NOT_RECORDED == recorded


def test_each_field_of_an_action_is_recorded_unless_it_may_hold_a_secret() -> None:
    fields = set()
    for route in OPERATIONS.values():
        if route.recorded and (model := load(route).params) is not None:
            fields |= model.model_fields.keys() - set(action_terms._NAME.findall(route.path))
    assert fields - action_terms.SHOWN == KEPT_OUT


@pytest.mark.parametrize("name", [name for name, route in OPERATIONS.items() if route.recorded])
async def test_each_operation_leaves_a_row_even_if_it_fails(migrated_sqlite_url: str, name: str) -> None:
    route = OPERATIONS[name]
    path = route.path.replace("{kind}", "EventPeer")
    for part in action_terms._NAME.findall(path):
        path = path.replace(f"{{{part}}}", "nobody")
    body = {"name": "nobody"} if name in ("keys.create", "routemaster.create_token") else {}
    async with operating(migrated_sqlite_url) as operator:
        answer = await operator.ask(route.method, path, body)
        (row,) = await operator.rows()
        assert (row.operation, row.kind, row.address) == (name, "key", "127.0.0.1")
        assert row.result == ("ok" if answer.status == 200 else answer.body["error"]["code"])
        assert row.request == answer.headers["X-Request-Id"]


@on_sqlite
async def test_what_is_done_to_topics_and_routers_is_recorded(migrated_url: str) -> None:
    async with operating(migrated_url) as operator:
        await operator.ask("PUT", "/v0/topics/orders", {"ttl_ms": 60000})
        await operator.ask("PATCH", "/v0/topics/orders", {"ttl_ms": None})
        await operator.ask("PUT", "/v0/routers/copy", {"source": "orders", "dest": "audit"})
        await operator.ask("POST", "/v0/topics/orders", {"records": [{"data": "a secret"}]})
        await operator.ask("POST", "/v0/topics/orders/delete", {"before_seq": 9})
        await operator.ask("DELETE", "/v0/routers/copy")
        await operator.ask("DELETE", "/v0/topics/orders?if_empty=true")
        rows = (await operator.rows())[::-1]
    assert [described(row) for row in rows] == [
        ("PUT /v0/topics/{topic}", "topic orders", "ok"),
        ("PATCH /v0/topics/{topic}", "topic orders", "ok"),
        ("PUT /v0/routers/{router}", "router copy", "ok"),
        ("POST /v0/topics/{topic}/delete", "topic orders", "ok"),
        ("DELETE /v0/routers/{router}", "router copy", "ok"),
        ("DELETE /v0/topics/{topic}", "topic orders", "ok"),
    ]
    assert [json.loads(row.arguments) for row in rows] == [
        {"ttl_ms": 60000},
        {"ttl_ms": None},
        {"source": "orders", "dest": "audit"},
        {"before_seq": 9},
        {},
        {"if_empty": True},
    ]


@on_sqlite
async def test_a_program_that_trims_a_topic_shares_a_row_for_a_minute(migrated_url: str) -> None:
    async with operating(migrated_url) as operator:
        for seq in range(20):
            await operator.ask("POST", "/v0/topics/orders", {"records": [{"data": seq}]})
            await operator.ask("POST", "/v0/topics/orders/delete", {"before_seq": seq})
        await operator.ask("POST", "/v0/topics/none/delete", {"before_seq": 1})
        failed, row = await operator.rows()
    assert (described(row), row.count) == (("POST /v0/topics/{topic}/delete", "topic orders", "ok"), 20)
    assert json.loads(row.arguments) == {"before_seq": 19}
    assert (failed.object, failed.result, failed.count) == ("topic none", "topic_not_found", 1)


@on_sqlite
async def test_reading_emitting_and_writing_leave_no_row(migrated_url: str) -> None:
    routes = [*OPERATIONS.values(), *TOPIC_ROUTES]
    assert not [route for route in routes if route.recorded and {*route.scopes} & {"read", "write"}]
    async with operating(migrated_url) as operator:
        await operator.ask("POST", "/v0/topics/orders", {"records": [{"data": 1}]})
        await operator.ask("GET", "/v0/topics/orders")
        await operator.ask("GET", "/api/v1/keys")
        await operator.ask("POST", "/api/v1/groups/edge/events", {"events": []})
        assert await operator.rows() == []


@pytest.mark.parametrize(
    "name", [name for name, route in OPERATIONS.items() if route.recorded and "dry_run" in fields_of(name)]
)
async def test_a_dry_run_leaves_no_row_unless_a_program_runs(migrated_sqlite_url: str, name: str) -> None:
    route = OPERATIONS[name]
    path = route.path.replace("{kind}", "EventPeer")
    for part in action_terms._NAME.findall(path):
        path = path.replace(f"{{{part}}}", "nobody")
    async with operating(migrated_sqlite_url) as operator:
        body = BODIES.get(name, {})
        for dry, rows in ((True, int(route.outside)), (False, 1 + int(route.outside))):
            headers = {"Idempotency-Key": f"k{dry and route.outside}"}  # a dry run uses up no key
            answer = await operator.ask(route.method, path, body | {"dryRun": dry}, headers=headers)
            assert answer.status in (200, 404), answer.body
            assert len(await operator.rows()) == rows, dry


@on_sqlite
async def test_a_key_is_named_and_never_shown(migrated_url: str) -> None:
    async with operating(migrated_url) as operator:
        made = await operator.ask("POST", "/api/v1/keys", {"name": "ci", "scopes": ["read"], "expires": "1h"})
        (row,) = await operator.rows()
    assert described(row) == ("keys.create", "key ci", "ok")
    assert json.loads(row.arguments) == {"name": "ci", "scopes": ["read"], "expires": "1h"}
    assert row.who.startswith("settings key ")
    assert OPERATOR not in repr(row)
    assert made.body["key"] not in repr(row)


@on_sqlite
async def test_what_cannot_be_recorded_does_not_happen(migrated_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_conn: object, _row: ActionRow) -> int:
        raise DatabaseFault("no row today")

    async with operating(migrated_url) as operator:
        monkeypatch.setattr(recorder, "add_action", fail)
        assert (await operator.ask("POST", "/api/v1/keys", {"name": "ci"})).status == 500
        assert (await operator.ask("PUT", "/v0/topics/orders", {})).status == 500
        assert (await operator.ask("GET", "/api/v1/keys")).body["keys"] == []
        assert (await operator.ask("GET", "/v0/topics/orders")).status == 404


@on_sqlite
async def test_an_action_that_fails_is_recorded_with_its_code(migrated_url: str) -> None:
    async with operating(migrated_url) as operator:
        await operator.ask("POST", "/api/v1/keys/ghost/revoke", {})
        await operator.ask("POST", "/api/v1/keys/ghost/revoke", {"wrong": 1})
        await operator.ask("DELETE", "/v0/topics/$rm")
        rows = await operator.rows()
    assert [described(row) for row in rows][1:] == [
        ("keys.revoke", "key ghost", "invalid_params"),
        ("keys.revoke", "key ghost", "not_found"),
    ]


@on_sqlite
async def test_applied_and_deleted_resources_are_named(migrated_url: str) -> None:
    def files(*names: str) -> dict[str, object]:
        head = "apiVersion: net.example/v1, kind: Route, spec: {password: hidden}"
        return {
            "sources": [{"name": f"{name}.yaml", "text": f"{{{head}, metadata: {{name: {name}}}}}"} for name in names]
        }

    async with operating(migrated_url) as operator:
        await operator.ask("POST", "/api/v1/resources/apply", files("a"))
        await operator.ask("POST", "/api/v1/resources/apply", files("a", "b"))
        await operator.ask("DELETE", "/api/v1/resources/Route.v1.net.example/a")
        await operator.ask("POST", "/api/v1/resources/delete", files("a"))
        rows = (await operator.rows())[::-1]
    assert [described(row) for row in rows] == [
        ("resources.apply", "Route a", "ok"),
        ("resources.apply", "", "ok"),
        ("resources.delete", "Route a", "ok"),
        ("resources.delete_sources", "Route a", "not_found"),
    ]
    both = json.loads(rows[1].arguments)
    assert both == {"sources": ["a.yaml", "b.yaml"], "objects": ["Route a", "Route b"]}


async def test_dropped_dead_letters_of_a_callback_are_named(migrated_sqlite_url: str) -> None:
    group = "apiVersion: federation.routerd.net/v1alpha1, kind: EventGroup, metadata: {name: g}, spec: {nodeName: n}"
    callback = "apiVersion: federation.routerd.net/v1alpha1, kind: EventCallback, metadata: {name: hook}"
    text = f"{{{group}}}\n---\n{{{callback}, spec: {{source: {{groupRef: g}}, url: 'https://billing.example/'}}}}"
    async with operating(migrated_sqlite_url) as operator:
        await operator.ask("POST", "/api/v1/resources/apply", {"sources": [{"name": "f", "text": text}]})
        await operator.ask("POST", "/api/v1/callbacks/hook/resume", {})
        await operator.server.log.database.write(add_letters, callback_name("hook"), 3)
        listed = (await operator.ask("GET", "/api/v1/callbacks/hook/dead-letters")).body["deadLetters"]
        ids = [letter["id"] for letter in listed]
        for chosen in ids[:1], ids[1:]:
            await operator.ask("POST", "/api/v1/callbacks/hook/dead-letters/drop", {"ids": chosen})
        several, one = (await operator.rows())[:2]
    assert described(one) == ("callback_letters.drop", "event e1 of callback hook: http_410", "ok")
    assert json.loads(several.arguments)["objects"] == [
        "event e2 of callback hook: http_410",
        "event e3 of callback hook: http_410",
    ]


async def test_a_bulk_job_is_recorded_with_what_it_drops_and_whose(migrated_sqlite_url: str) -> None:
    group = "apiVersion: federation.routerd.net/v1alpha1, kind: EventGroup, metadata: {name: g}, spec: {nodeName: n}"
    callback = "apiVersion: federation.routerd.net/v1alpha1, kind: EventCallback, metadata: {name: hook}"
    text = f"{{{group}}}\n---\n{{{callback}, spec: {{source: {{groupRef: g}}, url: 'https://billing.example/'}}}}"
    async with operating(migrated_sqlite_url) as operator:
        await operator.ask("POST", "/api/v1/resources/apply", {"sources": [{"name": "f", "text": text}]})
        await operator.ask("POST", "/api/v1/callbacks/hook/resume", {})
        await operator.server.log.database.write(add_letters, callback_name("hook"), 3)
        plan = {"action": "drop", "callback": "hook", "reasons": ["http_410"]}
        token = (await operator.ask("POST", "/api/v1/jobs/plan", plan)).body["token"]
        job = (await operator.ask("POST", "/api/v1/jobs", {"token": token})).body["job"]
        row = (await operator.rows())[0]
    assert described(row) == ("jobs.start", "callback hook", "ok")
    said = json.loads(row.arguments)
    assert said.pop("until")
    assert said == {"action": "drop", "job": job["number"], "letters": 3, "reasons": ["http_410"]}


def add_letters(conn: Connection, name: str, count: int) -> None:
    (cursor,) = read_cursors(conn, name=name)
    letters = [DeadLetter(name, at, cursor.topic_id, f"e{at}", "http_410", "", 1, 0) for at in range(1, count + 1)]
    insert_dead_letters(conn, letters)


@on_sqlite
async def test_refusals_are_counted_and_stored_once_a_minute(migrated_url: str) -> None:
    async with operating(migrated_url) as operator:
        for name in ("a", "b", "c"):
            assert (await operator.ask("POST", "/api/v1/keys", {"name": name}, key=READER)).status == 403
            assert (await operator.ask("POST", "/api/v1/keys", {"name": name}, key="stolen")).status == 401
            assert (await operator.ask("DELETE", f"/v0/topics/{name}", key=READER)).status == 403
        rows = await operator.rows()
    assert sorted((row.who.split()[0], row.operation, row.object, row.result, row.count) for row in rows) == [
        ("settings", "DELETE /v0/topics/{topic}", "", "forbidden", 1),
        ("settings", "keys.create", "", "forbidden", 1),
        ("unknown", "keys.create", "", "unauthorized", 1),
    ]


@on_sqlite
async def test_an_answer_names_its_request_as_the_client_did(migrated_url: str) -> None:
    async with operating(migrated_url) as operator:
        given = await operator.ask("POST", "/api/v1/keys", {"name": "ci"}, headers={"X-Request-Id": "deploy-17"})
        assert given.headers["X-Request-Id"] == "deploy-17"
        assert (await operator.rows())[0].request == "deploy-17"
        odd = await operator.ask("GET", "/api/v1/keys", headers={"X-Request-Id": "<b>" * 40})
        other = await operator.ask("GET", "/nothing")
        made = odd.headers["X-Request-Id"], other.headers["X-Request-Id"]
        assert len(set(made)) == 2
        assert all(each.replace("-", "").isalnum() for each in made)


async def test_the_list_is_filtered_and_paged(migrated_url: str) -> None:
    async with operating(migrated_url) as operator:
        for name in ("a", "b", "c"):
            await operator.ask("POST", "/api/v1/keys", {"name": name})
        await operator.ask("POST", "/api/v1/keys/a/revoke", {})
        await operator.ask("POST", "/api/v1/keys/z/revoke", {})

        async def listed(query: str) -> list[str]:
            answer = await operator.ask("GET", f"/api/v1/actions?{query}")
            assert answer.status == 200, answer.body
            return [f"{row['operation']} {row['object']}" for row in answer.body["actions"]]

        assert await listed("operation=keys.revoke") == ["keys.revoke key z", "keys.revoke key a"]
        assert await listed("object=key%20a") == ["keys.revoke key a", "keys.create key a"]
        assert await listed("result=not_found") == ["keys.revoke key z"]
        assert await listed("who=nobody") == []
        assert await listed("until=2020-01-01T00:00:00Z") == []
        assert len(await listed("since=1h")) == 5
        first = (await operator.ask("GET", "/api/v1/actions?limit=2")).body
        assert [row["object"] for row in first["actions"]] == ["key z", "key a"]
        second = (await operator.ask("GET", f"/api/v1/actions?limit=3&after={first['next']}")).body
        assert [row["object"] for row in second["actions"]] == ["key c", "key b", "key a"]
        assert second["next"] is None
        assert (await operator.ask("GET", "/api/v1/actions?after=x")).status == 400
        assert (await operator.ask("GET", "/api/v1/actions", key=READER)).status == 403


async def test_the_rows_of_a_page_are_in_the_order_of_their_times(migrated_sqlite_url: str) -> None:
    def add(conn: Connection) -> None:
        lock_head(conn)
        for name, at in ("began first", 1), ("ok", 3), ("counted, and stored later", 2):
            add_action(conn, ActionRow(at, "key", "ci", "", "keys.create", name, "{}", "ok", ""))

    async with operating(migrated_sqlite_url) as operator:
        await operator.server.log.database.write(add)
        rows = (await operator.ask("GET", "/api/v1/actions")).body["actions"]
    assert [row["object"] for row in rows] == ["ok", "counted, and stored later", "began first"]
