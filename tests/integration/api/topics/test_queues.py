"""Queues over HTTP: claims, acks, nacks, extensions, and refusals."""

from __future__ import annotations

import asyncio
from typing import Any

from eventd.api.topics.claim_cohorts import ClaimCohorts
from eventd.testing import ManualClock, until
from tests.integration.api.topics.conftest import StartServer
from tests.support.fresh import on_sqlite
from tests.support.v0 import Client, Response, Server


async def ask(client: Client, queue: str, what: str, **members: Any) -> Response:
    return await client.ask("POST", f"/topics/{queue}/{what}", members)


async def claim(client: Client, queue: str, node: str = "w", **members: Any) -> list[dict[str, Any]]:
    told = await ask(client, queue, "claim", node=node, **members)
    assert told.status == 200, told.body
    assert told.body["count"] == len(told.body["claimed"])
    jobs: list[dict[str, Any]] = told.body["claimed"]
    return jobs


def seqs(jobs: list[dict[str, Any]]) -> list[int]:
    return [job["$seq"] for job in jobs]


@on_sqlite
async def test_the_way_of_jobs(stored: Server) -> None:
    await stored.put("jobs", type="queue", lease_ms=30_000)
    await stored.write("jobs", *range(10))
    shown = (await stored.get("jobs")).body
    assert (shown["type"], shown["queue"]) == ("queue", {"ready": 10, "in_flight": 0, "dead_lettered": 0})
    told = await ask(stored, "jobs", "claim", node="w1", max=4)
    jobs = told.body.pop("claimed")
    assert told.body.pop("performance")["server_total_ms"] >= 0
    assert told.body == {"topic": "jobs", "count": 4, "ready": 6}
    assert [(job["$seq"], job["data"], job["deliveries"]) for job in jobs] == [(n, n - 1, 1) for n in (1, 2, 3, 4)]
    assert all(job["lease_id"].startswith("lease_") for job in jobs)
    assert all(job["deadline"] - job["$ts"] > 0 for job in jobs)
    acked = (await ask(stored, "jobs", "ack", node="w1", seqs=[1, 2], lease_ids=[jobs[0]["lease_id"], ""])).body
    del acked["performance"]
    assert acked == {"topic": "jobs", "acked": 2, "skipped": [], "ready": 6, "in_flight": 2}
    shown = (await stored.get("jobs")).body
    assert (shown["count"], shown["queue"]["in_flight"], shown["earliest_seq"]) == (8, 2, 3)
    again = (await ask(stored, "jobs", "ack", node="w1", seqs=[1, 99])).body
    assert (again["acked"], again["skipped"]) == (0, [1, 99])
    kept = (await ask(stored, "jobs", "extend", node="w1", seqs=[3], lease_ms=60_000)).body
    del kept["performance"]
    assert kept.pop("deadlines")["3"] > jobs[2]["deadline"]
    assert kept == {"topic": "jobs", "extended": 1, "skipped": []}
    back = (await ask(stored, "jobs", "nack", node="w1", seqs=[3, 4])).body
    del back["performance"]
    assert back == {"topic": "jobs", "nacked": 2, "skipped": [], "ready": 8, "in_flight": 0}
    assert [(job["$seq"], job["deliveries"]) for job in await claim(stored, "jobs", "w2", max=2)] == [(3, 2), (4, 2)]
    assert (await stored.put("jobs", type="log")).code == "topic_exists_incompatible"


async def test_a_job_says_what_was_written_but_not_by_whom(server: Server) -> None:
    await server.put("q", type="queue")
    await server.write_records("q", {"data": {"b": 1, "a": [None]}, "tag": "t", "meta": {"m": 1}, "node": "me"})
    await server.write("q", None)
    told = await ask(server, "q", "claim", node="w", max=2)
    first, second = told.body["claimed"]
    assert [*first] == ["$seq", "lease_id", "deadline", "$ts", "$tag", "deliveries", "data", "meta"]
    assert (first["data"], first["$tag"], first["meta"]) == ({"b": 1, "a": [None]}, "t", {"m": 1})
    assert second.keys() == {"$seq", "lease_id", "deadline", "$ts", "deliveries", "data"}


async def test_without_a_number_one_job_is_claimed_and_never_more_than_a_thousand(server: Server) -> None:
    await server.put("q", type="queue")
    await server.write("q", *range(1100))
    assert seqs(await claim(server, "q")) == [1]
    assert seqs(await claim(server, "q", max=0)) == [2]
    assert len(await claim(server, "q", max=4_000_000_000)) == 1000


async def test_leases_are_as_long_as_the_claim_or_else_the_queue_says(start_server: StartServer) -> None:
    clock = ManualClock()
    server = await start_server(clock=clock)
    await server.put("q", type="queue", lease_ms=5000)
    await server.write("q", 1, 2, 3, 4)
    now = clock.now() // 1000
    wishes: list[dict[str, Any]] = [{}, {"lease_ms": None}, {"lease_ms": 1}, {"lease_ms": 2**64 - 1}]
    lengths = [(await claim(server, "q", **wish))[0]["deadline"] - now for wish in wishes]
    assert lengths == [5000, 5000, 100, 86_400_000]
    clock.advance(5.1)
    assert seqs(await claim(server, "q", max=9)) == [1, 2, 3]


async def test_a_delay_is_at_most_a_day(start_server: StartServer) -> None:
    clock = ManualClock()
    server = await start_server(clock=clock)
    await server.put("q", type="queue")
    await server.write("q", 1)
    await claim(server, "q")
    await ask(server, "q", "nack", node="w", seqs=[1], delay_ms=2**64 - 1)
    clock.advance(86_399)
    assert await claim(server, "q") == []
    clock.advance(1)
    assert seqs(await claim(server, "q")) == [1]


async def test_dead_letters_are_records_of_the_topic_that_takes_them(start_server: StartServer) -> None:
    clock = ManualClock()
    server = await start_server(clock=clock)
    await server.put("jobs", type="queue", lease_ms=1000, max_deliveries=2, dead_letter="dlq")
    await server.write("jobs", {"n": 1})
    for _ in range(2):
        assert len(await claim(server, "jobs")) == 1
        clock.advance(2)
    assert await claim(server, "jobs") == []
    shown = (await server.get("jobs")).body
    assert (shown["queue"], shown["count"]) == ({"ready": 0, "in_flight": 0, "dead_lettered": 1}, 0)
    (letter,) = (await server.diff("dlq")).body["records"]
    assert (letter["data"], letter["meta"]["$dead_letter_from"], letter["meta"]["$dead_letter_src_seq"]) == (
        {"n": 1},
        "jobs",
        "1",
    )


async def test_dead_letters_must_go_to_a_topic_that_can_take_them(server: Server) -> None:
    for dead_letter in ["q", "no name", "group:g"]:
        told = await server.put("q", type="queue", dead_letter=dead_letter)
        assert (told.status, told.code, told.detail) == (400, "invalid_request", {"dead_letter": dead_letter}), (
            dead_letter
        )


async def test_claims_that_come_together_are_dealt_evenly_where_the_queue_wants_that(start_server: StartServer) -> None:
    clock = ManualClock()
    server = await start_server(clock=clock)
    await server.put("q", type="queue", claim_jitter_ms=120)
    await server.write("q", *range(20))
    claims = [asyncio.ensure_future(claim(server, "q", f"w{n}", max=10)) for n in range(4)]
    await until(lambda: server.v0.part(ClaimCohorts).waiting("q") == 4)
    assert not any(one.done() for one in claims)
    clock.advance(0.12)
    hands = [seqs(one) for one in await asyncio.gather(*claims)]
    assert [len(hand) for hand in hands] == [5, 5, 5, 5]
    assert sorted(seq for hand in hands for seq in hand) == [*range(1, 21)]


async def test_what_is_refused_and_in_which_order(server: Server) -> None:
    await server.put("q", type="queue")
    await server.put("log")
    await server.write("q", 1)
    for what, more in (
        ("claim", {}),
        ("ack", {"seqs": []}),
        ("nack", {"seqs": []}),
        ("extend", {"seqs": [], "lease_ms": 1}),
    ):
        for name, code in (("log", "not_a_queue"), ("none", "topic_not_found"), ("no name", "topic_not_found")):
            told = await ask(server, name.replace(" ", "%20"), what, node="w", **more)
            assert (told.status, told.code) == (409 if name == "log" else 404, code), (what, name)
            assert told.detail == {"topic": name}
        told = await ask(server, "q", what, node="", **more)
        assert (told.status, told.code) == (400, "invalid_request")
        assert "node" in told.body["error"]["message"]
        # A claim is answered first that the queue does not exist; a settlement, that the request is invalid.
        told = await ask(server, "none", what, node="", **more)
        assert told.status == (404 if what == "claim" else 400)
    told = await ask(server, "none", "ack", node="w", seqs=[*range(1001)])
    assert (told.status, told.code, told.detail) == (400, "batch_too_large", {"seqs": 1001, "max": 1000})
    assert (await ask(server, "q", "claim", node="n" * 129)).code == "invalid_request"
    assert (await ask(server, "q", "claim", node="a\0b")).code == "invalid_request"


WRONG_REQUESTS: list[tuple[str, dict[str, Any], str]] = [
    ("claim", {}, "node"),
    ("claim", {"node": None}, "node"),
    ("claim", {"node": "w", "max": None}, "max"),
    ("claim", {"node": "w", "max": -1}, "max"),
    ("claim", {"node": "w", "max": 2**32}, "max"),
    ("claim", {"node": "w", "lease_ms": -1}, "lease_ms"),
    ("claim", {"node": "w", "lease_ms": 2**64}, "lease_ms"),
    ("ack", {"node": "w"}, "seqs"),
    ("ack", {"node": "w", "seqs": [-1]}, "seqs"),
    ("ack", {"node": "w", "seqs": [1.5]}, "seqs"),
    ("ack", {"node": "w", "seqs": [2**64]}, "seqs"),
    ("ack", {"node": "w", "seqs": [1], "lease_ids": ["", ""]}, "lease_ids"),
    ("ack", {"node": "w", "seqs": [1], "lease_ids": ["mine"]}, "lease"),
    ("ack", {"node": "w", "seqs": [1], "lease_ids": ["lease_\n"]}, "lease"),
    ("nack", {"node": "w", "seqs": [1], "delay_ms": None}, "delay_ms"),
    ("extend", {"node": "w", "seqs": [1]}, "lease_ms"),
    ("extend", {"node": "w", "seqs": [1], "lease_ms": None}, "lease_ms"),
]


async def test_a_request_that_does_not_fit_is_refused(server: Server) -> None:
    await server.put("q", type="queue")
    for what, members, why in WRONG_REQUESTS:
        told = await ask(server, "q", what, **members)
        assert (told.status, told.code) == (400, "invalid_request"), (what, members, why)
        assert why in told.body["error"]["message"], (what, members, why)


async def test_a_claim_without_a_body_is_no_question_of_its_type(server: Server) -> None:
    await server.put("q", type="queue")
    assert (await server.ask("POST", "/topics/q/claim")).status == 400
    assert (await server.ask("POST", "/topics/q/ack")).status == 415


async def test_a_wrong_lease_is_skipped_and_seqs_no_record_can_have_too(server: Server) -> None:
    await server.put("q", type="queue")
    await server.write("q", 1, 2)
    jobs = await claim(server, "q", max=2)
    lease_ids = [jobs[1]["lease_id"], jobs[1]["lease_id"], ""]
    told = (await ask(server, "q", "ack", node="w", seqs=[1, 2, 2**64 - 1], lease_ids=lease_ids)).body
    assert (told["acked"], told["skipped"]) == (1, [1, 2**64 - 1])


async def test_keys_need_two_scopes_to_claim_and_one_to_settle(start_server: StartServer) -> None:
    server = await start_server(keys="full,ro:read,wo:write,rw:read+write,t42::tenant42:")
    full = server.with_key("full")
    await full.put("q", type="queue")
    await full.write("q", 1, 2)
    for key in ("ro", "wo", "t42"):
        assert (await ask(server.with_key(key), "q", "claim", node="w")).code == "forbidden"
        assert (await server.with_key(key).ask("GET", "/topics/q/work?node=w")).code == "forbidden"
    assert (await ask(server, "q", "claim", node="w")).status == 401
    assert seqs(await claim(server.with_key("rw"), "q", max=2)) == [1, 2]
    assert (await ask(server.with_key("wo"), "q", "ack", node="w", seqs=[1])).body["acked"] == 1
    assert (await ask(server.with_key("ro"), "q", "nack", node="w", seqs=[2])).code == "forbidden"


async def test_what_a_full_queue_had_refused_finds_room_after_an_ack(server: Server) -> None:
    await server.put("q", type="queue", discard="reject", cap_records=1)
    await server.write("q", 1)
    assert (await server.write("q", 2)).code == "topic_full"
    with server.log.watch([(await server.log.topic("q"))]) as watch:
        turn = watch.turn
        await claim(server, "q")
        assert watch.turn == turn
        await ask(server, "q", "ack", node="w", seqs=[1])
        assert watch.turn > turn, "a writer that waits for room is notified"
    assert (await server.write("q", 2)).status == 200


async def test_a_time_has_64_bits(server: Server) -> None:
    await server.put("q", type="queue")
    for what, member in [("claim", "lease_ms"), ("nack", "delay_ms"), ("extend", "lease_ms")]:
        members = {"node": "w"} | ({} if what == "claim" else {"seqs": [1]})
        assert (await ask(server, "q", what, **members, **{member: 2**64 - 1})).status == 200, what
        refused = await ask(server, "q", what, **members, **{member: 2**64})
        assert (refused.status, refused.code) == (400, "invalid_request"), what
