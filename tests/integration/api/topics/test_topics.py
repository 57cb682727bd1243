"""Topics: how they are created, shown, listed and deleted."""

from __future__ import annotations

import base64

from eventd.log.routemaster.publish import PublishedEvent, PublishEvent
from eventd.log.routemaster.surface_topic import OpenTopic, surface_topic_config
from tests.support.fresh import on_sqlite
from tests.support.v0 import Server

DEFAULTS = {
    "type": "log",
    "ttl_ms": 0,
    "cap_records": 0,
    "cap_bytes": 0,
    "discard": "old",
    "durable": False,
    "durability": "disk",
    "priority": None,
    "auto_priority": True,
    "auto_create": True,
    "idempotency_window_ms": 120_000,
    "dedupe_node": True,
    "lease_ms": 30_000,
    "claim_jitter_ms": 0,
    "max_deliveries": 0,
    "dead_letter": None,
    "leases_durable": False,
}


@on_sqlite
async def test_a_topic_is_made_with_defaults_and_made_once(stored: Server) -> None:
    made = await stored.put("jobs")
    assert (made.status, made.body["topic"], made.body["created"]) == (201, "jobs", True)
    assert made.body["config"] == DEFAULTS
    assert made.body["performance"]["server_total_ms"] >= 0
    again = await stored.put("jobs")
    assert (again.status, again.body["created"], again.body["config"]) == (200, False, DEFAULTS)


async def test_an_empty_body_of_no_type_makes_a_topic(server: Server) -> None:
    made = await server.ask("PUT", "/topics/jobs")
    assert (made.status, made.body["config"]) == (201, DEFAULTS)


async def test_a_second_put_replaces_all_that_was_set(server: Server) -> None:
    await server.put("jobs", ttl_ms=5000)
    again = await server.put("jobs", cap_records=999, discard="reject")
    assert (again.status, again.body["created"]) == (200, False)
    shown = (await server.get("jobs")).body["config"]
    assert shown == DEFAULTS | {"cap_records": 999, "discard": "reject"}


async def test_a_patch_changes_what_it_names_and_null_takes_a_field_back(server: Server) -> None:
    await server.put("jobs", ttl_ms=5000, cap_records=7, priority=3)
    patched = await server.ask("PATCH", "/topics/jobs", {"cap_records": 8, "priority": None})
    assert (patched.status, patched.body["created"]) == (200, False)
    assert patched.body["config"] == DEFAULTS | {"ttl_ms": 5000, "cap_records": 8}
    assert (await server.get("jobs")).body["config"] == patched.body["config"]
    assert (await server.ask("PATCH", "/topics/ghost", {"ttl_ms": 1})).code == "topic_not_found"
    assert (await server.ask("PATCH", "/topics/jobs", {"ttl_ms": -1})).code == "invalid_request"
    assert (await server.ask("PATCH", "/topics/jobs", {"type": "queue"})).code == "topic_exists_incompatible"


BAD_NAMES: list[str] = ["_foo", "-a", ".a", ":a", "a b", "a/b", "ü", "a>b", "a" * 256, "a\x00b", "a\nb"]


async def test_a_bad_name_makes_no_topic_is_not_there_and_is_deleted_at_once(server: Server) -> None:
    for name in BAD_NAMES:
        path = "/topics/" + "".join(f"%{byte:02X}" for byte in name.encode())
        assert (await server.ask("PUT", path, {})).code == "invalid_request", name
        assert (await server.ask("POST", path, {"records": [{"data": 1}]})).code == "invalid_request", name
        shown = await server.ask("GET", path)
        assert (shown.status, shown.code) == (404, "topic_not_found"), name
        assert (await server.ask("POST", path + "/diff", {})).code == "topic_not_found", name
        deleted = await server.ask("DELETE", path)
        assert (deleted.status, deleted.body["deleted"], deleted.body["routers_removed"]) == (200, False, []), name


async def test_a_good_name_makes_a_topic_also_percent_encoded(server: Server) -> None:
    for name in ["a", "0", "A.b_c:d-e", "a" * 255]:
        path = "/topics/" + "".join(f"%{byte:02X}" for byte in name.encode())
        assert (await server.ask("PUT", path, {})).body["topic"] == name, name
        assert (await server.get(name)).status == 200, name


async def test_names_tell_large_letters_from_small_ones(server: Server) -> None:
    await server.put("Jobs")
    assert (await server.get("jobs")).status == 404


async def test_there_is_nothing_before_the_first_topic(server: Server) -> None:
    ghost = await server.get("ghost")
    assert (ghost.status, ghost.code, ghost.detail) == (404, "topic_not_found", {"topic": "ghost"})
    listed = await server.ask("GET", "/topics")
    assert (listed.status, listed.body["topics"]) == (200, [])
    assert "next_cursor" not in listed.body


@on_sqlite
async def test_a_fresh_topic_is_empty(stored: Server) -> None:
    await stored.put("jobs")
    shown = (await stored.get("jobs")).body
    expected = {"type": "log", "head_seq": 0, "earliest_seq": 1, "next_seq": 1, "count": 0, "bytes": 0}
    assert {name: shown[name] for name in expected} == expected
    assert "queue" not in shown
    assert shown["last_write_ts"] is None
    assert shown["config"] == DEFAULTS


async def test_reads_are_remembered_unless_they_are_not_to_be(server: Server) -> None:
    await server.put("jobs")
    untouched = (await server.get("jobs", "?touch=false")).body
    assert (untouched["last_read_ts"], untouched["effective_priority"]) == (None, 0)
    await server.get("jobs", "?touch=0")
    assert (await server.get("jobs", "?touch=false")).body["last_read_ts"] is None
    touched = (await server.get("jobs")).body
    assert touched["last_read_ts"] > 0
    assert touched["effective_priority"] > 400


async def test_a_priority_is_kept_as_it_is_sent_and_acts_within_bounds(server: Server) -> None:
    for priority, effective in [(7, 7), (5000, 1000), (-5000, -1000), (0, 0)]:
        made = await server.put("jobs", priority=priority)
        assert made.body["config"]["priority"] == priority, (priority, effective)
        assert (await server.get("jobs")).body["effective_priority"] == effective, (priority, effective)


async def test_a_topic_that_does_not_go_by_its_readers_has_no_priority(server: Server) -> None:
    await server.put("jobs", auto_priority=False)
    await server.get("jobs")
    assert (await server.get("jobs")).body["effective_priority"] == 0


DURABILITIES: list[tuple[dict[str, object], bool, str]] = [
    ({"durable": True}, True, "fsync"),
    ({"durable": False}, False, "disk"),
    ({"durability": "fsync"}, True, "fsync"),
    ({"durability": "memory", "durable": True}, False, "memory"),
    ({"durability": None, "durable": True}, True, "fsync"),
    ({"durability": "ephemeral"}, False, "ephemeral"),
]


async def test_the_durability_is_always_told(server: Server) -> None:
    for said, durable, durability in DURABILITIES:
        config = (await server.put("jobs", **said)).body["config"]
        assert (config["durable"], config["durability"]) == (durable, durability), said
        listed = (await server.ask("GET", "/topics")).body["topics"][0]
        assert listed["durable"] == durable, said
        await server.delete("jobs")


async def test_leases_and_jitter_are_brought_within_their_bounds(server: Server) -> None:
    config = (await server.put("a", lease_ms=1, claim_jitter_ms=60_000)).body["config"]
    assert (config["lease_ms"], config["claim_jitter_ms"]) == (100, 5000)
    config = (await server.put("a", lease_ms=2**40)).body["config"]
    assert config["lease_ms"] == 86_400_000


@on_sqlite
async def test_a_queue_has_jobs_and_stays_a_queue(stored: Server) -> None:
    await stored.put("jobs", type="queue")
    shown = (await stored.get("jobs")).body
    assert (shown["type"], shown["queue"]) == ("queue", {"ready": 0, "in_flight": 0, "dead_lettered": 0})
    refused = await stored.put("jobs", type="log")
    assert (refused.status, refused.code) == (409, "topic_exists_incompatible")
    assert refused.detail == {"topic": "jobs", "existing_type": "queue", "requested_type": "log"}
    assert (await stored.get("jobs")).body["type"] == "queue"


async def test_dead_letters_need_a_topic_that_can_be(server: Server) -> None:
    for type_, letters in [("log", "_bad"), ("queue", "a b"), ("queue", "jobs"), ("log", "")]:
        refused = await server.put("jobs", type=type_, dead_letter=letters)
        assert (refused.status, refused.code, refused.detail) == (400, "invalid_request", {"dead_letter": letters}), (
            type_,
            letters,
        )
        assert (await server.get("jobs")).status == 404, (type_, letters)


async def test_a_patch_is_looked_at_with_all_that_stays(server: Server) -> None:
    await server.put("jobs", type="queue", dead_letter="letters")
    refused = await server.ask("PATCH", "/topics/jobs", {"dead_letter": "jobs"})
    assert (refused.status, refused.detail) == (400, {"dead_letter": "jobs"})
    assert (await server.ask("PATCH", "/topics/jobs", {"ttl_ms": 2**64})).code == "invalid_request"
    assert (await server.get("jobs")).body["config"]["dead_letter"] == "letters"


async def test_a_log_may_name_itself_for_dead_letters(server: Server) -> None:
    assert (await server.put("jobs", dead_letter="jobs")).body["config"]["dead_letter"] == "jobs"


WRONG_SETTINGS: list[dict[str, object]] = [
    {"ttl_ms": -1},
    {"ttl_ms": 1.5},
    {"ttl_ms": "1"},
    {"ttl_ms": None},
    {"ttl_ms": 2**64},
    {"cap_records": True},
    {"cap_bytes": [1]},
    {"discard": "new"},
    {"discard": None},
    {"type": "stack"},
    {"durability": "cloud"},
    {"durable": None},
    {"durable": 1},
    {"priority": 2**31},
    {"priority": "high"},
    {"auto_create": "yes"},
    {"dead_letter": 5},
]


async def test_a_wrong_setting_is_told_by_its_name(server: Server) -> None:
    for config in WRONG_SETTINGS:
        refused = await server.ask("PUT", "/topics/jobs", config)
        assert (refused.status, refused.code) == (400, "invalid_request"), config
        assert next(iter(config)) in refused.body["error"]["message"], config
        assert (await server.get("jobs")).status == 404, config


async def test_the_largest_numbers_are_taken_and_do_no_harm(stored: Server) -> None:
    for field in ["ttl_ms", "cap_records", "cap_bytes", "idempotency_window_ms", "max_deliveries"]:
        made = await stored.put(field, **{field: 2**64 - 1})
        assert made.body["config"][field] == 2**64 - 1, field
        written = await stored.write(field, 1, 2, idempotency_key="k")
        assert (written.status, written.body["head_seq"]) == (200, 2), field
        assert (await stored.diff(field)).data == [1, 2], field


async def test_unknown_settings_are_passed_over(server: Server) -> None:
    assert (await server.put("jobs", colour="red")).body["config"] == DEFAULTS


@on_sqlite
async def test_topics_are_listed_page_by_page(stored: Server) -> None:
    for number in range(5):
        await stored.put(f"box{number}")
    await stored.put("other")
    names: list[list[str]] = []
    cursor = ""
    while True:
        page = (await stored.ask("GET", f"/topics?prefix=box&page_size=2{cursor}")).body
        names.append([topic["topic"] for topic in page["topics"]])
        if "next_cursor" not in page:
            break
        assert base64.b64decode(page["next_cursor"]) == f'{{"after":"{names[-1][-1]}"}}'.encode()
        cursor = f"&cursor={page['next_cursor']}"
    assert names == [["box0", "box1"], ["box2", "box3"], ["box4"]]


async def test_names_are_in_the_order_of_their_bytes(stored: Server) -> None:
    names = ["B", "a", "Z", "a:b", "a-b", "a.b", "a_b", "0", "a0", "aa"]
    for name in names:
        await stored.put(name)
    listed = (await stored.ask("GET", "/topics")).body["topics"]
    assert [topic["topic"] for topic in listed] == sorted(names, key=str.encode)


WRONG_CURSORS: list[str] = [
    "%21%21notbase64",
    "e30=",
    "bnVsbA==",
    "eyJhZnRlciI6NX0=",
    "eyJhZnRlciI6Ilx1MDAwMCJ9",
    "W1tb",
    "%00",
    "ZQ",
]


async def test_a_cursor_that_is_none_is_refused(server: Server) -> None:
    for cursor in WRONG_CURSORS:
        refused = await server.ask("GET", f"/topics?cursor={cursor}")
        assert (refused.status, refused.code) == (400, "invalid_request"), cursor


QUERIES: list[tuple[str, int]] = [
    ("?page_size=0", 1),
    ("?page_size=2", 2),
    ("?page_size=99999", 3),
    ("?page_size=-1", 3),
    ("?page_size=x", 3),
    ("?page_size=1.5", 3),
    ("?page_size=", 3),
    ("?prefix=", 3),
    ("?prefix=_", 0),
    ("?prefix=%C3%28", 0),
    ("?prefix=%C3%BC", 0),
    ("?prefix=b", 1),
    ("?nonsense=1", 3),
]


@on_sqlite
async def test_a_query_that_cannot_be_read_is_the_default(stored: Server) -> None:
    for name in ("a", "b", "c"):
        await stored.put(name)
    for query, count in QUERIES:
        listed = await stored.ask("GET", f"/topics{query}")
        assert (listed.status, len(listed.body["topics"])) == (200, count), query


@on_sqlite
async def test_a_query_that_no_name_can_hold_is_refused(stored: Server) -> None:
    refused = await stored.ask("GET", "/topics?prefix=a%00")
    assert (refused.status, refused.code) == (400, "invalid_request")


@on_sqlite
async def test_a_topic_is_deleted_once_and_only_when_it_may_be(stored: Server) -> None:
    await stored.write("jobs", 1)
    kept = await stored.delete("jobs", "?if_empty=true")
    assert (kept.status, kept.code, kept.detail) == (409, "topic_not_empty", {"topic": "jobs", "count": 1})
    gone = await stored.delete("jobs")
    assert (gone.status, gone.body["deleted"], gone.body["routers_removed"]) == (200, True, [])
    assert (await stored.get("jobs")).status == 404
    again = await stored.delete("jobs")
    assert (again.status, again.body["deleted"]) == (200, False)
    await stored.put("empty")
    assert (await stored.delete("empty", "?if_empty=1")).body["deleted"] is True


async def test_the_topic_of_a_group_is_shown_and_not_touched(server: Server) -> None:
    await server.log.topic("group:edge")
    shown = await server.get("group:edge")
    assert (shown.status, shown.body["config"]["durability"]) == (200, "fsync")
    for refused in (
        await server.put("group:edge"),
        await server.ask("PATCH", "/topics/group:edge", {"ttl_ms": 1}),
        await server.write("group:edge", 1),
        await server.delete_records("group:edge", before_seq=1),
        await server.delete("group:edge"),
        await server.put("group:new"),
    ):
        assert (refused.status, refused.code) == (409, "topic_exists_incompatible")
        assert refused.detail["reason"] == "event_group"
    assert (await server.get("group:edge")).status == 200


async def test_the_topic_of_routemaster_is_read_and_routed_and_written_by_that_surface_alone(server: Server) -> None:
    for missing in (await server.get("routemaster"), await server.delete_records("other", before_seq=1)):
        assert (missing.status, missing.code) == (404, "topic_not_found")
    routed = await server.ask("PUT", "/routers/out", {"source": "routemaster", "dest": "copies"})
    assert (routed.status, routed.code) == (404, "topic_not_found")
    await server.log.submit(OpenTopic(surface_topic_config(), random=bytes(16)))
    event = PublishedEvent("orders", "create", "https://a", "1")
    unit = PublishEvent(event, "shop--1", flushes=server.log.flushes, config=surface_topic_config())
    await server.log.submit(unit)
    for refused in (
        await server.put("routemaster"),
        await server.ask("PATCH", "/topics/routemaster", {"ttl_ms": 1}),
        await server.write("routemaster", 1),
        await server.delete_records("routemaster", before_seq=1),
        await server.delete("routemaster"),
        await server.ask("PUT", "/routers/in", {"source": "copies", "dest": "routemaster"}),
    ):
        assert (refused.status, refused.code) == (409, "topic_exists_incompatible")
        assert refused.detail["reason"] == "routemaster"
    letters = await server.put("jobs", type="queue", dead_letter="routemaster")
    assert (letters.status, letters.detail) == (400, {"dead_letter": "routemaster"})
    assert (await server.get("routemaster")).body["count"] == 1
    filtered = {"source": "routemaster", "dest": "copies", "filter": "orders.*"}
    assert (await server.ask("PUT", "/routers/out", filtered)).status == 201
    await server.log.submit(PublishEvent(event, "shop--1", flushes=server.log.flushes, config=surface_topic_config()))
    found = await server.diff("copies", include_tags=True)
    (record,) = found.body["records"]
    assert (record["$node"], record["$tag"], record["data"]) == (
        "shop--1",
        "orders.create",
        {"url": "https://a", "t": 1},
    )
