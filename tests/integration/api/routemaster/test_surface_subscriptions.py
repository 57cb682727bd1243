"""Subscribing: its settings, its refusals, the list, and unsubscribing."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from eventd.log.cursors.cursors import read_cursors
from eventd.store.rows.routemaster import add_sent, read_subscribers
from eventd.store.rows.tokens import handle_of
from eventd.testing import NOW, ManualClock
from tests.support.fresh import on_sqlite
from tests.support.routemaster import ROOT, StartSurface, SurfaceServer

CALLBACK = "https://app.example/events"
EVENT = {"type": "create", "url": "https://shop.example/1"}


async def subscribe(surface: SurfaceServer, token: str, *topics: str, **given: Any) -> None:
    body = {"topics": topics, "callback": CALLBACK, **given}
    heard = await surface.ask("POST", "/subscription", body, user=token)
    assert (heard.status, heard.body, "content-type" in heard.headers) == (204, b"", False)


async def test_what_is_subscribed_is_listed_with_every_member(start_surface: StartSurface) -> None:
    surface = await start_surface(clock=ManualClock())
    app, shop = await surface.token("app"), await surface.token("shop")
    assert (await surface.ask("GET", "/subscriptions", user=app)).body == b"[]"
    await subscribe(surface, app, "orders", "bills", "orders", uuid="secret", timeout=0, max=10_000)
    await surface.ask("POST", "/topics/orders", EVENT, user=shop)
    await surface.log.database.write(lambda conn: add_sent(conn, handle_of("app", app), 7))
    heard = await surface.ask("GET", "/subscribers", user=app)
    shown = {
        "subscriber": app,
        "uuid": "secret",
        "callback": CALLBACK,
        "max_events": 10_000,
        "timeout": 0,
        "topics": ["bills", "orders"],
        "events": {"sent": 7, "queued": 1, "oldest": NOW // 1_000_000},
    }
    assert heard.body == json.dumps([shown], separators=(",", ":")).encode()
    assert surface.changes == 1


@on_sqlite
async def test_a_secret_is_shown_to_its_subscriber_and_root_only(stored: SurfaceServer) -> None:
    app, other = await stored.token("app"), await stored.token("other")
    await subscribe(stored, app, uuid="secret", callback="https://me:pw@app.example/events#x")
    for user, subscriber, uuid in (
        (app, app, "secret"),
        (ROOT, handle_of("app", app), "secret"),
        (other, handle_of("app", app), ""),
    ):
        (row,) = (await stored.ask("GET", "/subscriptions", user=user)).json
        assert (row["subscriber"], row["uuid"]) == (subscriber, uuid)
        assert ("me:pw@" in row["callback"]) == (user != other)
    assert row["callback"] == "https://app.example/events#x"


async def test_defaults_and_what_is_left_out_stays_but_the_uuid(surface: SurfaceServer) -> None:
    app = await surface.token("app")

    async def row() -> tuple[Any, ...]:
        (shown,) = (await surface.ask("GET", "/subscriptions", user=app)).json
        return shown["timeout"], shown["max_events"], shown["uuid"], shown["events"]

    await subscribe(surface, app, uuid=None, timeout=None, max=None)
    nothing = {"sent": 0, "queued": 0, "oldest": None}
    assert await row() == (500, 100, "", nothing)
    await subscribe(surface, app, uuid="a:b", timeout=3_600_000, max=1)
    assert await row() == (3_600_000, 1, "a:b", nothing)
    await subscribe(surface, app, timeout=False)
    assert await row() == (3_600_000, 1, "", nothing)


async def test_numbers_that_are_left_out_stay_as_they_were(surface: SurfaceServer) -> None:
    app = await surface.token("app")

    async def shown(**given: Any) -> tuple[int, int]:
        await subscribe(surface, app, "orders", **given)
        (row,) = (await surface.ask("GET", "/subscriptions", user=app)).json
        return row["timeout"], row["max_events"]

    assert await shown() == await shown(timeout=None, max=None) == await shown(timeout=False, max=False) == (500, 100)
    assert await shown(timeout=0, max=1) == (0, 1)
    for nothing in ({}, {"timeout": None, "max": None}, {"timeout": False, "max": False}):
        assert await shown(**nothing) == (0, 1)
    assert await shown(timeout=3_600_000) == (3_600_000, 1)
    assert await shown(max=2**40) == (3_600_000, 2**40), "as given"


BAD: list[tuple[dict[str, Any], str]] = [
    ({"more": 1}, "bad data in payload"),
    ({"topics": None}, "need an array of topics"),
    ({"topics": "orders"}, "need an array of topics"),
    ({"topics": {}}, "need an array of topics"),
    ({"topics": [":orders"]}, "bad topic"),
    ({"topics": [""]}, "bad topic"),
    ({"topics": [1]}, "bad topic"),
    ({"topics": [None]}, "bad topic"),
    ({"topics": ["a\n"]}, "bad topic"),
    ({"callback": None}, "URL is missing"),
    ({"callback": ""}, "URL is missing"),
    ({"callback": "http://app.example"}, "URL is not HTTPS"),
    ({"callback": "app"}, "URL is invalid"),
    ({"callback": "https://app.example/?a"}, "URL has query string"),
    ({"callback": "https://app example/"}, "URL is invalid"),
    ({"callback": "https:///path"}, "URL is invalid"),
    ({"callback": "https://app.example:65536/"}, "URL is invalid"),
    ({"callback": "https://app.example:00/"}, "URL is invalid"),
    ({"callback": f"https://app.example:{'1' * 5000}/"}, "URL is invalid"),
    ({"callback": "https://app.example:\uff14\uff14\uff13/"}, "URL is invalid"),
    ({"callback": "https://[::::]/"}, "URL is invalid"),
    ({"callback": "https://[127.0.0.1]/"}, "URL is invalid"),
    ({"callback": "https://app%00example/"}, "URL is invalid"),
    ({"callback": "https://256.1.1.1/"}, "URL is invalid"),
    ({"callback": 1}, "URL is invalid"),
    ({"uuid": 1}, "bad uuid"),
    ({"uuid": True}, "bad uuid"),
    ({"uuid": "a\0b"}, "bad uuid"),
    ({"uuid": "\ud800"}, "bad uuid"),
    ({"uuid": "é" * 2049}, "bad uuid"),
    ({"timeout": -1}, "bad timeout"),
    ({"timeout": 3_600_001}, "bad timeout"),
    ({"timeout": 1.5}, "bad timeout"),
    ({"timeout": "500"}, "bad timeout"),
    ({"timeout": True}, "bad timeout"),
    ({"timeout": 2**70}, "bad timeout"),
    ({"max": 0}, "bad max"),
    ({"max": 2**63}, "bad max"),
    ({"max": "1"}, "bad max"),
    ({"max": []}, "bad max"),
]


@pytest.mark.parametrize(("given", "words"), BAD, ids=lambda value: str(value)[:40])
async def test_a_refused_request_leaves_nothing_behind(
    surface: SurfaceServer, given: dict[str, Any], words: str
) -> None:
    app = await surface.token("app")
    body = {"topics": ["orders"], "callback": CALLBACK} | given
    heard = await surface.ask("POST", "/subscriber", body, user=app)
    assert (heard.status, heard.text, heard.headers["content-type"]) == (400, words, "text/plain")
    assert (await surface.ask("GET", "/topics", user=app)).json == []
    assert await surface.log.database.read(read_subscribers) == []
    assert surface.changes == 0


async def test_topics_missing_altogether_are_refused(surface: SurfaceServer) -> None:
    heard = await surface.ask("POST", "/subscription", {"callback": CALLBACK}, user=await surface.token("app"))
    assert (heard.status, heard.text) == (400, "need an array of topics")


async def test_a_forbidden_callback_is_refused_with_the_reason(start_surface: StartSurface) -> None:
    surface = await start_surface(judge=lambda url: "address forbidden" if "10.0.0.1" in url else "")
    app = await surface.token("app")
    await subscribe(surface, app, "orders")
    body = {"topics": [], "callback": "https://10.0.0.1/"}
    heard = await surface.ask("POST", "/subscription", body, user=app)
    assert (heard.status, heard.text) == (400, "address forbidden")
    (row,) = await surface.log.database.read(read_subscribers)
    assert (row.callback, row.topics) == (CALLBACK, ["orders"])


@on_sqlite
async def test_events_count_from_the_subscription_on_and_until_the_topic_is_left(stored: SurfaceServer) -> None:
    shop, app = await stored.token("shop"), await stored.token("app")

    async def queued() -> int:
        (row,) = (await stored.ask("GET", "/subscriptions", user=app)).json
        return int(row["events"]["queued"])

    async def emit(topic: str) -> None:
        assert (await stored.ask("POST", f"/topics/{topic}", EVENT, user=shop)).status == 200

    await emit("orders")
    await subscribe(stored, app, "orders")
    await emit("orders")
    await emit("bills")
    assert await queued() == 1
    await subscribe(stored, app, "bills")
    await emit("orders")
    await emit("bills")
    assert await queued() == 2
    assert (await stored.ask("DELETE", "/subscriber/topics/bills", user=app)).status == 204
    await emit("bills")
    assert await queued() == 2
    await subscribe(stored, app)
    assert (await stored.ask("GET", "/subscriptions", user=app)).json[0]["topics"] == []


async def test_leaving_a_topic_has_its_refusals_in_order(stored: SurfaceServer) -> None:
    shop, app = await stored.token("shop"), await stored.token("app")

    async def leave(topic: str, user: str = app) -> tuple[int, str]:
        heard = await stored.ask("DELETE", f"/subscriber/topics/{topic}", user=user)
        return heard.status, heard.text

    assert await leave("orders") == await leave("%00") == await leave("orders", ROOT) == (404, "subscriber not found")
    await stored.ask("POST", "/topics/orders", EVENT, user=shop)
    await subscribe(stored, app)
    assert await leave("none") == await leave("No%20name") == await leave("%00") == (404, "topic not found")
    assert await leave("orders") == (404, "not subscribed")
    await subscribe(stored, app, "orders")
    assert await leave("orders") == (204, "")
    assert await leave("orders") == (404, "not subscribed")


@on_sqlite
async def test_unsubscribing_drops_everything_and_a_new_subscription_gets_nothing_old(stored: SurfaceServer) -> None:
    shop, app = await stored.token("shop"), await stored.token("app")
    for user in (app, ROOT):
        heard = await stored.ask("DELETE", "/subscriber", user=user)
        assert (heard.status, heard.text) == (404, "subscriber not found")
    await subscribe(stored, app, "orders")
    await stored.ask("POST", "/topics/orders", EVENT, user=shop)
    assert (await stored.ask("DELETE", "/subscriber", user=app)).status == 204
    assert (await stored.ask("GET", "/subscriptions", user=app)).json == []
    assert await stored.log.database.read(read_cursors, "callback") == []
    await subscribe(stored, app, "orders")
    (row,) = (await stored.ask("GET", "/subscriptions", user=app)).json
    assert row["events"] == {"sent": 0, "queued": 0, "oldest": None}
    assert stored.changes == 3


async def test_no_secret_reaches_the_log(surface: SurfaceServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    app = await surface.token("app")
    await subscribe(surface, app, "orders", uuid="very-secret", callback="https://me:pw@app.example/")
    await surface.ask("POST", "/subscription", {"topics": 1, "uuid": "very-secret"}, user=app)
    assert not [line for line in caplog.text.splitlines() if "very-secret" in line or "pw@" in line or app in line]
