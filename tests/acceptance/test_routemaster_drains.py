"""Subscribers whose receivers are as strict as the drains of Routemaster: what they get, and what their answers do."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.bus import Bus
from tests.support.certificates import server_context
from tests.support.processes import Processes
from tests.support.strict_drain import DrainRules, StrictDrain
from tests.support.waiting import wait_for


@pytest.fixture
def drain(tmp_path: Path) -> Iterator[StrictDrain]:
    context = server_context(tmp_path / "tls")
    made = StrictDrain(context)
    yield made
    made.stop()


class Shop:
    """A bus with a publisher and a subscriber."""

    def __init__(self, processes: Processes, drain: StrictDrain, **env: str) -> None:
        self.bus = Bus(processes, **env)
        self.drain = drain
        self.shop, self.billing = self.bus.token("shop"), self.bus.token("billing")

    def subscribe(self, *topics: str, **given: Any) -> None:
        body = {"topics": topics, "callback": self.drain.url, "uuid": "demo", "timeout": 0, **given}
        assert self.bus.ask("POST", "/subscription", body, token=self.billing) == (204, b"")

    def publish(self, *numbers: int, topic: str = "orders", **given: Any) -> None:
        for number in numbers:
            self.bus.publish(self.shop, topic, f"https://shop.example/{number}", **given)

    def settled(self) -> None:
        wait_for(lambda: self.bus.subscriber(self.billing)["events"]["queued"] == 0, "everything to be delivered")

    @property
    def trouble(self) -> tuple[str, str]:
        (one,) = self.bus.listed(self.billing)
        return one["state"], one["reason"]

    def stop(self) -> None:
        assert self.drain.broken == []
        assert self.bus.node.stop() == 0


@pytest.fixture
def shop(processes: Processes, drain: StrictDrain) -> Shop:
    return Shop(processes, drain)


def test_a_request_is_exactly_what_drains_read(shop: Shop, drain: StrictDrain) -> None:
    shop.subscribe("orders", "users", timeout=60_000, max=3)
    shop.publish(1, timestamp=1795173885369)
    shop.publish(2, topic="users", timestamp=1.5, data={"a": {"b": [1, None]}})
    shop.publish(3, data={})
    shop.settled()
    (request,) = drain.requests
    assert request.status == 204
    assert request.line == "POST /hooks/ HTTP/1.1"
    assert request.names == [
        "Host",
        "Authorization",
        "Content-Type",
        "User-Agent",
        "Accept",
        "webhook-id",
        "webhook-timestamp",
        "Content-Length",
    ]
    assert request.header("Host") == f"127.0.0.1:{drain.port}"
    assert request.header("Authorization") == "Basic " + base64.b64encode(b"demo:x").decode()
    assert request.header("Content-Type") == "application/json"
    assert re.fullmatch(r"routerd-eventd/[0-9a-z.+]+", request.header("User-Agent"))
    assert request.header("Accept") == "*/*"
    assert int(request.header("Content-Length")) == len(request.body)
    given = re.search(rb'/3","t":(\d{13}),"data":\{\}', request.body)
    assert given is not None
    assert request.body == (
        b'[{"topic":"orders","type":"create","url":"https://shop.example/1","t":1795173885369},'
        b'{"topic":"users","type":"create","url":"https://shop.example/2","t":1.5,"data":{"a":{"b":[1,null]}}},'
        b'{"topic":"orders","type":"create","url":"https://shop.example/3","t":' + given[1] + b',"data":{}}]'
    )
    shop.stop()


def test_batches_close_at_max_and_the_last_one_by_time(shop: Shop, drain: StrictDrain) -> None:
    shop.subscribe("orders", max=3, timeout=3_600_000)
    shop.publish(*range(7), timestamp=1795173885)  # as a client that counts in seconds: long ago
    wait_for(lambda: len(drain.accepted) == 2, "the full batches")
    assert [len(one.urls) for one in drain.accepted] == [3, 3]
    wait_for(lambda: shop.bus.subscriber(shop.billing)["events"]["queued"] == 1, "both to be settled")
    shop.subscribe("orders", max=3, timeout=0)  # counts for what is queued, too
    wait_for(lambda: len(drain.accepted) == 3, "the rest")
    assert drain.urls == [f"https://shop.example/{number}" for number in range(7)]
    shop.publish(7, timestamp=2**62)  # far in the future
    wait_for(lambda: len(drain.accepted) == 4, "an event whose own time does not count")
    shop.stop()


def test_user_information_and_fragment_of_a_callback_are_not_sent(shop: Shop, drain: StrictDrain) -> None:
    for callback in (drain.url.replace("//", "//ann:secret@") + "#part", drain.url.replace("https", "HTTPS")):
        shop.subscribe("orders", callback=callback)
        shop.publish(len(drain.requests))
        shop.settled()
    first, second = drain.requests
    assert first.line == second.line == "POST /hooks/ HTTP/1.1"
    assert first.header("Host") == second.header("Host") == f"127.0.0.1:{drain.port}"
    assert first.header("Authorization") == "Basic " + base64.b64encode(b"demo:x").decode()
    assert "secret" not in shop.bus.node.process.log() + str(shop.bus.listed(shop.billing))
    shop.stop()


def test_a_subscriber_without_a_uuid_is_an_empty_user(shop: Shop, drain: StrictDrain) -> None:
    drain.rules = DrainRules(users=("",))
    for given in ({}, {"uuid": None}, {"uuid": ""}):
        shop.subscribe("orders", uuid="demo")
        body = {"topics": ["orders"], "callback": drain.url, "timeout": 0, **given}
        assert shop.bus.ask("POST", "/subscription", body, token=shop.billing)[0] == 204
        assert shop.bus.subscriber(shop.billing)["uuid"] == ""
    shop.publish(1)
    shop.settled()
    assert drain.requests[0].header("Authorization") == "Basic " + base64.b64encode(b":x").decode()
    shop.stop()


def test_an_endpoint_whose_certificate_is_not_trusted_gets_nothing(processes: Processes, drain: StrictDrain) -> None:
    shop = Shop(processes, drain, EVENTD_ROUTEMASTER_SSL_VERIFY="true")
    shop.subscribe("orders")
    shop.publish(1)
    wait_for(lambda: shop.trouble[0] == "blocked", "the refusal")
    assert shop.trouble[1].startswith("tls_")
    assert drain.requests == []
    assert shop.bus.node.stop() == 0


@pytest.mark.parametrize(
    ("rules", "given", "status"),
    [
        (DrainRules(users=("another",)), {}, 403),
        (DrainRules(path="/elsewhere"), {}, 404),
        (DrainRules(methods=("PUT",)), {}, 405),
        (DrainRules(), {"uuid": None}, 403),
    ],
    ids=["user", "path", "method", "no user"],
)
def test_a_drain_in_a_wrong_place_or_with_another_user_blocks_until_it_subscribes_again(
    shop: Shop, drain: StrictDrain, rules: DrainRules, given: dict[str, Any], status: int
) -> None:
    drain.rules = rules
    shop.subscribe("orders", **given)
    shop.publish(1, 2, 3)
    wait_for(lambda: shop.trouble == ("blocked", f"http_{status}"), "the refusal")
    assert {one.status for one in drain.requests} == {status}
    drain.rules = DrainRules(users=("another", "demo"))
    shop.subscribe("orders")
    shop.settled()
    assert drain.urls == [f"https://shop.example/{number}" for number in (1, 2, 3)]
    assert shop.trouble == ("running", "")
    shop.stop()


@pytest.mark.parametrize("status", [400, 415])
def test_a_drain_that_reads_no_request_at_all_has_nothing_set_aside(
    shop: Shop, drain: StrictDrain, status: int
) -> None:
    """As one behind a proxy that changes the content type: nothing it answers is about an event."""
    drain.rules = DrainRules(always=status)
    shop.subscribe("orders", max=2)
    shop.publish(1, 2, 3, 4)
    wait_for(lambda: len(drain.requests) >= (2 if status == 415 else 9), "the refusals")
    assert shop.bus.listed(shop.billing)[0]["deadLetters"] == 0
    drain.rules = DrainRules()
    shop.subscribe("orders", max=2)
    shop.settled()
    # In any order: an event that was sent ahead, as a proof, may have been the first that the drain accepted.
    assert set(drain.urls) == {f"https://shop.example/{number}" for number in (1, 2, 3, 4)}
    assert shop.bus.listed(shop.billing)[0]["deadLetters"] == 0
    shop.stop()


def test_an_event_that_the_application_fails_on_is_set_aside_and_the_others_arrive(
    shop: Shop, drain: StrictDrain
) -> None:
    def handle(event: dict[str, Any]) -> None:
        if event["url"].endswith("/5"):
            raise RuntimeError

    drain.rules = DrainRules(handle=handle)
    shop.subscribe("orders", max=4, timeout=300)
    shop.publish(*range(9))
    wait_for(lambda: shop.bus.listed(shop.billing)[0]["deadLetters"] == 1, "the event to be given up", seconds=40)
    shop.settled()
    assert list(dict.fromkeys(drain.urls)) == [f"https://shop.example/{number}" for number in range(9) if number != 5]
    name = shop.bus.listed(shop.billing)[0]["callback"].replace("/", "%2F")
    (letter,) = shop.bus.node.ask("GET", f"/callbacks/{name}/dead-letters")["deadLetters"]
    assert letter["reason"] == "http_500"
    drain.rules = DrainRules()
    shop.bus.node.ask("POST", f"/callbacks/{name}/dead-letters/retry", {"ids": [letter["id"]]})
    wait_for(lambda: drain.urls[-1:] == ["https://shop.example/5"], "the event to be sent again")
    assert drain.accepted[-1].header("routerd-repair") == "1"
    shop.stop()
