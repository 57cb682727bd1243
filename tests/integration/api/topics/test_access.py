"""Access to /v0: keys, scopes, prefixes, and the limits of concurrency."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from eventd.testing import until
from tests.support.v0 import Server

KEYS = "full, ro:read, wo:read+write, t42::tenant42:, del:read+delete"


@pytest.fixture
async def guarded(start_server: Any) -> Server:
    server: Server = await start_server(keys=KEYS)
    full = server.with_key("full")
    for name in ("jobs", "tenant42:jobs", "tenant99:jobs"):
        await full.write(name, 1)
    return server


REQUESTS: list[tuple[str, str]] = [
    ("GET", "/topics"),
    ("GET", "/topics/jobs"),
    ("PUT", "/topics/jobs"),
    ("PATCH", "/topics/jobs"),
    ("POST", "/topics/jobs"),
    ("DELETE", "/topics/jobs"),
    ("POST", "/topics/jobs/diff"),
    ("POST", "/topics/jobs/delete"),
    ("GET", "/metrics"),
    ("GET", "/nonexistent"),
    ("POST", "/topics"),
]


async def test_a_stranger_is_told_nothing(guarded: Server) -> None:
    for method, path in REQUESTS:
        for key in ["", "unknown", "ro:read"]:
            refused = await guarded.with_key(key).ask(method, path)
            assert (refused.status, refused.code) == (401, "unauthorized"), (method, path, key)
            assert refused.headers["WWW-Authenticate"] == "Bearer", (method, path, key)


async def test_a_key_in_the_query_opens_no_data(guarded: Server) -> None:
    assert (await guarded.ask("GET", "/topics?token=full")).status == 401


async def test_health_and_readiness_need_no_key_and_figures_do(guarded: Server) -> None:
    assert (await guarded.ask("GET", "/health")).status == 200
    assert (await guarded.ask("GET", "/ready")).status == 200
    assert (await guarded.with_key("ro").ask("GET", "/metrics")).status == 200


async def test_health_and_readiness_can_be_guarded_too(start_server: Any) -> None:
    server = await start_server(keys=KEYS, guards_probes=True)
    for root, path in (("/v0", "/health"), ("/v0", "/ready"), ("", "/healthz"), ("", "/readyz")):
        for key, status in (("", 401), ("unknown", 401), ("del", 200)):
            headers = {"Authorization": f"Bearer {key}"} if key else {}
            async with server.session.get(f"{server.url}{root}{path}", headers=headers) as answer:
                assert answer.status == status, f"{root}{path} as {key!r}"


async def test_readiness_at_the_root_tells_what_that_of_topics_does(server: Server) -> None:
    await server.write("jobs", 1)
    async with server.session.get(f"{server.url}/readyz") as answer:
        told = await answer.json()
    assert told == {"checks": {"database": "ok"}} | (await server.ask("GET", "/ready")).body
    assert told["topics"] == 1


READ = [("GET", "/topics", None), ("GET", "/topics/jobs", None), ("POST", "/topics/jobs/diff", {})]
WRITE = [("POST", "/topics/jobs", {"records": [{"data": 1}]})]
DELETE = [("POST", "/topics/jobs/delete", {"before_seq": 1}), ("DELETE", "/topics/jobs", None)]
ADMIN = [("PUT", "/topics/jobs", {}), ("PATCH", "/topics/jobs", {})]


@pytest.mark.parametrize(
    ("key", "allowed", "forbidden"),
    [
        ("ro", READ, [*WRITE, *DELETE, *ADMIN]),
        ("wo", [*READ, *WRITE], [*DELETE, *ADMIN]),
        ("del", [*READ, *DELETE], [*WRITE, *ADMIN]),
        ("full", [*READ, *WRITE, *ADMIN, *DELETE], []),
    ],
)
async def test_a_key_does_what_its_scopes_say(
    guarded: Server, key: str, allowed: list[Any], forbidden: list[Any]
) -> None:
    client = guarded.with_key(key)
    for method, path, body in forbidden:
        refused = await client.ask(method, path, body)
        assert (refused.status, refused.code) == (403, "forbidden"), (method, path)
    for method, path, body in allowed:
        assert (await client.ask(method, path, body)).status == 200, (method, path)


async def test_the_scope_is_asked_before_the_name_and_both_before_the_body(guarded: Server) -> None:
    headers = {"Content-Type": "text/plain"}
    assert (await guarded.with_key("ro").ask("POST", "/topics/jobs", data=b"x", headers=headers)).status == 403
    assert (await guarded.with_key("t42").ask("POST", "/topics/jobs", data=b"x", headers=headers)).status == 403
    assert (await guarded.with_key("t42").ask("POST", "/topics/tenant42:a", data=b"x", headers=headers)).status == 415


async def test_a_key_is_held_to_its_names_however_they_are_written(guarded: Server) -> None:
    client = guarded.with_key("t42")
    for path in ("/topics/tenant42:jobs", "/topics/tenant42%3Ajobs", "/topics/%74enant42:jobs"):
        assert (await client.ask("GET", path)).status == 200, path
    for name in ("tenant99:jobs", "jobs", "tenant4", "tenant42", "%74enant99:jobs", "Tenant42:jobs", "ghost"):
        for method, body in (("GET", None), ("PUT", {}), ("POST", {"records": [{"data": 1}]}), ("DELETE", None)):
            refused = await client.ask(method, f"/topics/{name}", body)
            assert (refused.status, refused.code) == (403, "forbidden"), (method, name)
    listed = (await client.ask("GET", "/topics")).body["topics"]
    assert [topic["topic"] for topic in listed] == ["tenant42:jobs"]
    assert (await client.ask("GET", "/topics?prefix=tenant99")).body["topics"] == []
    assert [t["topic"] for t in (await client.ask("GET", "/topics?prefix=t")).body["topics"]] == ["tenant42:jobs"]


async def test_figures_are_of_the_names_of_the_key(guarded: Server) -> None:
    text = (await guarded.with_key("t42").ask("GET", "/metrics")).body
    assert 'topic="tenant42:jobs"' in text
    assert "tenant99" not in text
    assert "topics_topics 1.0\n" in text


async def test_dead_letters_go_nowhere_the_key_may_not(guarded: Server) -> None:
    client = guarded.with_key("t42")
    for refused in (
        await client.put("tenant42:q", type="queue", dead_letter="tenant99:dlq"),
        await client.ask("PATCH", "/topics/tenant42:jobs", {"dead_letter": "tenant99:dlq"}),
        await client.write("tenant42:new", 1, config={"dead_letter": "tenant99:dlq"}),
    ):
        assert (refused.status, refused.code) == (403, "forbidden")
    assert (await client.put("tenant42:q", type="queue", dead_letter="tenant42:dlq")).status == 201


async def test_only_an_admin_says_what_a_new_topic_is_like(guarded: Server) -> None:
    client = guarded.with_key("wo")
    refused = await client.write("fresh", 1, config={"cap_records": 5})
    assert (refused.status, refused.code) == (403, "forbidden")
    assert (await client.get("fresh")).status == 404
    assert (await client.write("jobs", 1, config={"cap_records": 5})).status == 200, "it is there: nothing is made"
    assert (await client.write("fresh", 1)).status == 201
    assert (await guarded.with_key("full").write("other", 1, config={"cap_records": 5})).status == 201


async def test_whoever_claims_may_read_and_write(guarded: Server) -> None:
    await guarded.with_key("full").put("queue", type="queue")
    claim = ("POST", "/topics/queue/claim", {"node": "w"})
    for key, status in (("ro", 403), ("del", 403), ("wo", 200), ("t42", 403)):
        assert (await guarded.with_key(key).ask(*claim)).status == status, key


async def test_a_watch_and_a_router_are_held_to_the_names_of_the_key(guarded: Server) -> None:
    client = guarded.with_key("t42")
    assert (await client.ask("POST", "/watch", {"topics": {"tenant42:jobs": {}}})).status == 200
    inside = {"source": "tenant42:jobs", "dest": "tenant42:copy"}
    for refused in (
        await client.ask("POST", "/watch", {"topics": {"tenant42:jobs": {}, "tenant99:jobs": {}}}),
        await client.ask("POST", "/watch?lenient=true", {"topics": {"tenant99:jobs": {}}}),
        await client.ask("PUT", "/routers/tenant42:r", inside | {"source": "tenant99:jobs"}),
        await client.ask("PUT", "/routers/tenant42:r", inside | {"dest": "tenant99:copy"}),
        await client.ask("PUT", "/routers/r", inside),
    ):
        assert (refused.status, refused.code) == (403, "forbidden")
    assert (await client.ask("PUT", "/routers/tenant42:r", inside)).status == 201


async def test_a_key_has_so_many_requests_at_once(start_server: Any) -> None:
    server: Server = await start_server(keys="a, b", max_inflight_per_key=2)
    first, second = server.with_key("a"), server.with_key("b")
    await first.put("jobs")
    waiting = [asyncio.ensure_future(first.diff("jobs", wait_ms=20_000)) for _ in range(2)]
    await until(lambda: server.v0.serving.concurrency.requests.taken == 2, "both to wait")
    full = await first.get("jobs")
    assert (full.status, full.code, full.detail) == (429, "throttled", None)
    assert full.headers["Retry-After"] == "1"
    assert (await first.ask("GET", "/health")).status == 200
    assert (await second.get("jobs")).status == 200, "another key has its own"
    await second.write("jobs", 1)
    for each in waiting:
        assert (await each).seqs == [1]
    assert (await first.get("jobs")).status == 200
    assert server.v0.serving.concurrency.requests.taken == 0


async def test_a_refused_request_gives_its_place_back(start_server: Any) -> None:
    server: Server = await start_server(max_inflight_per_key=1)
    for _ in range(5):
        assert (await server.get("ghost")).status == 404
        assert (
            await server.ask("POST", "/topics/jobs", data=b"{", headers={"Content-Type": "text/plain"})
        ).status == 415


async def test_there_are_so_many_topics(start_server: Any) -> None:
    server: Server = await start_server(max_topics=2)
    await server.put("a")
    await server.write("b", 1)
    for refused in (await server.put("c"), await server.write("c", 1)):
        assert (refused.status, refused.code) == (429, "throttled")
        assert refused.detail == {"limit": "max_topics", "max": 2}
        assert refused.headers["Retry-After"] == "1"
    assert (await server.put("a", cap_records=1)).status == 200
    assert (await server.write("b", 2)).status == 200
    await server.delete("a")
    assert (await server.put("c")).status == 201, "a place that was given back is taken again"


async def test_dead_letters_make_no_topic_more_than_there_may_be(start_server: Any) -> None:
    server: Server = await start_server(max_topics=1)
    assert (await server.put("jobs", type="queue", max_deliveries=1, dead_letter="dlq")).status == 201
    await server.write("jobs", 1)
    worker = {"node": "w"}
    claimed = await server.ask("POST", "/topics/jobs/claim", worker)
    assert claimed.body["count"] == 1
    await server.ask("POST", "/topics/jobs/nack", worker | {"seqs": [1]})
    assert (await server.ask("POST", "/topics/jobs/claim", worker)).body["count"] == 0
    assert (await server.get("dlq")).status == 404
    assert (await server.get("jobs")).body["count"] == 1, "it waits in the queue"


async def test_there_are_so_many_routers(start_server: Any) -> None:
    server: Server = await start_server(max_routers=1)
    await server.ask("PUT", "/routers/one", {"source": "a", "dest": "b"})
    refused = await server.ask("PUT", "/routers/two", {"source": "a", "dest": "c"})
    assert (refused.status, refused.detail) == (429, {"limit": "max_routers", "max": 1})
    assert (await server.get("c")).status == 404, "what is refused leaves nothing behind"
    assert (await server.ask("PUT", "/routers/one", {"source": "a", "dest": "b", "preserve_tag": False})).status == 200


async def test_without_keys_a_foreign_page_gets_nothing(server: Server) -> None:
    foreign = await server.ask("GET", "/topics", headers={"Origin": "https://elsewhere.example"})
    assert (foreign.status, foreign.code) == (403, "forbidden")
    renamed = await server.ask("GET", "/topics", headers={"Host": "rebound.example"})
    assert (renamed.status, renamed.code) == (403, "forbidden")
