"""Requests as the Ruby, Go and Elixir clients of Routemaster send them, byte by byte, and many of them at a time."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.bus import ROOT, Bus
from tests.support.certificates import Authority
from tests.support.processes import Processes
from tests.support.waiting import wait_for

CALLBACK = "https://billing.example/events"


class Answer(NamedTuple):
    """An answer as clients look at it."""

    status: int
    kind: str | None
    body: bytes

    @property
    def json(self) -> Any:
        assert self.kind == "application/json"
        return json.loads(self.body)


def send(bus: Bus, line: str, *headers: str, body: bytes | None = None) -> Answer:
    """Send one request with exactly these headers, `Host` and the length of the body."""
    method, target = line.split()
    connection = bus.connect()
    with contextlib.closing(connection):
        connection.putrequest(method, target, skip_accept_encoding=True)
        for header in headers:
            connection.putheader(*header.split(": ", 1))
        if body is not None:
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        answer = connection.getresponse()
        return Answer(answer.status, answer.headers["Content-Type"], answer.read())


def basic(user: str, password: str) -> str:
    return "Authorization: Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


@pytest.fixture
def bus(processes: Processes, tmp_path: Path) -> Iterator[Bus]:
    """A bus as these clients need it: over TLS only, and with the settings that the bus itself has."""
    made = Bus(processes, tls=Authority(tmp_path / "tls").issue("bus"))
    yield made
    assert made.node.stop() == 0


def topic(bus: Bus, name: str) -> dict[str, Any]:
    found = json.loads(bus.ask("GET", "/topics", token=ROOT)[1])
    return next(one for one in found if one["name"] == name)


def test_the_ruby_client(bus: Bus) -> None:
    shop = bus.token("shop")
    as_ruby = (basic(shop, "x"), "Content-Type: application/json", "User-Agent: Faraday v0.15.4")

    for method in ("GET", "HEAD"):  # it configures itself only after that
        assert send(bus, f"{method} /pulse", *as_ruby) == (204, None, b"")

    def publish(**event: Any) -> int:
        return send(bus, "POST /topics/widgets", *as_ruby, body=json.dumps(event).encode()).status

    url = "https://shop.example/widgets/1"
    for type in ("create", "update", "delete", "noop"):
        assert publish(type=type, url=url, timestamp=None) == 200
        assert publish(type=type, url=url, timestamp=None, data=None) == 200
        assert publish(type=type, url=url, timestamp=1795173885369, data={"a": 1}) == 200
    assert topic(bus, "widgets")["events"] == 12

    def subscribe(**given: Any) -> int:
        body = {"topics": ["widgets"], "callback": CALLBACK, "uuid": "demo"} | given
        return send(bus, "POST /subscription", *as_ruby, body=json.dumps(body).encode()).status

    assert subscribe() == 204
    assert subscribe(timeout=50, max=10_000) == 204
    assert subscribe(topics=[":widgets"]) == 400, "a list of symbols"
    (row,) = send(bus, "GET /subscriptions", *as_ruby).json
    assert {"subscriber", "callback", "topics", "events"} <= row.keys()
    assert row["events"].keys() == {"sent", "queued", "oldest"}
    assert (row["topics"], row["max_events"], row["timeout"]) == (["widgets"], 10_000, 50)
    assert [one.keys() for one in send(bus, "GET /topics", *as_ruby).json] == [{"name", "publisher", "events"}]
    assert send(bus, "DELETE /subscriber/topics/widgets", *as_ruby).status == 204
    assert send(bus, "DELETE /subscriber", *as_ruby).status == 204
    assert send(bus, "DELETE /topics/widgets", *as_ruby).status == 204


def test_the_command_of_the_ruby_client(bus: Bus) -> None:
    """`rtm` gives its own token as the uuid, and root's for what only root may do."""
    root = (basic(ROOT, "x"), "Content-Type: application/json")
    assert send(bus, "GET /api_tokens", *root) == (204, None, b"")
    made = send(bus, "POST /api_tokens", *root, body=b'{"name":"billing"}')
    assert made.status == 201
    token = made.json["token"]
    ours = (basic(token, "x"), "Content-Type: application/json")
    body = json.dumps({"topics": ["widgets"], "callback": CALLBACK, "uuid": token})
    assert send(bus, "POST /subscription", *ours, body=body.encode()).status == 204
    (row,) = send(bus, "GET /subscriptions", *ours).json
    assert (row["subscriber"], row["uuid"]) == (token, token)
    (row,) = send(bus, "GET /subscriptions", basic(bus.token("other"), "x")).json
    assert token not in str(row)
    assert send(bus, f"DELETE /api_tokens/{token}", *root).status == 204
    assert send(bus, "GET /pulse", *ours).status == 401


def test_the_go_client(bus: Bus) -> None:
    """It sends no content type, `null` where it has no body, and an empty password; and looks for single statuses."""
    shop = bus.token("shop")
    auth = (basic(shop, ""), "User-Agent: Go-http-client/1.1", "Accept-Encoding: gzip")
    event = b'{"type":"create","url":"https://shop.example/1","timestamp":1795173885369,"data":null}'
    assert send(bus, "POST /topics/widgets", *auth, body=event).status in (200, 201, 204)
    for line in ("GET /topics", "GET /subscriptions"):
        answer = send(bus, line, *auth, body=b"null")
        assert (answer.status, isinstance(answer.json, list)) == (200, True)
    subscription = json.dumps({"topics": ["widgets"], "callback": CALLBACK, "uuid": "demo", "timeout": 500, "max": 5})
    assert send(bus, "POST /subscription", *auth, body=subscription.encode()).status == 204
    assert send(bus, "DELETE /subscriber", *auth, body=b"null").status == 204
    assert send(bus, "DELETE /topic/widgets", *auth, body=b"null").status == 204
    assert json.loads(bus.ask("GET", "/topics", token=ROOT)[1]) == []


def test_the_elixir_client(bus: Bus) -> None:
    """It counts in seconds, and sends null for what is not set."""
    shop = bus.token("shop")
    auth = (basic(shop, "x"), "content-type: application/json", "user-agent: routemaster-client/0.3.0")
    event = b'{"data":null,"timestamp":1795173885,"type":"update","url":"https://shop.example/1"}'
    assert send(bus, "POST /topics/widgets", *auth, body=event) == (200, "text/plain", b"")
    body = {"callback": CALLBACK, "max": None, "timeout": None, "topics": ["widgets"], "uuid": "demo"}
    assert send(bus, "POST /subscription", *auth, body=json.dumps(body).encode()).status == 204
    (row,) = send(bus, "GET /subscriptions", *auth).json
    assert (row["max_events"], row["timeout"]) == (100, 500)
    for line in ("DELETE /subscriber/topics/widgets", "DELETE /subscriber", "DELETE /topics/widgets"):
        assert send(bus, line, *auth).status == 204


def test_a_plain_request_is_sent_to_the_same_target_over_tls(processes: Processes) -> None:
    bus = Bus(processes, EVENTD_ROUTEMASTER_REQUIRE_TLS="true", EVENTD_ROUTEMASTER_PUBLIC_URL="https://bus.example")
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", bus.port, timeout=10)) as connection:
        for method, status in (("GET", 301), ("POST", 307)):
            connection.request(method, "/topics/a?b=c")
            answer = connection.getresponse()
            assert (answer.status, answer.read()) == (status, b"")
            assert answer.headers["Location"] == "https://bus.example/topics/a?b=c"
    assert bus.node.stop() == 0


# --- many at a time -------------------------------------------------------------------------------------------------

DATABASES = pytest.mark.parametrize("database", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
CLIENTS = 20


def together(work: list[Any]) -> list[Any]:
    """Call all of these at the same time; return their results."""
    begin, results = threading.Barrier(len(work)), [None] * len(work)

    def call(number: int) -> None:
        begin.wait()
        results[number] = work[number]()

    threads = [threading.Thread(target=call, args=(number,)) for number in range(len(work))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


@DATABASES
def test_of_many_first_publishers_and_subscribers_at_a_time_one_and_all_succeed(
    processes: Processes, request: pytest.FixtureRequest, database: str
) -> None:
    url = None if database == "sqlite" else request.getfixturevalue("postgres_url")
    bus = Bus(processes, database_url=url)
    tokens = [bus.token(f"client-{number}") for number in range(CLIENTS)]
    event = {"type": "create", "url": "https://shop.example/1"}

    def subscribe(token: str, topics: list[str]) -> int:
        body = {"topics": topics, "callback": CALLBACK, "uuid": token}
        return bus.ask("POST", "/subscription", body, token=token)[0]

    def publish(token: str, name: str) -> int:
        return bus.ask("POST", f"/topics/{name}", event, token=token)[0]

    for name in ("a", "b", "c"):
        found = together([partial(publish, token, name) for token in tokens])
        assert sorted(found) == [200] + [403] * (CLIENTS - 1)
        assert topic(bus, name)["events"] == 1
    found = together([partial(subscribe, token, ["a", "new"]) for token in tokens])
    assert found == [204] * CLIENTS
    assert len(bus.node.ask("GET", "/callbacks")["callbacks"]) == CLIENTS
    # Of one client, one after the other: the last one counts, and none leaves half of itself.
    lists = [["a"], ["b", "c"], ["new"], []] * 5
    assert together([partial(subscribe, tokens[0], topics) for topics in lists]) == [204] * CLIENTS
    assert bus.subscriber(tokens[0])["topics"] in lists
    bus.node.kill9()
    bus.node.start()
    wait_for(lambda: topic(bus, "a")["events"] == 1, "the counts to be the same after a restart")
    assert bus.subscriber(tokens[0])["topics"] in lists
    assert len(json.loads(bus.ask("GET", "/subscriptions", token=ROOT)[1])) == CLIENTS
    assert bus.node.stop() == 0
