"""Deleting records by seq, by tag, or by both: for good, and not reported to readers as lost."""

from __future__ import annotations

from typing import Any

from tests.support.fresh import on_sqlite
from tests.support.v0 import Server


def told(body: dict[str, Any], *names: str) -> tuple[Any, ...]:
    return tuple(body[name] for name in names)


async def tagged(server: Server, *tags: str | None, topic: str = "del") -> None:
    await server.write_records(topic, *[{"data": n, "tag": tag} for n, tag in enumerate(tags, 1)])


async def left(server: Server, topic: str = "del") -> list[str | None]:
    records = (await server.diff(topic, include_tags=True)).body["records"]
    return [record.get("$tag") for record in records]


@on_sqlite
async def test_deleting_below_a_seq_leaves_no_tombstone(stored: Server) -> None:
    await stored.write("del", 1, 2, 3, 4, 5)
    done = await stored.delete_records("del", before_seq=3)
    assert done.status == 200
    assert told(done.body, "topic", "deleted", "earliest_seq", "head_seq", "count", "bytes") == ("del", 2, 3, 5, 3, 3)
    page = await stored.diff("del")
    assert (page.seqs, page.body["tombstone"], page.body["earliest_seq"]) == ([3, 4, 5], None, 3)
    shown = (await stored.get("del")).body
    assert told(shown, "count", "earliest_seq", "bytes") == (3, 3, 3)


@on_sqlite
async def test_a_seq_may_be_beyond_the_head(stored: Server) -> None:
    for before in [6, 100, 2**63 - 1, 2**63, 2**64 - 1]:
        await stored.write("del", 1, 2, 3, 4, 5)
        done = (await stored.delete_records("del", before_seq=before)).body
        assert told(done, "deleted", "earliest_seq", "head_seq", "count", "bytes") == (5, 6, 5, 0, 0), before
        assert (await stored.write("del", 6)).body["seqs"] == [6], before
        await stored.delete("del")


@on_sqlite
async def test_nothing_is_below_the_first_seq(stored: Server) -> None:
    await stored.write("del", 1)
    for before in [0, 1]:
        assert told((await stored.delete_records("del", before_seq=before)).body, "deleted", "count") == (0, 1), before


@on_sqlite
async def test_a_tag_is_deleted_as_a_whole_or_by_how_it_begins(stored: Server) -> None:
    await tagged(stored, "tenant42:job-1", "tenant42:job-2", "other:job-9", None)
    one = (await stored.delete_records("del", match=["tag", "Eq", "tenant42:job-1"])).body
    assert told(one, "deleted", "earliest_seq", "count") == (1, 2, 3)
    rest = (await stored.delete_records("del", match=["tag", "Glob", "tenant42:*"])).body
    assert told(rest, "deleted", "earliest_seq", "count") == (1, 3, 2)
    assert await left(stored) == ["other:job-9", None]


async def test_a_prefix_ends_where_it_says(stored: Server) -> None:
    await tagged(stored, "chat-42:a", "chat-42:b", "chat-420:c", "zzz")
    assert (await stored.delete_records("del", match=["tag", "Glob", "chat-42:*"])).body["deleted"] == 2
    assert await left(stored) == ["chat-420:c", "zzz"]


MATCHES: list[tuple[Any, list[str]]] = [
    ("exact-tag", ["pre:a", "pre:b", "keep", "ex*", "*"]),
    ("pre:*", ["exact-tag", "keep", "ex*", "*"]),
    (["tag", "Eq", "ex*"], ["exact-tag", "pre:a", "pre:b", "keep", "*"]),
    ("ex*", ["pre:a", "pre:b", "keep", "*"]),
    ("*", []),
    (["tag", "Glob", "*"], []),
    (["tag", "Glob", "**"], ["exact-tag", "pre:a", "pre:b", "keep", "ex*"]),
    ("", ["exact-tag", "pre:a", "pre:b", "keep", "ex*", "*"]),
    ("EXACT-TAG", ["exact-tag", "pre:a", "pre:b", "keep", "ex*", "*"]),
]


async def test_a_text_alone_is_a_tag_or_with_a_star_a_prefix(stored: Server) -> None:
    for match, kept in MATCHES:
        await tagged(stored, "exact-tag", "pre:a", "pre:b", "keep", "ex*", "*", None)
        done = (await stored.delete_records("del", match=match)).body
        assert await left(stored) == [*kept, None], f"{match}: what has no tag never goes"
        assert done["deleted"] == 6 - len(kept), [match]
        await stored.delete("del")


@on_sqlite
async def test_only_what_is_there_goes(stored: Server) -> None:
    await tagged(stored, "chat-42:msg")
    assert told((await stored.delete_records("del", match="chat-42:*")).body, "deleted", "count", "earliest_seq") == (
        1,
        0,
        2,
    )
    await tagged(stored, "chat-42:msg")
    page = await stored.diff("del")
    assert (page.seqs, page.body["tombstone"]) == ([2], None)


async def test_both_together_delete_what_both_mean(stored: Server) -> None:
    await tagged(stored, "msg-123", "msg-999", "msg-123")
    assert (await stored.delete_records("del", before_seq=3, match=["tag", "Eq", "msg-123"])).body["deleted"] == 1
    assert (await stored.diff("del")).seqs == [2, 3]


async def test_a_second_time_nothing_goes(stored: Server) -> None:
    await tagged(stored, "a", "b", "a")
    assert (await stored.delete_records("del", match="a")).body["deleted"] == 2
    assert (await stored.delete_records("del", match="a")).body["deleted"] == 0


@on_sqlite
async def test_what_a_cap_takes_after_a_delete_is_told_apart(stored: Server) -> None:
    await stored.put("dual", cap_records=4, discard="old")
    await stored.write("dual", 1, 2, 3, 4)
    done = (await stored.delete_records("dual", before_seq=3)).body
    assert told(done, "deleted", "earliest_seq", "count") == (2, 3, 2)
    page = await stored.diff("dual")
    assert (page.seqs, page.body["tombstone"]) == ([3, 4], None)
    await stored.write("dual", 5, 6, 7, 8, 9, 10)
    page = await stored.diff("dual")
    tombstone = page.body["tombstone"]
    assert (tombstone["reason"], tombstone["head_seq"]) == ("cap", 10)
    assert (tombstone["gap_from"], tombstone["gap_to"]) == (3, 6), "what was deleted is not told as lost"
    assert page.seqs == [7, 8, 9, 10]


@on_sqlite
async def test_a_refusing_topic_has_room_again_and_loses_nothing(stored: Server) -> None:
    await stored.put("q", cap_records=2, discard="reject")
    await tagged(stored, "old", "done", topic="q")
    assert (await stored.write("q", 3)).code == "topic_full"
    assert (await stored.delete_records("q", match="done")).body["count"] == 1
    assert (await stored.write("q", 3)).status == 200
    page = await stored.diff("q")
    assert (page.seqs, page.body["tombstone"]) == ([1, 3], None), "the live record stays, however old it is"


WRONG_DELETES: list[dict[str, Any]] = [
    {},
    {"before_seq": None, "match": None},
    {"before_seq": -1},
    {"before_seq": 1.5},
    {"before_seq": "1"},
    {"before_seq": 2**64},
    {"match": 5},
    {"match": {}},
    {"match": []},
    {"match": ["tag", "Glob", "no-star"]},
    {"match": ["tag", "Regex", ".*"]},
    {"match": ["tag", "eq", "x"]},
    {"match": ["node", "Eq", "x"]},
    {"match": ["tag", "Eq"]},
    {"match": ["tag", "Eq", "a", "b"]},
    {"match": ["tag", "Eq", 5]},
    {"match": [["tag", "Eq", "a"]]},
]


async def test_a_delete_that_means_nothing_deletes_nothing(server: Server) -> None:
    await server.write("del", 1)
    for body in WRONG_DELETES:
        refused = await server.ask("POST", "/topics/del/delete", body)
        assert (refused.status, refused.code) == (400, "invalid_request"), body
        assert (await server.get("del")).body["count"] == 1, body


async def test_there_is_nothing_to_delete_where_there_is_no_topic(server: Server) -> None:
    assert (await server.delete_records("ghost", before_seq=5)).code == "topic_not_found"
    assert (await server.get("ghost")).status == 404


async def test_records_are_deleted_with_post_alone(server: Server) -> None:
    await server.write("del", 1)
    for method in ("GET", "DELETE", "PUT", "PATCH"):
        refused = await server.ask(method, "/topics/del/delete")
        assert (refused.status, refused.code) == (405, "method_not_allowed")
        assert refused.headers["Allow"] == "POST"
