"""The form of /v0's answers: bodies, types, sizes, paths, errors, and no request that causes an internal error."""

from __future__ import annotations

import asyncio
from io import BytesIO
from typing import Any

import pytest

from tests.support.v0 import JSON, Client, Response, Server


async def sent(client: Client, path: str, body: bytes, content_type: str | None = "application/json") -> Response:
    headers = {} if content_type is None else {"Content-Type": content_type}
    skipped = ["Content-Type"] if content_type is None else []
    return await client.ask("POST", path, data=BytesIO(body), headers=headers, skip_auto_headers=skipped)


UNREADABLE: list[bytes] = [
    b"{ not json",
    b"",
    b"null",
    b"[]",
    b"5",
    b'"text"',
    b"{}",
    b'{"records": null}',
    b'{"records": {}}',
    b'{"records": [{"data": 1}]} trailing',
    b'{"records": [{"data": 01}]}',
    b'{"records": [{"data": NaN}]}',
    b'{"records": [{"data": "\xff"}]}',
    b'{"records": [{"data": "\xed\xa0\x80"}]}',
    b'{"records": [{"data": "\\ud800"}]}',
    b'\xef\xbb\xbf{"records": [{"data": 1}]}',
    b'{"records": [{"data": "a\nb"}]}',
    b'{"records": [{"data": ' + b"[" * 100_000 + b"]" * 100_000 + b"}]}",
    b'{"records": ' + b"[" * 100_000,
    b'{"records": [{"data": 1}], "records": [{"data": 2}]}',
    b'{"records": [{"data": 1, "data": 2}]}',
    b'{"records": [{"data": 1, "tag": "a", "t\\u0061g": "b"}]}',
    b'{"records": [{"data": 1}], "create": true, "create": true}',
    b'{"records": [{"data": 1}], "config": {"ttl_ms": 1, "ttl_ms": 2}}',
    b'{"records": [{"data": 1}], "create": "yes"}',
    b'{"records": [{"data": 1}], "disable_backpressure": null}',
    b'{"records": [{"data": 1}], "config": {"ttl_ms": -1}}',
    b'{"records": [{"data": 1}], "config": {"dead_letter": "_"}}',
    b'{"records": [{"data": 1}], "config": []}',
    b'{"records": [{"data": 1}], "node": 5}',
    b'{"records": [{"data": 1}], "idempotency_key": 5}',
]


async def test_a_body_that_cannot_be_read_is_refused(server: Server) -> None:
    for body in UNREADABLE:
        refused = await sent(server, "/topics/jobs", body)
        assert (refused.status, refused.code) == (400, "invalid_request"), body[:60]
        assert len(refused.body["error"]["message"]) < 300, body[:60]
        assert (await server.get("jobs")).status == 404, body[:60]


READABLE: list[bytes] = [
    b'{"records": [{"data": {"data": 1, "data": 2, "tag": 3, "tag": 4}}]}',
    b'{"records": [{"data": "\\"data\\" \\"data\\" \\u0061"}]}',
    b'{"records": [{"data": 1, "colour": 1, "colour": 2}], "x": 1, "x": 2}',
    b' \n{\t"records" : [ {"data" : 1} ] }\r\n ',
    b'{"records": [{"data": 1}], "create": null, "config": null, "node": null, "idempotency_key": null}',
    b'{"records": [{"data": 1}], "disable_backpressure": true}',
    b'{"records": [{"data": ' + b"[" * 400 + b"]" * 400 + b"}]}",
]


async def test_what_is_none_of_our_members_is_passed_over(server: Server) -> None:
    for number, body in enumerate(READABLE):
        assert (await sent(server, f"/topics/jobs{number}", body)).status == 201, body[:60]
        assert len((await server.diff(f"jobs{number}")).seqs) == 1, body[:60]


OTHER_TYPES: list[str | None] = [
    None,
    "application/xml",
    "text/plain",
    "text/json",
    "Application/JSON",
    "x application/json",
    "",
]


async def test_a_body_of_another_type_is_refused_before_anything(server: Server) -> None:
    for content_type in OTHER_TYPES:
        for path in ["/topics/jobs", "/topics/jobs/diff", "/topics/jobs/delete", "/topics/ghost/diff"]:
            refused = await sent(server, path, b"{ not json", content_type)
            assert (refused.status, refused.code) == (415, "unsupported_media_type"), (content_type, path)


JSON_TYPES: list[str] = ["application/json", " application/json; charset=utf-8", "application/jsonish"]


async def test_a_type_has_to_begin_like_that_of_json(server: Server) -> None:
    for number, content_type in enumerate(JSON_TYPES):
        assert (await sent(server, f"/topics/jobs{number}", b'{"records":[{"data":1}]}', content_type)).status == 201, (
            content_type
        )


async def test_only_some_bodies_may_be_empty(server: Server) -> None:
    assert (await sent(server, "/topics/jobs", b"", None)).status == 415
    await server.put("jobs")
    assert (await sent(server, "/topics/jobs/diff", b"", None)).status == 200
    assert (await sent(server, "/topics/jobs/diff", b"")).status == 200
    assert (await sent(server, "/topics/jobs/delete", b"", None)).status == 415


async def test_a_body_has_a_limit_declared_or_not(start_server: Any) -> None:
    server = await start_server(max_body_bytes=1024)
    record = b'{"records":[{"data":"' + b"x" * 4096 + b'"}]}'
    declared = await sent(server, "/topics/jobs", record)
    assert (declared.status, declared.code) == (413, "payload_too_large")

    async def chunks() -> Any:
        for start in range(0, len(record), 100):
            yield record[start : start + 100]

    chunked = await server.ask("POST", "/topics/jobs", data=chunks(), headers=JSON)
    assert (chunked.status, chunked.code) == (413, "payload_too_large")
    most = b'{"records":[{"data":"' + b"x" * (1024 - 25) + b'"}]}'
    assert len(most) == 1024
    assert (await sent(server, "/topics/jobs", most)).status == 201


async def test_a_body_in_pieces_is_as_good_as_one_at_once(server: Server) -> None:
    async def pieces() -> Any:
        for piece in (b'{"rec', b'ords":[{"da', b'ta":1}]}'):
            yield piece
            await asyncio.sleep(0)

    written = await server.ask("POST", "/topics/jobs", data=pieces(), headers=JSON)
    assert (written.status, written.body["head_seq"]) == (201, 1)


WRONG_METHODS: list[tuple[str, str, str]] = [
    ("GET", "/topics/jobs/diff", "POST"),
    ("PUT", "/topics/jobs/diff", "POST"),
    ("POST", "/topics", "GET"),
    ("OPTIONS", "/topics/jobs", "DELETE, GET, PATCH, POST, PUT"),
    ("DELETE", "/health", "GET"),
]


async def test_a_wrong_method_is_told_with_the_right_ones(server: Server) -> None:
    for method, path, allowed in WRONG_METHODS:
        refused = await server.ask(method, path)
        assert (refused.status, refused.code, refused.headers["Allow"]) == (405, "method_not_allowed", allowed), (
            method,
            path,
            allowed,
        )


OTHER_PATHS: list[str] = [
    "/nonexistent/route",
    "/topics/",
    "/topics/jobs/",
    "/topics/jobs/diff/",
    "/topics/a/b/c",
    "//topics",
    "/",
]


async def test_there_is_nothing_at_another_path(server: Server) -> None:
    for path in OTHER_PATHS:
        refused = await server.ask("GET", path)
        assert (refused.status, refused.code) == (404, "not_found"), path


async def test_other_paths_keep_their_own_form_of_errors(server: Server) -> None:
    async with server.session.get(f"{server.url}/v0x") as answer:
        assert (await answer.json())["error"]["code"] == "no_such_route"
    async with server.session.get(f"{server.url}/healthz") as answer:
        assert (await answer.json())["status"] == "ok"


async def test_success_is_a_bare_object_with_its_performance(server: Server) -> None:
    for told in (
        await server.put("jobs"),
        await server.write("jobs", 1),
        await server.get("jobs"),
        await server.diff("jobs"),
        await server.delete_records("jobs", before_seq=1),
        await server.ask("GET", "/topics"),
        await server.delete("jobs"),
    ):
        assert told.headers["Content-Type"] == "application/json"
        assert told.headers["Cache-Control"] == "no-store"
        assert isinstance(told.body["performance"]["server_total_ms"], float)
        assert not {"ok", "status"} & told.body.keys()


async def test_a_fault_of_the_node_is_told_without_its_cause(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> None:
        raise ValueError("geheim")

    monkeypatch.setattr("eventd.api.topics.topics.read_state", fail)
    broken = await server.get("jobs")
    assert (broken.status, broken.code) == (500, "internal")
    assert "geheim" not in str(broken.body)
    assert any("request failed" in record.message for record in caplog.records)


async def test_health_and_readiness_are_told(server: Server) -> None:
    health = await server.ask("GET", "/health")
    assert (health.status, health.body["status"], health.body["version"]) == (200, "ok", "1.2.3")
    assert health.body.keys() == {"status", "version", "uptime_ms"}
    await server.put("jobs")
    ready = await server.ask("GET", "/ready")
    assert (ready.status, ready.body) == (200, {"status": "ready", "wal_replay_complete": True, "topics": 1})
    server.checks["database"] = "it does not answer"
    not_ready = await server.ask("GET", "/ready")
    assert not_ready.body == {"status": "not ready", "wal_replay_complete": True, "topics": 1}
    assert (not_ready.status, not_ready.headers["Retry-After"]) == (503, "1")


async def test_figures_are_told_as_text_and_as_json(stored: Server) -> None:
    await stored.put("jobs", type="queue", durability="fsync")
    await stored.write("jobs", 1, 2, 3)
    await stored.write("log", "x")
    await stored.delete_records("jobs", before_seq=2)
    await stored.ask("POST", "/watch", {"topics": {"log": {}}})
    text = await stored.ask("GET", "/metrics")
    assert text.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    lines = (line.rsplit(" ", 1) for line in text.body.splitlines() if not line.startswith("#"))
    figures = {name: float(value) for name, value in lines}
    expected = {
        "topics_topics": 2,
        'topics_topics_by_class{class="fsync"}': 1,
        'topics_topics_by_class{class="disk"}': 1,
        'topics_topics_by_class{class="memory"}': 0,
        "topics_records_live": 3,
        "topics_queue_topics": 1,
        "topics_ready": 1,
        "topics_sse_connections": 0,
        "topics_watch_sessions": 1,
        'topics_topic_head_seq{topic="jobs"}': 3,
        'topics_topic_earliest_seq{topic="jobs"}': 2,
        'topics_topic_records_live{topic="jobs"}': 2,
        'topics_topic_bytes_live{topic="log"}': 3,
        'topics_topic_queue_ready{topic="jobs"}': 2,
        'topics_topic_queue_in_flight{topic="jobs"}': 0,
        "topics_topic_metrics_truncated": 0,
    }
    assert {name: figures.get(name) for name in expected} == expected
    told = (await stored.ask("GET", "/metrics", headers={"Accept": "application/json"})).body
    assert (told["topics"], told["topics_fsync"], told["records_live"], told["bytes_live"]) == (2, 1, 3, 5)
    assert told["wal"]["batches"] > 0
