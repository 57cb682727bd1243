"""Publishing over one connection: cuts anywhere lose and double nothing, and other servers get requests."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence

import pytest

from eventd.api.admin.events.publish_connection import PublishConnection, stopping
from eventd.client import Client, Lost, NewEvent, Retry, emit_channel
from eventd.client.emit_channel import ChannelSender
from eventd.client.emit_queue import Waiting
from eventd.client.publishing import Publisher
from eventd.errors import Forbidden, NotFound, Unauthorized
from eventd.log.core.eventlog import EventLog
from eventd.net.web_socket import WebSocket
from eventd.testing import until
from tests.integration.client.conftest import Pauses
from tests.support.cutting_proxy import CuttingProxy, cutting_proxy
from tests.support.flaky_proxy import FlakyProxy
from tests.support.publishing import apply_group, delete_group, stored_subjects
from tests.support.v0 import Server, serving


@pytest.fixture(autouse=True)
async def group(server: Server) -> None:
    await apply_group(server)


@pytest.fixture
async def wire(server: Server) -> AsyncIterator[CuttingProxy]:
    async with cutting_proxy(server.url) as proxy:
        yield proxy


@pytest.fixture
async def over_wire(wire: CuttingProxy, pauses: Pauses) -> AsyncIterator[Client]:
    async with Client(wire.url, pause=pauses, retry=Retry(tries=5)) as opened:
        yield opened


def facts(count: int) -> list[NewEvent]:
    return [NewEvent("t", subject=f"{number:04}") for number in range(count)]


async def test_every_event_is_stored_once_however_often_and_wherever_the_connection_is_cut(
    wire: CuttingProxy, pauses: Pauses, server: Server
) -> None:
    chance = random.Random(7)
    wire.cuts = [(chance.choice(("client", "server")), chance.randint(0, 1_500)) for _ in range(30)]
    client = Client(wire.url, pause=pauses, retry=Retry(tries=40))
    async with client, client.publisher("lab", window=40) as publisher:
        fates = await publisher.emit_all(facts(1000))
    assert set(fates) <= {"new", "duplicate"}
    assert sorted(await stored_subjects(server)) == [event.subject for event in facts(1000)]
    assert wire.cuts == []


async def test_it_gives_up_when_the_node_does_not_come_back(
    over_wire: Client, wire: CuttingProxy, pauses: Pauses
) -> None:
    wire.cuts = [("client", 0)] * 5
    async with over_wire.publisher("lab") as publisher:
        with pytest.raises(Lost):
            await publisher.emit(NewEvent("t"))
        assert len(pauses) == 4
        assert await publisher.emit(NewEvent("t")) == "new", "the next one is tried again"


async def test_events_keep_their_order_over_a_connection(client: Client, server: Server) -> None:
    async with client.publisher("lab", window=64) as publisher:
        assert set(await publisher.emit_all(facts(900))) == {"new"}
    assert await stored_subjects(server) == [event.subject for event in facts(900)]


@pytest.mark.parametrize(
    ("window", "sizes"), [(256, [128, 128]), (100, [100]), (1000, [500, 500]), (2000, [512, 512, 512])]
)
async def test_a_large_window_is_divided_so_that_messages_need_not_wait_for_answers(
    client: Client, monkeypatch: pytest.MonkeyPatch, window: int, sizes: list[int]
) -> None:
    sent: list[int] = []
    send = ChannelSender._send

    def noted(sender: ChannelSender, socket: WebSocket, batch: Sequence[Waiting], now: float) -> None:
        sent.append(len(batch))
        send(sender, socket, batch, now)

    monkeypatch.setattr(ChannelSender, "_send", noted)
    monkeypatch.setattr(ChannelSender, "_hear", lambda *_: None)
    async with client.publisher("lab", window=window) as publisher:
        emitting = asyncio.ensure_future(publisher.emit_all(facts(3000)))
        await until(lambda: sum(sent) >= sum(sizes), "all to be sent")
        emitting.cancel()
        publisher._channel.close()  # nothing is answered, and the end would wait for it
        publisher._queue.close()
        publisher._queue._open = 0
    assert sent == sizes


async def test_a_server_without_websockets_gets_requests(network: FlakyProxy, far: Client, server: Server) -> None:
    async with far.publisher("lab", window=50) as publisher:
        assert set(await publisher.emit_all(facts(200))) == {"new"}
    assert [one for one in network.asked if one.endswith("/publish")] == ["GET /api/v1/groups/lab/publish"]
    assert len([one for one in network.asked if one.endswith("/events")]) >= 4
    assert sorted(await stored_subjects(server)) == [event.subject for event in facts(200)]


async def test_an_event_too_large_for_a_message_goes_in_a_request(client: Client, server: Server) -> None:
    await apply_group(server, "big", "4MiB")
    async with client.publisher("big") as publisher:
        events = [NewEvent("t", "a"), NewEvent("t", "b", {"k": "x" * (2 << 20)}), NewEvent("t", "c")]
        assert await publisher.emit_all(events) == ["new"] * 3
    assert sorted(await stored_subjects(server, "big")) == ["a", "b", "c"]


async def test_a_node_with_a_smaller_limit_gets_requests(sqlite_url: str) -> None:
    async with serving(sqlite_url + "2", max_body_bytes=20_000) as small, Client(small.url) as client:
        await apply_group(small)
        async with client.publisher("lab", window=512) as publisher:
            assert await publisher.emit(NewEvent("t", "a")) == "new"
            fates = await publisher.emit_all([NewEvent("t", "b", {"k": "x" * 3000})])
            assert fates == ["new"]


async def test_a_batch_that_is_too_large_for_a_node_is_divided(sqlite_url: str) -> None:
    async with serving(sqlite_url + "2", max_body_bytes=20_000) as small, Client(small.url) as client:
        await apply_group(small)
        async with client.publisher("lab", window=512) as publisher:
            events = [NewEvent("t", f"{number:04}", {"k": "x" * 3000}) for number in range(40)]
            assert set(await publisher.emit_all(events)) == {"new"}
        assert sorted(await stored_subjects(small)) == [event.subject for event in events]


async def test_messages_whose_connection_breaks_twice_go_in_requests(
    over_wire: Client, wire: CuttingProxy, pauses: Pauses, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    wire.cuts = [("client", 2_000)] * 2
    async with over_wire.publisher("lab") as publisher:
        added: list[int] = []
        add = publisher._by_request.add

        def noted(batch: Sequence[Waiting]) -> None:
            added.append(len(batch))
            add(batch)

        monkeypatch.setattr(publisher._channel, "_aside", noted)
        event = NewEvent("t", "a", {"k": "x" * 3000})
        assert await publisher.emit(event) == "new"
        assert (added, len(pauses)) == ([1], 2)
        assert await publisher.emit(NewEvent("t", "b")) == "new"
        assert connection(publisher), "other events go over a connection again"
    assert await stored_subjects(server) == ["a", "b"]


@pytest.mark.parametrize(
    ("status", "code", "close", "kind"),
    [
        (408, "slow_body", 1013, None),
        (503, "unavailable", 1001, None),
        (413, "too_large", 1013, None),
        (404, "not_found", 1008, NotFound),
    ],
)
async def test_the_code_decides_whether_a_connection_that_a_node_ends_is_opened_again(
    server: Server, pauses: Pauses, monkeypatch: pytest.MonkeyPatch, status: int, code: str, close: int, kind: object
) -> None:
    async def end_at_once(publishing: PublishConnection) -> None:
        monkeypatch.undo()
        await publishing._socket.receive()
        error = {"status": status, "error": {"code": code, "message": "it ends"}}
        await publishing._socket.send_json(error)
        await publishing._socket.close(code=close)

    monkeypatch.setattr(PublishConnection, "run", end_at_once)
    async with Client(server.url, pause=pauses) as client, client.publisher("lab") as publisher:
        (fate,) = await publisher.emit_all([NewEvent("t", "a")])
    assert fate == "new" if kind is None else type(fate) is kind


async def test_refusals_of_the_connection_reach_each_emitter(server: Server, sqlite_url: str) -> None:
    async with serving(sqlite_url + "2", keys="full,ro:read") as guarded:
        await apply_group(guarded.with_key("full"))  # type: ignore[arg-type]
        for key, kind in (("none", Unauthorized), ("ro", Forbidden)):
            async with Client(guarded.url, key) as client, client.publisher("lab") as publisher:
                fates = await publisher.emit_all(facts(3))
                assert [type(fate) for fate in fates] == [kind] * 3


async def test_a_group_that_is_deleted_is_reported_and_one_that_comes_back_is_used(
    client: Client, server: Server
) -> None:
    async with client.publisher("lab") as publisher:
        assert await publisher.emit(NewEvent("t", "a")) == "new"
        await delete_group(server)
        with pytest.raises(NotFound):
            await publisher.emit(NewEvent("t", "b"))
        await apply_group(server)
        assert await publisher.emit(NewEvent("t", "c")) == "new"


async def test_a_stopping_node_is_connected_to_again(over_wire: Client, server: Server) -> None:
    async with over_wire.publisher("lab") as publisher:
        assert await publisher.emit(NewEvent("t", "a")) == "new"
        assert connection(publisher)
        publisher._channel._cut(stopping().message)
        assert await publisher.emit(NewEvent("t", "b")) == "new"
    assert await stored_subjects(server) == ["a", "b"]


def connection(publisher: Publisher) -> bool:
    return publisher._channel._socket is not None


async def test_a_message_without_an_answer_ends_the_connection(
    over_wire: Client, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(emit_channel, "REQUEST_SECONDS", 0.3)
    async with over_wire.publisher("lab") as publisher:
        assert await publisher.emit(NewEvent("t", "a")) == "new"
        submit, held = EventLog.submit, asyncio.get_running_loop().create_future()

        def hold(log: EventLog, unit: object) -> object:
            monkeypatch.setattr(EventLog, "submit", submit)
            return held

        monkeypatch.setattr(EventLog, "submit", hold)
        assert await publisher.emit(NewEvent("t", "b")) == "new"
        held.cancel()
    await until(lambda: not server.v0.serving.concurrency.streams.taken, "both connections to end")
    assert await stored_subjects(server) == ["a", "b"]
