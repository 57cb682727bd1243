"""The Routemaster surface of a node of several processes: the one that answers is not the one that sends."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from eventd.runtime.worker_share import Share
from eventd.store.rows.tokens import handle_of
from tests.acceptance.test_workers import wait_whole
from tests.support.bus import Bus
from tests.support.callback_program import Call, ReceiverThread
from tests.support.certificates import server_context
from tests.support.processes import Processes
from tests.support.waiting import wait_for

DATABASES = pytest.mark.parametrize("database", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
CLIENTS = 4


@pytest.fixture
def receivers(tmp_path: Path) -> Iterator[list[ReceiverThread]]:
    context = server_context(tmp_path / "tls")
    made = [ReceiverThread(context).start() for _ in range(2)]
    yield made
    for one in made:
        one.stop()


def calls_of(receiver: ReceiverThread, uuid: str) -> list[Call]:
    header = "Basic " + base64.b64encode(f"{uuid}:x".encode()).decode()
    return [call for call in receiver.calls if call.headers["authorization"] == header]


def has_tried(receiver: ReceiverThread, uuid: str) -> bool:
    return len(calls_of(receiver, uuid)) >= 2


def has_failed_again(receiver: ReceiverThread, uuid: str, before: int) -> bool:
    return any(call.status == 503 for call in calls_of(receiver, uuid) if call in receiver.calls[before:])


def has_received(bus: Bus, token: str) -> bool:
    return bool(bus.subscriber(token)["events"]["sent"] == 1)


class Marks:
    """Subscribers that show which changes each of the two processes has followed."""

    def __init__(self, bus: Bus, receiver: ReceiverThread) -> None:
        self._bus = bus
        self._receiver = receiver
        self._publisher = bus.token("marks")

    def followed(self) -> None:
        """Wait until both processes have ended what was ended before: each serves a subscriber that is new now.

        A process reads all subscriptions at a time, and ends old ones before it begins new ones.
        """
        new: dict[bool, str] = {}
        while len(new) < 2:
            token = self._bus.token("mark")
            new[Share(0, 2).serves(f"rm/{handle_of('mark', token)}")] = token
        for token in new.values():
            self._bus.subscribe(token, "marks", receiver=self._receiver)
        self._bus.publish(self._publisher, "marks", "https://x/mark")
        for token in new.values():
            wait_for(partial(has_received, self._bus, token), "a process to follow the changes")
            assert self._bus.ask("DELETE", "/subscriber", token=token)[0] == 204


@DATABASES
def test_an_ended_subscription_sends_nothing_more_and_a_new_one_nothing_old(
    processes: Processes, receivers: list[ReceiverThread], request: pytest.FixtureRequest, database: str
) -> None:
    receiver, other = receivers
    url = None if database == "sqlite" else request.getfixturevalue("postgres_url")
    bus = Bus(processes, database_url=url, EVENTD_WORKERS="2", EVENTD_ROUTEMASTER_MAX_BACKOFF="50ms")
    wait_whole(bus.node, 2)
    shop, marks = bus.token("shop"), Marks(bus, other)
    clients: dict[str, str] = {}
    shares: set[bool] = set()
    while len(clients) < CLIENTS or len(shares) < 2:  # tokens are random: four of them may all belong to one process
        name = f"app-{len(clients)}"
        token = clients[f"uuid-{len(clients)}"] = bus.token(name)
        shares.add(Share(0, 2).serves(f"rm/{handle_of(name, token)}"))
    receiver.answer = lambda _: 503
    for uuid, token in clients.items():
        bus.subscribe(token, "orders", receiver=receiver, uuid=uuid)
    for number in range(3):
        bus.publish(shop, "orders", f"https://x/old-{number}")
    for uuid in clients:
        wait_for(partial(has_tried, receiver, uuid), f"attempts of {uuid}")
    found = {Share(0, 2).serves(one["callback"]) for one in bus.node.ask("GET", "/callbacks")["callbacks"]}
    assert found == {True, False}, "each process sends to some of them"

    for token in clients.values():
        assert bus.ask("DELETE", "/subscriber", token=token)[0] == 204
    marks.followed()
    before = len(receiver.calls)

    for topic in ("orders", "users"):
        receiver.answer = lambda _: 204
        for uuid, token in clients.items():
            bus.subscribe(token, topic, receiver=receiver, uuid=uuid)
        bus.publish(shop, topic, "https://x/new")
        for uuid, token in clients.items():
            wait_for(partial(has_received, bus, token), f"{uuid} to get it")
        assert [call.events for call in receiver.calls[before:]] == [["https://x/new"]] * len(clients)
        receiver.answer = lambda _: 503
        bus.publish(shop, topic, "https://x/never")
        for uuid in clients:
            wait_for(partial(has_failed_again, receiver, uuid, before), f"attempts of {uuid}")
        for token in clients.values():  # and subscribed again before any process has noticed
            assert bus.ask("DELETE", "/subscriber", token=token)[0] == 204
            bus.subscribe(token, receiver=receiver)
        marks.followed()
        before = len(receiver.calls)
    marks.followed()
    assert len(receiver.calls) == before
    assert [one["waitingEvents"] for one in bus.node.ask("GET", "/callbacks")["callbacks"]] == [0] * len(clients)
    assert bus.node.stop() == 0
