"""Answers and questions of v2: each is refused with the declared error, or is written and read again as the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any

from federation.compare import Ids, KnownEvents, State, Sums, encode_question, encode_reply, read_question, read_reply
from federation.errors import BadAnswer, Malformed
from federation.ranges import Mark, Range
from federation.returned import ReturnedEvents, encode_positions, read_positions
from federation.status import encode_status_question, read_status_answer, read_status_question
from federation.wire import (
    BatchHeader,
    ErrorAnswer,
    LinkAnswer,
    LinkQuery,
    Receipt,
    Refusal,
    StatusQuery,
    encode_json,
    read_error,
    read_link_answer,
    read_receipt,
    read_too_large,
)
from tests.fuzz.target import FuzzTarget

HEADER = BatchHeader(
    from_node="a",
    to_node="b",
    group="edge",
    batch_id="019e78a1-7000-7abc-8def-0123456789ab",
    range=Range(epoch="e", incarnation=1, after=4, upto=9),
)
DIGEST = "sha-256=:LC02NruLIG90LVmjAg5z/nPY6V2MjX+8eMefnXedWEg=:"
QUERY = LinkQuery(from_node="a", to_node="b", group="edge")
MARK = Mark(epoch="e", incarnation=1, upto=9, base=0)
RECEIPT = Receipt(
    group="edge",
    from_node="a",
    to_node="b",
    batch=HEADER.batch_id,
    digest=DIGEST,
    epoch="e",
    incarnation=1,
    upto=9,
    accepted=3,
    duplicates=1,
    refused=(Refusal(7, "x", "invalid"), Refusal(8, "y", "id_conflict", "n", "00")),
    recorded_at=datetime(2026, 5, 30, tzinfo=UTC),
)


def check_receipt(data: bytes) -> None:
    try:
        found = read_receipt(data, HEADER, DIGEST)
    except BadAnswer:
        return
    assert (found.batch, found.digest, found.from_node, found.to_node) == (HEADER.batch_id, DIGEST, "a", "b")
    assert min(found.accepted, found.duplicates, found.upto or 0) >= 0
    assert read_receipt(encode_json(found), HEADER, DIGEST) == found


def check_link_answer(data: bytes) -> None:
    try:
        mark = read_link_answer(data, QUERY)
    except BadAnswer:
        return
    written = encode_json(LinkAnswer(group="edge", from_node="a", to_node="b", mark=mark))
    assert read_link_answer(written, QUERY) == mark


def check_error(data: bytes) -> None:
    found = read_error(data)
    if found is None:
        return
    assert read_error(encode_json(found)) == found
    try:
        limit = read_too_large(data, 1000)
    except BadAnswer:
        return
    assert limit < 1000


def check_question(data: bytes) -> None:
    try:
        question = read_question(data)
    except Malformed:
        return
    assert read_question(encode_question(question)) == question


def check_replies(data: bytes) -> None:
    for kind in (State, Sums, Ids, KnownEvents, ReturnedEvents):
        try:
            reply: Any = read_reply(data, kind)  # type: ignore[type-var]
        except BadAnswer:
            continue
        assert read_reply(encode_reply(reply), kind) == reply  # type: ignore[type-var]


def check_status(data: bytes) -> None:
    query = StatusQuery(from_node="a", to_node="b", group="edge")
    try:
        question = read_status_question(data)
        assert read_status_question(encode_status_question(question)) == question
    except Malformed:
        pass
    try:
        answer = read_status_answer(data, query)
    except BadAnswer:
        return
    assert answer.to_node == "b"
    assert all(link.peer != "b" for link in answer.links)
    assert len({(link.peer, link.direction) for link in answer.links}) == len(answer.links)


def check_positions(data: bytes) -> None:
    positions = read_positions(data.decode("latin-1"))
    if positions == sorted(set(positions)) and (text := encode_positions(positions)):
        assert read_positions(text) == positions


def seeds(*texts: bytes) -> Callable[[], Iterable[bytes]]:
    return lambda: texts


_NAMES = b'{"group":"edge","from":"a","to":"b",'
_LINK = b'{"peer":"c","direction":"out","state":"running","lag_seconds":0.5,"waiting":3}'
TARGETS = (
    FuzzTarget("receipts", check_receipt, seeds(encode_json(RECEIPT))),
    FuzzTarget(
        "link-answers",
        check_link_answer,
        seeds(encode_json(LinkAnswer(group="edge", from_node="a", to_node="b", mark=MARK)), _NAMES + b'"mark":null}'),
    ),
    FuzzTarget(
        "error-answers",
        check_error,
        seeds(
            encode_json(ErrorAnswer(code="too_large", message="m", limit=7, unit="bytes")),
            encode_json(ErrorAnswer(code="range_ahead", message="m", mark=MARK, server_time="x", note="n")),
        ),
    ),
    FuzzTarget(
        "questions",
        check_question,
        seeds(
            b'{"ask":"state"}',
            b'{"ask":"sums","history":"h","after":1,"upto":9,"grain":{"minutes":60},"what":{"types":["a.*"],"since":3}}',
            b'{"ask":"ids","history":"h","after":1,"upto":9,"grain":{"parts":4},"buckets":[[3,1]],"what":{"own":false}}',
            b'{"ask":"known","ids":["a","b"]}',
            b'{"ask":"events","ids":["a"]}',
        ),
        ('"ask":"', '"grain":{', '"epoch":"e"', '"buckets":[[', '"after":', '"upto":'),
    ),
    FuzzTarget(
        "replies",
        check_replies,
        seeds(
            b'{"history":"h","upto":9,"mark":null,"since":"2026-05-30T00:00:00Z","gaps":[{"epoch":"e","after":1,'
            b'"upto":2,"reason":"lost","recordedAt":"2026-05-30T00:00:00Z"}]}',
            b'{"buckets":[[1,2,3,"00ff00ff00ff00ff"]],"next":9}',
            b'{"ids":[["a",3,"x"]],"upto":9}',
            b'{"events":[],"batches":[]}',
        ),
    ),
    FuzzTarget(
        "status-answers",
        check_status,
        seeds(b'{"hops":1}', _NAMES + b'"age_seconds":0,"links":[' + _LINK + b'],"left_out":0,"others":[]}'),
    ),
    FuzzTarget("positions", check_positions, seeds(b"", b"5", encode_positions([3, 4, 5, 900, 901]).encode())),
)
