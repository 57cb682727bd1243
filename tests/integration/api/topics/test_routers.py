"""Routers over HTTP: applied, shown, listed, removed; what they copy, and which are refused."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from eventd.testing import until
from tests.support.fresh import on_sqlite
from tests.support.v0 import Response, Server

DEFAULTS = {
    "preserve_node": True,
    "preserve_tag": True,
    "filter": None,
    "allow_cycle": False,
    "guarantee": "at_least_once",
    "fan_in": False,
}


async def route(server: Server, name: str, source: str, dest: str, **options: Any) -> Response:
    return await server.ask("PUT", f"/routers/{name}", {"source": source, "dest": dest} | options)


async def shown(server: Server, name: str) -> Response:
    return await server.ask("GET", f"/routers/{name}")


async def total(server: Server, name: str) -> int:
    return int((await shown(server, name)).body["forwarded_total"])


async def names(server: Server, query: str = "") -> list[str]:
    listed = await server.ask("GET", f"/routers{query}")
    return [router["router"] for router in listed.body["routers"]]


async def test_a_router_is_made_with_its_topics_and_made_once(stored: Server) -> None:
    made = await route(stored, "jobs->audit", "jobs", "audit")
    told = {"router": "jobs->audit", "created": True, "source": "jobs", "dest": "audit"} | DEFAULTS
    assert made.status == 201
    assert {name: made.body[name] for name in told} == told
    assert made.body["performance"]["server_total_ms"] >= 0
    again = await route(stored, "jobs->audit", "jobs", "audit")
    assert (again.status, again.body["created"]) == (200, False)
    changed = await route(stored, "jobs->audit", "jobs", "audit", preserve_tag=False)
    assert (changed.status, changed.body["created"], changed.body["preserve_tag"]) == (200, False, False)
    assert (await shown(stored, "jobs->audit")).body["preserve_tag"] is False
    for topic in ("jobs", "audit"):
        assert (await stored.get(topic)).status == 200


@on_sqlite
async def test_a_router_counts_what_it_copies_until_it_is_removed(stored: Server) -> None:
    await route(stored, "jobs->audit", "jobs", "audit")
    await stored.write("jobs", 1)
    await stored.write("jobs", 2)
    assert await total(stored, "jobs->audit") == 2
    for deleted in (True, False):
        gone = await stored.ask("DELETE", "/routers/jobs->audit")
        assert (gone.status, gone.body["router"], gone.body["deleted"]) == (200, "jobs->audit", deleted)
    await stored.write("jobs", 3)
    assert (await stored.diff("audit")).data == [1, 2]
    missing = await shown(stored, "jobs->audit")
    assert (missing.status, missing.code, missing.detail) == (404, "router_not_found", {"router": "jobs->audit"})


async def test_what_a_router_cannot_be_is_said(server: Server) -> None:
    for body in (
        {"source": "a", "dest": "a"},
        {"dest": "a"},
        {"source": "a"},
        {"source": "_a", "dest": "b"},
        {"source": "a", "dest": "b", "filter": ["tag", "Regex", "x"]},
        {"source": "a", "dest": "b", "filter": ["tag", "Glob", "x"]},
        {"source": "a", "dest": "b", "filter": ["tag", "Eq"]},
        {"source": "a", "dest": "b", "guarantee": "maybe"},
        {"source": "a", "dest": "b", "preserve_node": None},
        {"source": "a", "dest": "b", "map": {"type": "x"}},
    ):
        refused = await server.ask("PUT", "/routers/r", body)
        assert (refused.status, refused.code) == (400, "invalid_request"), body
    assert (await server.ask("PUT", "/routers/-r", {"source": "a", "dest": "b"})).code == "invalid_request"
    assert (await server.ask("PUT", "/routers/r", data="{}", headers={"Content-Type": "text/plain"})).status == 415
    assert (await server.ask("GET", "/topics")).body["topics"] == []
    assert await names(server) == []


async def test_names_that_no_router_has_are_not_found(server: Server) -> None:
    assert (await shown(server, "nope")).detail == {"router": "nope"}
    assert (await shown(server, "%00")).code == "router_not_found"
    gone = await server.ask("DELETE", "/routers/-%00")
    assert (gone.status, gone.body["deleted"]) == (200, False)


async def test_a_destination_that_may_not_be_made_has_to_be_there(server: Server) -> None:
    refused = await route(server, "jobs->audit", "jobs", "audit", create_dest=False)
    assert (refused.status, refused.code, refused.detail) == (404, "topic_not_found", {"topic": "audit"})
    assert (await shown(server, "jobs->audit")).status == 404
    assert (await server.get("jobs")).status == 404
    await server.put("audit")
    assert (await route(server, "jobs->audit", "jobs", "audit", create_dest=False)).status == 201


@on_sqlite
async def test_a_copy_has_what_its_original_has(stored: Server) -> None:
    await stored.write("feed", "before")
    await route(stored, "mirror", "feed", "mirror")
    await route(stored, "bare", "feed", "bare", preserve_node=False, preserve_tag=False)
    await route(stored, "public", "feed", "public", filter=["tag", "Glob", "public:*"])
    records = [
        {"data": {"n": n}, "node": "origin-1", "tag": tag, "meta": {"m": n}}
        for n, tag in enumerate(("t1", "public:t2", "t3"), 1)
    ]
    await stored.write_records("feed", *records)
    mirrored = (await stored.diff("mirror", node="consumer", include_tags=True)).body["records"]
    assert [record["data"] for record in mirrored] == [{"n": 1}, {"n": 2}, {"n": 3}]
    assert [(record["$seq"], record["$node"], record["$tag"], record["meta"]) for record in mirrored] == [
        (1, "origin-1", "t1", {"m": 1}),
        (2, "origin-1", "public:t2", {"m": 2}),
        (3, "origin-1", "t3", {"m": 3}),
    ]
    assert (await stored.diff("mirror", node="origin-1")).body["records"] == []
    bare = (await stored.diff("bare", include_tags=True)).body["records"]
    assert [record.keys() & {"$node", "$tag"} for record in bare] == [set()] * 3
    assert (await stored.diff("public")).data == [{"n": 2}]
    assert (await shown(stored, "public")).body["lag"] == 0


async def test_a_filter_may_be_a_text_and_is_told_as_a_list(server: Server) -> None:
    assert (await route(server, "r", "a", "b", filter="public:*")).body["filter"] == ["tag", "Glob", "public:*"]
    assert (await route(server, "r", "a", "b", filter="one")).body["filter"] == ["tag", "Eq", "one"]


async def test_routers_are_listed_by_what_they_join(stored: Server) -> None:
    for name, source, dest in (("a->b", "a", "b"), ("a->c", "a", "c"), ("x->d", "x", "d")):
        assert (await route(stored, name, source, dest)).status == 201
    assert await names(stored, "?source=a") == ["a->b", "a->c"]
    assert await names(stored, "?dest=c") == ["a->c"]
    assert await names(stored, "?prefix=a-%3E") == ["a->b", "a->c"]
    assert await names(stored, "?source=ghost") == []
    first = await stored.ask("GET", "/routers?page_size=2")
    assert [router["router"] for router in first.body["routers"]] == ["a->b", "a->c"]
    assert first.body["routers"][0].items() >= {"guarantee": "at_least_once", "forwarded_total": 0}.items()
    rest = await stored.ask("GET", "/routers", params={"cursor": first.body["next_cursor"]})
    assert [router["router"] for router in rest.body["routers"]] == ["x->d"]
    assert "next_cursor" not in rest.body
    assert (await stored.ask("GET", "/routers?cursor=%21%21")).code == "invalid_request"


@on_sqlite
async def test_two_sources_do_not_meet_and_a_router_does_not_move(stored: Server) -> None:
    for name, source, dest in (("a->b", "a", "b"), ("a->c", "a", "c")):
        await route(stored, name, source, dest)
    met = await route(stored, "x->c", "x", "c")
    assert (met.status, met.code) == (409, "topic_exists_incompatible")
    assert met.detail == {"topic": "c", "reason": "router_dest_fan_in"}
    moved = await route(stored, "a->b", "a", "z")
    assert (moved.status, moved.code) == (409, "topic_exists_incompatible")
    assert moved.detail == {
        "router": "a->b",
        "reason": "router_repoint_forbidden",
        "existing_source": "a",
        "existing_dest": "b",
    }
    for topic in ("x", "z"):
        assert (await stored.get(topic)).status == 404
    assert (await route(stored, "again", "a", "b")).status == 201
    await stored.write("a", 1)
    assert (await stored.diff("b")).data == [1, 1]


@on_sqlite
async def test_a_cycle_is_refused_with_its_way(stored: Server) -> None:
    await route(stored, "a->b", "a", "b")
    await route(stored, "b->c", "b", "c")
    refused = await route(stored, "c->a", "c", "a")
    assert (refused.status, refused.code, refused.detail) == (409, "router_cycle", {"cycle": ["c", "a", "b", "c"]})
    assert (await shown(stored, "c->a")).status == 404


@on_sqlite
async def test_a_mirror_that_is_allowed_ends_by_its_hops(stored: Server) -> None:
    for name, source, dest in (("a->b", "a", "b"), ("b->a", "b", "a")):
        assert (await route(stored, name, source, dest, allow_cycle=True)).status == 201
    await stored.write_records("a", {"data": "once", "node": "w"})
    mirrored = (await stored.diff("b")).body
    assert {record["$node"] for record in mirrored["records"]} == {"w"}
    heads = [(await stored.get(topic)).body["head_seq"] for topic in ("a", "b")]
    assert heads == [5, 4]


@on_sqlite
async def test_a_mirror_that_keeps_identities_has_each_record_once(stored: Server) -> None:
    for name, source, dest in (("a->b", "a", "b"), ("b->a", "b", "a")):
        assert (await route(stored, name, source, dest, fan_in=True)).status == 201
    await stored.write("a", "from a")
    await stored.write("b", "from b")
    for topic in ("a", "b"):
        assert sorted((await stored.diff(topic)).data) == ["from a", "from b"]


@on_sqlite
async def test_a_full_destination_holds_its_router_and_nothing_is_passed_over(stored: Server) -> None:
    await stored.put("dst", cap_records=2, discard="reject")
    await route(stored, "src->dst", "src", "dst")
    await stored.write("src", *[{"i": i} for i in range(1, 5)])
    assert (await stored.diff("dst")).data == [{"i": 1}, {"i": 2}]
    held = (await shown(stored, "src->dst")).body
    assert held.items() >= {"forwarded_total": 2, "state": "backing-off", "reason": "full", "lag": 2}.items()
    await stored.delete_records("dst", before_seq=3)
    assert (await stored.diff("dst")).data == [{"i": 3}, {"i": 4}]
    freed = (await shown(stored, "src->dst")).body
    assert freed.items() >= {"forwarded_total": 4, "state": "running", "reason": "", "lag": 0}.items()


@on_sqlite
async def test_routers_go_with_a_topic_of_theirs(stored: Server) -> None:
    await route(stored, "jobs->audit", "jobs", "audit")
    await route(stored, "audit->mirror", "audit", "mirror")
    gone = await stored.delete("audit")
    assert gone.body["routers_removed"] == ["audit->mirror", "jobs->audit"]
    for name in gone.body["routers_removed"]:
        assert (await shown(stored, name)).code == "router_not_found"
    await stored.write("jobs", 1)
    assert (await stored.get("audit")).status == 404


async def test_what_is_read_has_come_over_any_number_of_hops(server: Server) -> None:
    chain = [f"t{n}" for n in range(12)]
    for source, dest in pairwise(chain):
        await route(server, f"{source}->{dest}", source, dest)
    for n in range(3):
        await server.write(chain[0], n)
        assert (await server.diff(chain[-1])).data == [*range(n + 1)]


async def test_the_limit_of_routers_leaves_no_topic_behind(start_server: Any) -> None:
    server = await start_server(max_routers=1)
    await route(server, "a->b", "a", "b")
    refused = await route(server, "c->d", "c", "d")
    assert (refused.status, refused.code, refused.detail) == (429, "throttled", {"limit": "max_routers", "max": 1})
    assert refused.headers["Retry-After"] == "1"
    assert (await server.get("d")).status == 404
    assert (await route(server, "a->b", "a", "b", preserve_tag=False)).status == 200


async def test_the_limit_of_topics_holds_for_those_a_router_makes(start_server: Any) -> None:
    server = await start_server(max_topics=3)
    await route(server, "a->b", "a", "b")
    refused = await route(server, "c->d", "c", "d")
    assert (refused.status, refused.detail) == (429, {"limit": "max_topics", "max": 3})
    assert (await server.get("c")).status == 404
    assert (await route(server, "a->d", "a", "d")).status == 201


async def test_a_key_is_for_routers_between_its_own_topics(start_server: Any) -> None:
    server = await start_server(keys="full,t42::tenant42:")
    full, key = server.with_key("full"), server.with_key("t42")
    assert (await route(key, "tenant42:r", "tenant42:a", "tenant42:b")).status == 201
    for name, source, dest in (
        ("r", "tenant42:a", "tenant42:b"),
        ("tenant42:s", "tenant99:a", "tenant42:b"),
        ("tenant42:s", "tenant42:a", "tenant99:b"),
    ):
        refused = await route(key, name, source, dest)
        assert (refused.status, refused.code) == (403, "forbidden")
    assert (await route(full, "tenant42:x", "tenant99:a", "tenant99:b")).status == 201
    assert await names(key) == ["tenant42:r"]
    assert await names(full) == ["tenant42:r", "tenant42:x"]
    assert (await shown(key, "tenant42:x")).status == 403
    assert (await key.ask("DELETE", "/routers/tenant42:x")).status == 403
    assert (await key.ask("DELETE", "/routers/tenant42:r")).body["deleted"] is True


async def test_the_limit_of_bytes_holds_a_router_until_there_is_room(start_server: Any) -> None:
    server = await start_server(max_total_bytes=250)
    await route(server, "a->b", "a", "b")
    await server.write("a", "x" * 98)
    await server.write("a", "y" * 28)
    assert [text[0] for text in (await server.diff("b")).data] == ["x"]
    held = (await shown(server, "a->b")).body
    assert held.items() >= {"state": "backing-off", "reason": "full", "lag": 1}.items()
    await server.delete_records("a", before_seq=2)

    async def there() -> bool:
        return [text[0] for text in (await server.diff("b")).data] == ["x", "y"]

    await until(there, "the copy that had no room")


async def test_what_can_never_be_copied_is_told_with_its_reason(server: Server) -> None:
    await server.put("small", cap_bytes=10, discard="reject")
    await route(server, "a->small", "a", "small")
    await server.write("a", "x" * 20, 1)
    assert (await server.diff("small")).data == [1]
    told = (await shown(server, "a->small")).body
    assert (told["forwarded_total"], told["refused_total"], told["state"]) == (1, 1, "running")
    (refused,) = told["refused"]
    assert refused["reason"] == "too_large"
    assert refused["detail"] == "22 bytes of data and meta are larger than the destination's limit of 10 bytes"
