"""Large bodies: the memory for all of them is bounded, and no other request waits while one is read."""

from __future__ import annotations

import asyncio
import io
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager

import pytest

from eventd.api.bodies import bodies
from eventd.api.framework import decoding
from eventd.api.framework.models import Query
from eventd.api.topics import write
from eventd.errors import Invalid
from eventd.testing import until
from tests.integration.api.topics.conftest import StartServer
from tests.support.v0 import JSON, Server

MIB = 1 << 20


@contextmanager
def room_for(server: Server, most: int) -> Iterator[None]:
    bodies = server.v0.serving.concurrency.bodies
    before, bodies.most = bodies.most, most
    yield
    bodies.most = before


def batch(size: int) -> bytes:
    """A batch of about so many bytes."""
    one = b'{"data":"' + b"x" * 900_000 + b'"}'
    return b'{"records":[' + b",".join([one] * (size // len(one))) + b"]}"


async def test_what_would_take_too_much_memory_together_has_to_come_back_later(server: Server) -> None:
    first, gate = batch(4 * MIB), asyncio.Event()

    async def slowly() -> AsyncIterator[bytes]:
        yield first[: 3 * MIB]
        await gate.wait()
        yield first[3 * MIB :]

    json = {"Content-Type": "application/json"}
    url = f"{server.url}/v0/topics/t"
    with room_for(server, 5 * MIB):
        dawdling = asyncio.create_task(server.session.post(url, data=slowly(), headers=json))
        await until(lambda: server.v0.serving.concurrency.bodies.held >= 3 * MIB, "most of the first to have come")
        async with server.session.post(url, data=io.BytesIO(first), headers=json) as refused:
            assert refused.status == 429
            assert refused.headers["Retry-After"] == "1"
            assert (await refused.json())["error"]["code"] == "throttled"
        small = await server.ask("POST", "/topics/t", {"records": [{"data": 1}]})
        assert small.status == 201, "a small one always has room"
        gate.set()
        assert (await dawdling).status == 200
        assert server.v0.serving.concurrency.bodies.held == 0
        async with server.session.post(url, data=io.BytesIO(first), headers=json) as again:
            assert again.status == 200


async def test_a_key_that_withholds_bodies_gives_its_room_to_another(start_server: StartServer) -> None:
    server = await start_server(keys="greedy:r,other")
    other, bodies = server.with_key("other"), server.v0.serving.concurrency.bodies
    await other.put("t")
    url, headers = f"{server.url}/v0/watch", JSON | server.with_key("greedy").headers

    async def endless() -> AsyncIterator[bytes]:
        yield b" " * (200 << 10)
        await asyncio.Event().wait()

    async def withhold() -> tuple[int, str]:
        async with server.session.post(url, data=endless(), headers=headers) as answer:
            return answer.status, (await answer.json())["error"]["message"]

    with room_for(server, MIB):
        withheld = []
        for number in range(1, 6):
            withheld.append(asyncio.create_task(withhold()))
            await until(lambda number=number: bodies.held >= number * (200 << 10), "it to have come")  # type: ignore[misc]
        assert (await withhold())[0] == 429, "the key itself gets no more room"
        written = await other.ask("POST", "/topics/t", {"records": [{"data": "x" * 400_000}]})
        assert written.status == 200
        first, second = await asyncio.gather(*withheld[:2])
        assert first == second == (429, "the memory for this body is needed by another key: retry later")
        assert not any(task.done() for task in withheld[2:])
        for task in withheld:
            task.cancel()
        await asyncio.gather(*withheld, return_exceptions=True)


async def test_who_breaks_off_gives_the_room_back(server: Server) -> None:
    async def endless() -> AsyncIterator[bytes]:
        yield batch(3 * MIB)
        await asyncio.Event().wait()

    json = {"Content-Type": "application/json"}
    sending = asyncio.create_task(server.session.post(f"{server.url}/v0/topics/t", data=endless(), headers=json))
    await until(lambda: server.v0.serving.concurrency.bodies.held > MIB, "some of it to have come")
    sending.cancel()
    await asyncio.gather(sending, return_exceptions=True)
    await until(lambda: server.v0.serving.concurrency.bodies.held == 0, "the room to be given back")


async def test_a_large_body_is_read_beside_the_loop(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    aside: list[int] = []
    to_thread = asyncio.to_thread

    async def counting(work: object, *args: object) -> object:
        aside.append(len(args))
        return await to_thread(work, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(bodies.asyncio, "to_thread", counting)
    large = batch(3 * MIB)
    async with server.session.post(
        f"{server.url}/v0/topics/t", data=io.BytesIO(large), headers={"Content-Type": "application/json"}
    ) as answer:
        assert answer.status == 201
    assert len(aside) == 2, "it is decoded, and made into records"
    await server.ask("POST", "/topics/t", {"records": [{"data": 1}]})
    assert len(aside) == 2
    await server.ask("POST", "/topics/t", {"records": [{"data": 1}] * 10_000})
    assert len(aside) == 3, "very many small records take as long as few large ones"


def records(last: bytes, size: int = 4 * MIB) -> bytes:
    """A batch of records of 6 kB each, about so many bytes in all, and one more."""
    one = b'{"data":"' + b"x" * 6000 + b'"}'
    return b'{"records":[' + b",".join([one] * (size // len(one)) + [last]) + b"]}"


@pytest.mark.parametrize(
    ("topic", "body", "status", "words"),
    [
        (
            "t",
            lambda: b'{"records":[{"data":"' + b"x" * 5 * MIB + b'"}]}',
            400,
            "its data and meta have 5242882 bytes",
        ),
        ("t", lambda: records(b'{"data":1,"node":"' + b"x" * 300 + b'"}'), 400, "record 697: its node has more than"),
        ("t", lambda: records(b'{"data":1,"data":2}'), 400, "`records.697.data` is given twice"),
        ("t", lambda: records(b'{"data":1,"tag":7}'), 400, "`records[697].tag` must be text or null, not a whole"),
        ("t", lambda: records(b'{"data":"\xff"}'), 400, "byte 4190385 is not UTF-8"),
        ("t", lambda: records(b'{"data":"\xc3\xa9","node":7}'), 400, "`records[697].node` must be text or null"),
        ("t", lambda: records(b'{"data":1}')[:-1], 400, "the body is not valid JSON: Input data was truncated"),
        ("t", lambda: b'{"records":[' + b'{"data":1},' * (MIB // 2) + b'{"data":1}]}', 400, "at most 10000 records"),
        ("group:g", lambda: records(b'{"data":1}'), 409, "is the topic of an event group"),
    ],
)
async def test_a_refused_body_is_not_in_memory_twice(
    server: Server, topic: str, body: Callable[[], bytes], status: int, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write, "HUGE_BYTES", MIB)
    monkeypatch.setattr(write, "_MANY", write.MAX_RECORDS)
    sent = body()

    async def parts() -> AsyncIterator[bytes]:  # the client, too, must not hold it again
        for start in range(0, len(sent), 64 << 10):
            yield sent[start : start + (64 << 10)]

    tracemalloc.start()
    try:
        headers = {"Content-Type": "application/json", "Content-Length": str(len(sent))}
        async with server.session.post(f"{server.url}/v0/topics/{topic}", data=parts(), headers=headers) as answer:
            found, told = answer.status, await answer.json()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (found, words in told["error"]["message"]) == (status, True), told
    assert peak < 1.5 * len(sent)


@pytest.mark.parametrize("broken", [b"\xc3", b"\xe2\x82", b"\xff", b"\xc3("])
@pytest.mark.parametrize("at", [0, 1, 2, 3])
def test_the_first_byte_that_is_not_utf8_is_named_wherever_it_stands(
    broken: bytes, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoding, "_AT_ONCE", 4)
    text = b'{"\xe2\x82\xac":"' + b"x" * at + broken + b'"}'
    with pytest.raises(UnicodeDecodeError) as wrong:
        text.decode()
    with pytest.raises(Invalid, match=f"byte {wrong.value.start} is not UTF-8"):
        decoding.decode(bytearray(text), Query)


def test_any_text_in_utf8_is_read_in_parts_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "_AT_ONCE", 1)
    assert decoding.decode('{"\u20ac\U0001f600":"\u00e9"}'.encode(), Query) == Query()
