"""How the client handles answers: errors, streams, and how long it waits before it retries."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from eventd.client import Config, Gap, Job, NewRecord, Page, Retry, RouterSpec, Throttled, detail_of
from eventd.client.connection import Frame, _frames, _FrameTooLarge, _seconds, _tail, path_of
from eventd.client.refusals.answers import restore
from eventd.errors import Conflict, EventdError, Forbidden, Full, Invalid, NotFound, TooLarge, Unauthorized, Unavailable


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, Invalid),
        (401, Unauthorized),
        (403, Forbidden),
        (404, NotFound),
        (409, Conflict),
        (413, TooLarge),
        (422, Full),
        (429, Throttled),
        (503, Unavailable),
        (500, EventdError),
        (418, EventdError),
    ],
)
def test_an_error_is_of_the_kind_its_status_says(status: int, kind: type[EventdError]) -> None:
    body = b'{"error": {"code": "some_code", "message": "so it is", "detail": {"topic": "jobs"}}}'
    error = restore(status, body)
    assert type(error) is kind
    assert (error.code, error.message, detail_of(error)) == ("some_code", "so it is", {"topic": "jobs"})


@pytest.mark.parametrize(
    "body", [b"", b"<html/>", b"[]", b'{"error": 1}', b'{"error": {"code": "x"}}', b"\xff", b"[" * 100_000]
)
def test_an_answer_of_something_else_is_no_verdict_of_a_node(body: bytes) -> None:
    error = restore(404, body)
    assert type(error) is EventdError
    assert (error.message, detail_of(error)) == ("the server answered 404", {})
    assert isinstance(restore(503, body), Unavailable)


def test_facts_that_are_none_are_left_out() -> None:
    assert detail_of(restore(404, b'{"error": {"code": "c", "message": "m", "detail": [1]}}')) == {}
    assert detail_of(Invalid("one of our own")) == {}


def test_waits_grow_up_to_a_bound_and_are_never_shorter_than_was_asked() -> None:
    retry = Retry(base=0.1, most=5.0)
    for failures, nominal in ((1, 0.1), (2, 0.2), (4, 0.8), (10, 5.0), (10_000, 5.0)):
        assert retry.delay(failures, 0.0) == pytest.approx(nominal * 0.8)
        assert retry.delay(failures, 1.0) == nominal
    assert retry.delay(1, 0.5, 7.0) == 7.0
    assert retry.delay(1, 0.5, 1e9) == 3600.0


@pytest.mark.parametrize(("text", "seconds"), [("1", 1.0), ("", 0.0), ("-1", 0.0), ("soon", 0.0), ("9" * 20, 0.0)])
def test_the_time_a_node_asks_for(text: str, seconds: float) -> None:
    assert _seconds(text) == seconds


class Chunks:
    """A body that comes in these pieces."""

    def __init__(self, *pieces: bytes) -> None:
        self._pieces = pieces

    async def iter_any(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            yield piece


STREAM = (
    b'retry: 2000\n\n: : hb\n\nid: a\nevent: record\ndata: {"x":1}\n\n'
    b"event:caught-up\r\ndata:{}\r\n\r\nevent: half\ndata: 1\n"
)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
async def test_a_stream_is_read_alike_however_it_is_cut(size: int) -> None:
    pieces: Any = Chunks(*(STREAM[at : at + size] for at in range(0, len(STREAM), size)))
    assert [frame async for frame in _frames(pieces)] == [
        Frame("a", "record", b'{"x":1}'),
        Frame("", "caught-up", b"{}"),
    ]


async def test_bytes_of_a_stream_that_are_not_utf_8_are_replaced_and_are_no_id() -> None:
    chunks: Any = Chunks(b"id: a\xff\nevent: \xffb\ndata: 1\n\n")
    assert [frame async for frame in _frames(chunks)] == [Frame("", "\ufffdb", b"1")]


def test_names_and_queries_are_quoted_whole() -> None:
    assert path_of("topics", "a/b c:d.é", "diff") == "/v0/topics/a%2Fb%20c%3Ad.%C3%A9/diff"
    assert path_of("routers", "a->b") == "/v0/routers/a-%3Eb"
    assert _tail({"a": "x y", "b": True, "c": 0, "d": "", "e": None}) == "?a=x+y&b=true&c=0"
    assert _tail(None) == ""


def test_only_what_differs_from_the_default_is_sent() -> None:
    assert msgspec.json.encode(Config()) == b"{}"
    assert msgspec.to_builtins(Config(ttl_ms=5, dead_letter="dlq")) == {"ttl_ms": 5, "dead_letter": "dlq"}
    assert msgspec.to_builtins(RouterSpec(source="a", dest="b", fan_in=True)) == {
        "source": "a",
        "dest": "b",
        "fan_in": True,
    }
    assert msgspec.json.encode(NewRecord(None)) == b'{"data":null}'


def test_answers_of_a_later_version_are_understood() -> None:
    told = b"""{"topic": "t", "records": [{"$seq": 1, "$ts": 2, "data": 3, "$new": 4}], "next_from_seq": 1, "new": 5,
        "head_seq": 1, "earliest_seq": 1, "caught_up": true, "lag": 0, "performance": {},
        "tombstone": {"gap_from": 1, "gap_to": 2, "reason": "cap", "missed_estimate": 2, "earliest_seq": 3,
        "head_seq": 9, "new": 1}}"""
    page = msgspec.json.decode(told, type=Page)
    assert (page.records[0].data, page.gap) == (3, Gap(reason="cap", first=1, last=2, earliest_seq=3, head_seq=9))
    job = b'{"topic": "q", "$seq": 7, "lease_id": "lease_1", "deadline": 9, "$ts": 8, "deliveries": 1, "data": null}'
    assert msgspec.json.decode(job, type=Job) == Job(seq=7, ts=8, lease_id="lease_1", deadline=9, deliveries=1)


@pytest.mark.parametrize(
    "chunks", [[b"data: ", b"x" * 60, b"x" * 60], [b"data: x\n" * 9], [b"data: x\n", b"id: y\n"] * 9]
)
async def test_an_event_of_a_stream_is_bounded(chunks: list[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eventd.client.connection.MAX_FRAME_BYTES", 60)
    with pytest.raises(_FrameTooLarge):
        [frame async for frame in _frames(Chunks(*chunks))]  # type: ignore[arg-type]
