"""The memory, the names and the computation that one request can cause are bounded, whatever its sender."""

from __future__ import annotations

import difflib
import io
import json
import tracemalloc
from collections.abc import AsyncIterator, Callable

import pytest

from eventd.api.admin.events import event_texts
from eventd.api.admin.resources import resources
from eventd.api.bodies.bodies import HUGE_BYTES, BodyMemory
from eventd.api.bodies.memory_limit import MemoryLimit
from eventd.api.framework import reading
from eventd.api.framework.route import BodyLimits, Route
from eventd.api.routes import EVENTS, PROOFS, RESOURCES
from eventd.api.routes import OPERATIONS as ALL
from eventd.log.topics.errors import Throttled
from tests.integration.api.conftest import Api, StartApi, raising

JSON = {"Content-Type": "application/json"}
KIB = 1 << 10
MIB = 1 << 20
RENDER = "/api/v1/dynamic/render"
EMIT = "/api/v1/groups/g/events"


@pytest.fixture
async def whole(start_api: StartApi) -> Api:
    """An API with every operation of a node."""
    return await start_api(operations=[*ALL.values()], max_body_bytes=64 * MIB)


@pytest.fixture
async def modest(start_api: StartApi, monkeypatch: pytest.MonkeyPatch) -> Api:
    """An API with every operation of a node, and limits so low that bodies of a few MiB are far beyond them.

    The limits that a node has are in `test_bodies_are_large_only_where_events_or_resources_come_in`.
    """
    monkeypatch.setattr(resources, "MOST_VALUES", 5_000)
    monkeypatch.setattr(reading, "HUGE_BYTES", MIB)
    monkeypatch.setattr(event_texts, "_EVENTS", 16)
    emit = ALL["events.emit"]._replace(body=BodyLimits(64 * MIB, values=10_000))
    return await start_api(operations=[*(ALL | {"events.emit": emit}).values()], max_body_bytes=64 * MIB)


def source(text: str) -> bytes:
    return json.dumps({"sources": [{"name": "a.yaml", "text": text}]}).encode()


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        (RENDER, lambda: b'{"sources":[' + b"null," * 4 * MIB + b"null]}", 413, "over the limit of 16777216 bytes"),
        (RENDER, lambda: b'{"sources":[' + b"null," * (MIB // 2) + b"null]}", 413, "more than 10000 values"),
        (RENDER, lambda: b"{" + b",".join(b'"k%d":1' % n for n in range(100_000)) + b"}", 413, "more than 10000 val"),
        (RENDER, lambda: b'{"sources":' + b"[" * 65 + b"]" * 65 + b"}", 400, "nested more than 64 levels deep"),
        (RENDER, lambda: source("[" + "[]," * (MIB // 16) + "]"), 400, "contains more than 5000 values"),
        (RENDER, lambda: source("\n".join(f"- k{n}" for n in range(4_500))), 400, "at least 100 problems"),
        (EMIT, lambda: b'{"events":[' + b"[]," * (MIB // 2) + b"[]]}", 413, "more than 10000 values"),
        (EMIT, lambda: b'{"events":[' + b"{}," * (MIB // 2) + b"{}]}", 413, "more than 10000 values"),
    ],
)
async def test_a_refused_body_takes_little_memory_beside_itself(
    modest: Api, path: str, body: Callable[[], bytes], status: int, words: str
) -> None:
    sent = body()
    tracemalloc.start()
    try:
        found, told, _ = await modest.ask("POST", path, data=io.BytesIO(sent), headers=JSON)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (found, words in told["error"]["message"]) == (status, True), told
    assert peak < 2 * len(sent) + 2 * MIB


def events(last: bytes, size: int = 4 * MIB) -> bytes:
    """Events of 6 kB each, about so many bytes in all, and one more."""
    one = b'{"type":"t","payload":{"a":"' + b"x" * 6000 + b'"}}'
    return b'{"events":[' + b",".join([one] * (size // len(one)) + [last]) + b"]}"


GOOD = b'{"type":"t"}'


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        (EMIT, lambda: events(b'{"tipe":"t"}'), 400, "event 695: unknown member tipe (did you mean type?)"),
        (EMIT, lambda: events(b'{"type":""}'), 400, "event 695: federation event type is"),
        (EMIT, lambda: events(b'{"type":"t","payload":{"a":"\\u0000"}}'), 400, "event 695: federation event payload"),
        (EMIT, lambda: events(b'{"type":"t","payload":{"a":"\xff"}}'), 400, "event 695 holds bytes that are not UTF-8"),
        (EMIT, lambda: events(b'{"type":"t","payload":{"a":"' + b"x" * 64 * KIB + b'"}}'), 413, "event 695: 65"),
        (EMIT, lambda: b'{"events":[{"payload":{"a":"' + b"x" * 4 * MIB + b'"}}]}', 413, "4194324 bytes or more are"),
        (EMIT, lambda: events(b'{"type":"\xff","payload":3}'), 400, "event 695 holds bytes that are not UTF-8"),
        (EMIT, lambda: events(GOOD)[:-1], 400, "the body is not valid JSON: Input data was truncated"),
        (EMIT, lambda: events(GOOD)[:-1] + b',"brief":7}', 400, "brief must be true or false"),
        (EMIT + "?brief=perhaps", lambda: events(GOOD), 400, "brief must be true or false, not 'perhaps'"),
        (
            EMIT,
            lambda: b'{"evnts":"' + b"x" * 4 * MIB + b'"}',
            400,
            "evnts is not a field of this request, did you mean",
        ),
        (EMIT, lambda: b'["' + b"x" * 4 * MIB + b'"]', 400, "the body must be a JSON object"),
        ("/api/v1/groups/none/events", lambda: events(GOOD), 404, "EventGroup none is not declared"),
    ],
)
async def test_a_refused_body_of_events_is_not_in_memory_twice(
    modest: Api, path: str, body: Callable[[], bytes], status: int, words: str
) -> None:
    await modest.ask("POST", "/api/v1/resources/apply", data=source(_GROUP), headers=JSON)
    sent = body()

    async def parts() -> AsyncIterator[bytes]:  # the client, too, must not hold it again
        for start in range(0, len(sent), 64 * KIB):
            yield sent[start : start + 64 * KIB]

    tracemalloc.start()
    try:
        headers = JSON | {"Content-Length": str(len(sent))}
        found, told, _ = await modest.ask("POST", path, data=parts(), headers=headers)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (found, words in told["error"]["message"]) == (status, True), told
    assert peak < 1.5 * len(sent)


async def test_a_large_body_of_events_is_stored_as_a_small_one_is(whole: Api) -> None:
    await whole.ask("POST", "/api/v1/resources/apply", data=source(_GROUP), headers=JSON)
    body = events(b'{"type":"last","subject":"s"}', HUGE_BYTES + MIB)
    status, told, _ = await whole.ask("POST", f"{EMIT}?brief=true", data=io.BytesIO(body), headers=JSON)
    assert (status, told["counts"]["new"]) == (200, body.count(b'{"type"'))
    ids = [result["id"] for result in told["results"]]
    assert ids == sorted(ids)
    status, told, _ = await whole.ask("GET", f"{EMIT}?newest=true&limit=1")
    assert (status, told["events"][0]["type"], told["events"][0]["id"]) == (200, "last", ids[-1])


async def test_twenty_wrong_fields_are_named_and_the_others_counted(
    whole: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[str] = []
    monkeypatch.setattr(difflib, "get_close_matches", lambda name, *_: compared.append(name) or [])
    body = json.dumps({f"k{n}": 1 for n in range(9_000)} | {"x" * 100_000: 1}).encode()
    status, told, _ = await whole.ask("POST", RENDER, data=body, headers=JSON)
    assert (status, told["error"]["code"]) == (400, "invalid_params")
    assert told["error"]["message"].startswith("9001 problems in the request:\n  k0 is not a field of this request")
    assert told["error"]["message"].endswith("\n  and 8981 more")
    assert len(told["error"]["detail"]["fields"]) == len(compared) == 20


async def test_of_many_wrong_entries_the_first_is_named(whole: Api) -> None:
    body = b'{"sources":[' + b"null," * 9_000 + b"null]}"
    status, told, _ = await whole.ask("POST", RENDER, data=body, headers=JSON)
    assert (status, told["error"]["message"]) == (400, "sources[0] must be an object")


async def test_a_name_is_shown_cut(whole: Api) -> None:
    _, told, _ = await whole.ask("POST", RENDER, data=json.dumps({"x" * 500_000: 1}).encode(), headers=JSON)
    assert len(told["error"]["message"]) < 300


async def test_of_very_many_wrong_events_some_are_looked_at(whole: Api) -> None:
    await whole.ask("POST", "/api/v1/resources/apply", data=source(_GROUP), headers=JSON)
    body = json.dumps({"events": [{"tipe": "x"}] * 10_000}).encode()
    status, told, _ = await whole.ask("POST", EMIT, data=body, headers=JSON)
    assert (status, told["error"]["code"], len(told["error"]["detail"])) == (400, "invalid_events", 100)
    assert told["error"]["message"].startswith("at least 100 of 10,000 events are wrong")


_GROUP = """
apiVersion: federation.routerd.net/v1alpha1
kind: EventGroup
metadata: {name: g}
spec: {nodeName: a, limits: {maxEventBytes: 64KiB}}
"""


def test_bodies_are_large_only_where_events_or_resources_come_in() -> None:
    assert (BodyLimits(16 * MIB, values=10_000), BodyLimits(64 * MIB, values=500_000)) == (RESOURCES, EVENTS)
    assert (resources.MOST_VALUES, HUGE_BYTES) == (200_000, 16 * MIB)
    large = {name: route.body for name, route in ALL.items() if route.body.bytes > MIB}
    assert large == {
        "events.emit": EVENTS,
        "events.release": PROOFS,
        "resources.apply": RESOURCES,
        "resources.diff": RESOURCES,
        "resources.delete_sources": RESOURCES,
        "dynamic.render": RESOURCES,
        "dynamic.diff": RESOURCES,
    }


async def test_a_group_that_the_key_is_not_for_is_refused_before_the_body_is_read(start_api: StartApi) -> None:
    api = await start_api("k:rw:other")
    head = (
        "POST /api/v1/groups/g/echo HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer k\r\n"
        "Content-Type: application/json\r\nContent-Length: 900000\r\n\r\n{"
    )
    answer = await api.raw(head.encode(), until=b"}}\n")
    assert answer.startswith(b"HTTP/1.1 403 ")


async def test_a_node_short_of_memory_refuses_bodies_and_answers_the_rest(
    start_api: StartApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        BodyMemory, "of_process", classmethod(lambda cls, largest: cls(largest, MemoryLimit(8 << 20, 1)))
    )
    api = await start_api()
    body = json.dumps({"data": {"x": "y" * 100_000}}).encode()
    status, told, headers = await api.ask("POST", "/api/v1/groups/g/echo", data=body, headers=JSON)
    assert (status, told["error"]["code"], headers["Retry-After"]) == (429, Throttled.code, "1")
    assert "short of memory" in told["error"]["message"]
    assert (await api.ask("POST", "/api/v1/groups/g/echo", data=b'{"limit":3}', headers=JSON))[0] == 200


async def test_running_out_of_memory_is_no_fault_of_the_node(start_api: StartApi) -> None:
    broken = Route("GET", "/api/v1/bug", ("read",), "bug", raising(MemoryError()))
    api = await start_api(operations=[broken])
    status, told, _ = await api.ask("GET", "/api/v1/bug")
    assert (status, told["error"]["code"]) == (429, "throttled")


def test_only_events_come_in_bodies_that_are_decoded_in_part() -> None:
    assert {route.body for route in ALL.values() if route.body.bytes > HUGE_BYTES} == {EVENTS}
