"""Writing: how a batch is stored, when a topic is created, what an idempotency key does, and what is refused."""

from __future__ import annotations

import asyncio
from typing import Any

from eventd.testing import ManualClock
from tests.support.fresh import on_sqlite
from tests.support.v0 import Server


@on_sqlite
async def test_the_first_write_makes_the_topic(stored: Server) -> None:
    first = await stored.write_records(
        "jobs",
        {"data": {"n": 1}, "tag": "t:1", "node": "wA", "meta": {"trace": "x"}},
        {"data": {"n": 2}, "tag": "t:2"},
    )
    expected = {"topic": "jobs", "first_seq": 1, "last_seq": 2, "seqs": [1, 2], "head_seq": 2, "count": 2}
    assert first.status == 201
    assert {name: first.body[name] for name in expected} == expected
    assert (first.body["created"], first.body["deduped"]) == (True, False)
    assert first.body["performance"].keys() == {"server_total_ms", "wal_append_ms", "fsync_ms"}
    second = await stored.write("jobs", {"n": 3})
    assert second.status == 200
    assert (second.body["seqs"], second.body["head_seq"], second.body["count"]) == ([3], 3, 1)
    assert second.body["created"] is False
    third = (await stored.write("jobs", 4, query="?return_seqs=false")).body
    assert "seqs" not in third
    assert (third["first_seq"], third["last_seq"]) == (4, 4)


async def test_a_write_that_may_not_make_a_topic_makes_none(server: Server) -> None:
    for options in ({"create": False}, {"config": {"auto_create": False}}):
        refused = await server.write("none", 1, **options)
        assert (refused.status, refused.code, refused.detail) == (404, "topic_not_found", {"topic": "none"})
        assert (await server.get("none")).status == 404
    made = await server.write("none", 1, create=True, config={"auto_create": False, "cap_records": 2})
    assert (made.status, made.body["created"]) == (201, True)
    config = (await server.get("none")).body["config"]
    assert (config["auto_create"], config["cap_records"]) == (False, 2)
    assert (await server.write("none", 2)).status == 200, "what is stored as auto_create is never asked again"


async def test_a_configuration_is_passed_over_where_the_topic_is_there(server: Server) -> None:
    await server.put("jobs")
    assert (await server.write("jobs", 1, config={"cap_records": 5, "type": "queue"})).status == 200
    assert (await server.get("jobs")).body["config"]["cap_records"] == 0


async def test_a_batch_has_one_time_and_the_order_it_was_sent_in(stored: Server) -> None:
    await stored.write("jobs", *range(500))
    records = (await stored.diff("jobs", limit=1000)).body["records"]
    assert [record["data"] for record in records] == list(range(500))
    assert [record["$seq"] for record in records] == list(range(1, 501))
    assert len({record["$ts"] for record in records}) == 1
    assert (await stored.get("jobs")).body["last_write_ts"] == records[0]["$ts"]


ANY_JSON: list[Any] = [
    None,
    True,
    0,
    -1.5e300,
    "",
    'ü\u0000 😀 " \\ \n',
    [],
    {},
    [[[[1]]]],
    {"": {"data": 1, "meta": 2, "$seq": 3, "$tag": "x"}},
    '","data":1}',
    {"$node": '","$tag":"', "a": ["$node"]},
    12345678901234567890123456789,
]


async def test_any_json_comes_back_as_it_was(stored: Server) -> None:
    for number, data in enumerate(ANY_JSON):
        written = await stored.write_records(f"jobs{number}", {"data": data, "meta": data, "tag": "t", "node": "n"})
        assert written.status == 201, [data]
        page = await stored.diff(f"jobs{number}", include_tags=True)
        record = page.body["records"][0]
        assert record.pop("$ts") > 0, [data]
        meta = {} if data is None else {"meta": data}
        assert record == {"$seq": 1, "$node": "n", "$tag": "t", "data": data} | meta, [data]


async def test_times_do_not_go_back_when_the_clock_does(start_server: Any) -> None:
    clock = ManualClock()
    server: Server = await start_server(clock=clock)
    await server.write("jobs", 1)
    clock.advance(-60)
    await server.write("jobs", 2)
    clock.advance(61)
    await server.write("jobs", 3)
    first, second, third = [record["$ts"] for record in (await server.diff("jobs")).body["records"]]
    assert (second, third) == (first, first + 1000)


async def test_a_key_is_forgotten_after_its_window(start_server: Any) -> None:
    clock = ManualClock()
    server: Server = await start_server(clock=clock)
    await server.put("q", idempotency_window_ms=1000)
    await server.write("q", 1, idempotency_key="k")
    clock.advance(0.999)
    assert (await server.write("q", 1, idempotency_key="k")).body["deduped"] is True
    clock.advance(0.002)
    assert (await server.write("q", 1, idempotency_key="k")).body["seqs"] == [2]
    await server.put("q", idempotency_window_ms=0)
    assert (await server.write("q", 1, idempotency_key="new")).body["seqs"] == [3]
    assert (await server.write("q", 1, idempotency_key="new")).body["seqs"] == [4], "a window of 0 keeps nothing"


async def test_what_is_not_set_is_absent(server: Server) -> None:
    await server.write_records("jobs", {"data": 1, "tag": None, "node": None, "meta": None})
    record = (await server.diff("jobs", include_tags=True)).body["records"][0]
    assert record.keys() == {"$seq", "$ts", "data"}


async def test_the_batch_gives_its_node_to_records_without_one(server: Server) -> None:
    await server.write_records("jobs", {"data": 1}, {"data": 2, "node": "own"}, {"data": 3, "node": None}, node="batch")
    records = (await server.diff("jobs")).body["records"]
    assert [record["$node"] for record in records] == ["batch", "own", "batch"]


async def test_members_keep_their_order_and_lose_their_white_space(server: Server) -> None:
    body = '{"records": [ {"data" : { "z" : 1 , "a" : [ 1 , 2 ] , "z " : " " } } ] }'
    headers = {"Content-Type": "application/json"}
    await server.ask("POST", "/topics/jobs", data=body.encode(), headers=headers)
    async with server.session.post(f"{server.url}/v0/topics/jobs/diff") as answer:
        text = await answer.text()
    assert '"data":{"z":1,"a":[1,2],"z ":" "}' in text
    assert (await server.get("jobs")).body["bytes"] == len('{"z":1,"a":[1,2],"z ":" "}')


async def test_bytes_count_data_and_meta_alone(stored: Server) -> None:
    await stored.write_records("jobs", {"data": "ü", "meta": {"a": 1}, "tag": "tag", "node": "node"}, {"data": 12})
    assert (await stored.get("jobs")).body["bytes"] == len('"ü"'.encode()) + len('{"a":1}') + len("12")


@on_sqlite
async def test_a_key_is_written_once(stored: Server) -> None:
    first = await stored.write("q", 1, 2, idempotency_key="k1")
    assert (first.status, first.body["seqs"], first.body["deduped"]) == (201, [1, 2], False)
    await stored.write("q", 3)
    again = await stored.write("q", 1, 2, idempotency_key="k1")
    assert again.status == 200
    told = {name: again.body[name] for name in ("deduped", "created", "seqs", "first_seq", "last_seq", "head_seq")}
    assert told == {
        "deduped": True,
        "created": False,
        "seqs": [1, 2],
        "first_seq": 1,
        "last_seq": 2,
        "head_seq": 2,
    }, "the head is that of the first write"
    assert (await stored.get("q")).body["count"] == 3


async def test_a_key_may_come_in_the_head_and_that_of_the_body_goes_first(server: Server) -> None:
    first = await server.ask("POST", "/topics/q", {"records": [{"data": 1}]}, headers={"Idempotency-Key": "h1"})
    again = await server.ask("POST", "/topics/q", {"records": [{"data": 1}]}, headers={"Idempotency-Key": "h1"})
    assert (first.body["deduped"], again.body["deduped"], again.body["seqs"]) == (False, True, [1])
    body = {"records": [{"data": "other"}], "idempotency_key": "h1"}
    third = await server.ask("POST", "/topics/q", body, headers={"Idempotency-Key": "B"})
    assert (third.body["deduped"], third.body["head_seq"]) == (True, 1)


async def test_equal_keys_at_once_are_written_once(server: Server) -> None:
    told = await asyncio.gather(*[server.write("q", n, idempotency_key="k") for n in range(20)])
    assert sorted(each.body["deduped"] for each in told) == [False] + [True] * 19
    assert {each.body["first_seq"] for each in told} == {1}
    assert (await server.get("q")).body["count"] == 1


async def test_a_key_is_of_its_topic_alone(server: Server) -> None:
    await server.write("a", 1, idempotency_key="k")
    assert (await server.write("b", 1, idempotency_key="k")).body["deduped"] is False


@on_sqlite
async def test_a_key_that_cannot_be_kept_is_refused(stored: Server) -> None:
    for key in ["k" * 257, "ü" * 129, "a\x00b"]:
        refused = await stored.write("q", 1, idempotency_key=key)
        assert (refused.status, refused.code) == (400, "invalid_request"), key
        assert "idempotency key" in refused.body["error"]["message"], key
        assert (await stored.get("q")).status == 404, key


@on_sqlite
async def test_a_full_topic_that_refuses_keeps_what_it_has(stored: Server) -> None:
    await stored.put("q", cap_records=1, discard="reject")
    assert (await stored.write("q", 1)).status == 200
    full = await stored.write("q", 2)
    assert (full.status, full.code) == (422, "topic_full")
    assert full.detail == {"topic": "q", "cap_records": 1, "cap_bytes": 0, "head_seq": 1, "earliest_seq": 1}
    shown = (await stored.get("q")).body
    assert (shown["head_seq"], shown["count"]) == (1, 1)
    never = await stored.write("q", 1, 2)
    assert (never.status, never.code) == (400, "record_too_large")


async def test_a_topic_that_is_full_of_bytes_refuses_more(stored: Server) -> None:
    await stored.put("q", cap_bytes=10, discard="reject")
    assert (await stored.write("q", "12345")).status == 200
    full = await stored.write("q", "1234")
    assert (full.code, full.detail["cap_bytes"]) == ("topic_full", 10)
    assert (await stored.write("q", "123456789")).code == "record_too_large"
    assert (await stored.write("q", 123)).status == 200


async def test_a_known_key_is_answered_also_when_the_topic_is_full(server: Server) -> None:
    await server.put("q", cap_records=1, discard="reject")
    await server.write("q", 1, idempotency_key="k")
    again = await server.write("q", 1, idempotency_key="k")
    assert (again.status, again.body["deduped"]) == (200, True)


async def test_nothing_of_a_refused_batch_is_written(server: Server) -> None:
    await server.put("jobs")
    refused = await server.write_records("jobs", {"data": 1}, {"data": 2, "tag": "t" * 257})
    assert refused.code == "invalid_request"
    assert "record 1" in refused.body["error"]["message"]
    assert (await server.get("jobs")).body["head_seq"] == 0


WRONG_RECORDS: list[tuple[Any, str]] = [
    ({}, "invalid_request"),
    ({"tag": "t"}, "invalid_request"),
    ({"data": 1, "tag": 5}, "invalid_request"),
    ({"data": 1, "node": ["n"]}, "invalid_request"),
    ({"data": 1, "tag": "t" * 257}, "invalid_request"),
    ({"data": 1, "tag": "ü" * 129}, "invalid_request"),
    ({"data": 1, "node": "n" * 129}, "invalid_request"),
    ({"data": 1, "meta": "m" * (16 << 10)}, "invalid_request"),
    ({"data": 1, "meta": {str(n): n for n in range(65)}}, "invalid_request"),
    ({"data": "d" * (1 << 20)}, "record_too_large"),
    ({"data": "d" * ((1 << 20) - 4), "meta": 123}, "record_too_large"),
    ({"data": "d" * (2 << 20), "tag": "t" * 257}, "invalid_request"),
    (5, "invalid_request"),
    (None, "invalid_request"),
]


async def test_a_wrong_record_is_refused(server: Server) -> None:
    for record, code in WRONG_RECORDS:
        refused = await server.write_records("jobs", record)
        assert (refused.status, refused.code) == (400, code), code
        assert (await server.get("jobs")).status == 404, code


LARGE_RECORDS: list[dict[str, Any]] = [
    {"data": 1, "tag": "t" * 256, "node": "n" * 128},
    {"data": 1, "tag": "", "node": ""},
    {"data": 1, "tag": "\u0000", "node": "\u0000"},
    {"data": 1, "meta": {str(n): n for n in range(64)}},
    {"data": 1, "meta": "m" * ((16 << 10) - 2)},
    {"data": "d" * ((1 << 20) - 2)},
    {"data": "d" * ((1 << 20) - 5), "meta": 123},
]


@on_sqlite
async def test_a_record_may_be_as_large_as_the_limits_say(stored: Server) -> None:
    for number, record in enumerate(LARGE_RECORDS):
        assert (await stored.write_records(f"jobs{number}", record)).status == 201, number
        found = (await stored.diff(f"jobs{number}", include_tags=True)).body["records"][0]
        assert {
            name.removeprefix("$"): value for name, value in found.items() if name not in ("$seq", "$ts")
        } == record, number


async def test_a_batch_has_records_and_not_too_many(server: Server) -> None:
    assert (await server.write("jobs")).code == "invalid_request"
    refused = await server.write("jobs", *([1] * 10_001))
    assert (refused.status, refused.code) == (400, "batch_too_large")
    assert (await server.get("jobs")).status == 404
    most = await server.write("jobs", *([1] * 10_000))
    assert (most.status, most.body["count"]) == (201, 10_000)


async def test_an_answer_of_a_durable_topic_tells_of_the_flush(server: Server) -> None:
    await server.put("safe", durability="fsync")
    told = (await server.write("safe", 1)).body["performance"]
    assert told["fsync_ms"] > 0
    assert told["wal_append_ms"] > 0


async def test_all_stored_bytes_have_a_ceiling(start_server: Any) -> None:
    server = await start_server(max_total_bytes=200)
    refused = await server.write("big", "x" * 500)
    assert (refused.status, refused.code) == (429, "throttled")
    assert refused.detail == {"limit": "max_total_bytes", "max": 200}
    assert refused.headers["Retry-After"] == "1"
    assert (await server.write("small", "x" * 100)).body["head_seq"] == 1
    assert (await server.write("other", "x" * 150)).code == "throttled"


async def test_a_thousand_writers_at_once_leave_no_hole(server: Server) -> None:
    told = await asyncio.gather(*[server.write("jobs", n) for n in range(300)])
    assert sorted(each.body["first_seq"] for each in told) == list(range(1, 301))
    seqs = {each.body["first_seq"]: n for n, each in enumerate(told)}
    page = await server.diff("jobs", limit=1000)
    assert page.data == [seqs[seq] for seq in range(1, 301)]


async def test_the_key_of_a_batch_is_looked_at_after_its_size_and_before_its_records(server: Server) -> None:
    huge, long = {"data": "x" * (1 << 20)}, "k" * 257
    assert (await server.write("q", *[1] * 10_001, idempotency_key=long)).code == "batch_too_large"
    refused = await server.write_records("q", huge, idempotency_key=long)
    assert (refused.code, "idempotency key" in refused.body["error"]["message"]) == ("invalid_request", True)
    assert (await server.write_records("q", huge)).code == "record_too_large"


async def test_a_name_that_no_topic_can_have_is_refused_over_any_database(stored: Server) -> None:
    for name in ["a%00b", "%FF", "a%20b", "_a", "a" * 256]:
        assert (await stored.write(name, 1)).code == "invalid_request", name
        assert (await stored.write(name, 1, create=False)).code == "topic_not_found", name
        assert (await stored.write(name, 1, config={"auto_create": False})).code == "topic_not_found", name
