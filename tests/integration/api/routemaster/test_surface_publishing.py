"""Publishing: what is accepted, in which order it is refused, and what becomes of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from eventd.api.routemaster.surface import SurfaceConfig
from eventd.errors import DatabaseUnavailable
from eventd.log.routemaster.surface_topic import OpenTopic, surface_topic_config
from eventd.store.engine.statements import fetch
from eventd.store.rows.tokens import handle_of
from eventd.testing import NOW, ManualClock
from tests.support.fresh import on_sqlite
from tests.support.routemaster import PLAIN, ROOT, StartSurface, SurfaceServer

URL = "https://shop.example/orders/1"
EVENT = {"type": "create", "url": URL}


async def counts(surface: SurfaceServer) -> dict[str, int]:
    return {row["name"]: row["events"] for row in (await surface.ask("GET", "/topics", user=ROOT)).json}


async def text_of_records(surface: SurfaceServer) -> str:
    return "".join(text for (text,) in await surface.log.database.read(fetch, "SELECT text FROM blocks"))


async def test_an_event_is_200_and_empty_and_one_record(stored: SurfaceServer) -> None:
    token = await stored.token("shop")
    heard = await stored.ask("POST", "/topics/orders", {**EVENT, "data": {"a": 1}, "timestamp": 5}, user=token)
    assert (heard.status, heard.body) == (200, b"")
    (record,) = await stored.records()
    assert record["$tag"] == "orders.create"
    assert record["$node"].startswith("shop--")
    assert record["$node"] != token
    assert record["data"] == {"url": URL, "t": 5, "data": {"a": 1}}
    assert token not in await text_of_records(stored)


@on_sqlite
async def test_a_name_that_no_topic_has_is_a_bad_topic(stored: SurfaceServer) -> None:
    token = await stored.token("shop")
    for topic in ("Orders", "orders1", "or-ders", "o" * 65, "a.b", "%C3%A4", "a%0A", "%00", "a%2Fb"):
        heard = await stored.ask("POST", f"/topics/{topic}", {}, user=token)
        assert (heard.status, heard.text) == (400, "bad topic"), topic


async def test_names_of_64_letters_and_lines_are_topics(surface: SurfaceServer) -> None:
    token = await surface.token("shop")
    for topic in ("o" * 64, "_", "a_b"):
        assert (await surface.ask("POST", f"/topics/{topic}", EVENT, user=token)).status == 200


BAD: list[dict[str, Any]] = [
    {},
    {"type": "create"},
    {"url": URL},
    {"type": "Create", "url": URL},
    {"type": "created", "url": URL},
    {"type": None, "url": URL},
    {"type": 1, "url": URL},
    {"type": ["create"], "url": URL},
    {"type": "create", "url": None},
    {"type": "create", "url": 1},
    {"type": "create", "url": "http://shop.example/1"},
    {"type": "create", "url": "shop.example/1"},
    {"type": "create", "url": "/orders/1"},
    {"type": "create", "url": "https://shop.example/1?"},
    {"type": "create", "url": "https://shop.example/1?a=b"},
    {"type": "create", "url": "https://shop.example/1#a?b"},
    {"type": "create", "url": "https://shop.example/a b"},
    {"type": "create", "url": "https://shop.example/ä"},
    {"type": "create", "url": "https://shop.example/1\n"},
    {"type": "create", "url": "https://shop.example/%zz"},
    {"type": "create", "url": "https://[::1/"},
    {"type": "create", "url": "https://a/" + "x" * 8183},
    {**EVENT, "data": []},
    {**EVENT, "data": "x"},
    {**EVENT, "data": 1},
    {**EVENT, "data": False},
    {**EVENT, "data": {"a": "x" * 60}},
    {**EVENT, "data": {"a": 2**64}},
    {**EVENT, "data": {"a": {"b": [-(2**63) - 1]}}},
    {**EVENT, "data": {"a": "\ud800"}},
    {**EVENT, "timestamp": "1795176000000"},
    {**EVENT, "timestamp": True},
    {**EVENT, "timestamp": [1]},
    {**EVENT, "timestamp": {}},
    {**EVENT, "timestamp": 2**64},
    {**EVENT, "timestamp": -(2**63) - 1},
]


async def test_a_bad_event_leaves_nothing(surface: SurfaceServer) -> None:
    token = await surface.token("shop")
    for event in BAD:
        heard = await surface.ask("POST", "/topics/orders", event, user=token)
        told = (heard.status, heard.text, heard.headers["content-type"])
        assert told == (400, "bad event", "text/plain"), event
        assert await counts(surface) == {}, event
        assert await surface.records() == [], event


@pytest.mark.parametrize(
    "text",
    [
        '"timestamp":1e999',
        '"data":{"a":-1e999}',
        '"timestamp":' + "9" * 5000,
        '"data":{"a":' + "1" * 5000 + "}",
        '"data":' + '{"a":' * 500 + "1" + "}" * 500,
    ],
)
async def test_numbers_and_depths_beyond_every_reader_are_bad(surface: SurfaceServer, text: str) -> None:
    body = f'{{"type":"create","url":"{URL}",{text}}}'.encode()
    heard = await surface.ask("POST", "/topics/orders", body, user=await surface.token("shop"))
    assert (heard.status, heard.text) == (400, "bad event")


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "01", "1."])
async def test_what_is_not_json_is_400_without_words(surface: SurfaceServer, text: str) -> None:
    body = f'{{"type":"create","url":"{URL}","timestamp":{text}}}'.encode()
    heard = await surface.ask("POST", "/topics/orders", body, user=await surface.token("shop"))
    assert (heard.status, heard.text) == (400, "")


@pytest.mark.parametrize(
    "url",
    [
        "HTTPS://Shop.example/1",
        "https://u:p@shop.example:8443/1#part",
        "https:///path",
        "https://[2001:db8::1]/",
        "https://a/" + "x" * 8182,
        "https://shop.example/%7Ea/;b=c,d",
    ],
)
async def test_urls_of_https_without_a_question_mark_pass(surface: SurfaceServer, url: str) -> None:
    heard = await surface.ask("POST", "/topics/orders", {**EVENT, "url": url}, user=await surface.token("shop"))
    assert heard.status == 200
    assert (await surface.records())[0]["data"]["url"] == url


@pytest.mark.parametrize("event", [{"data": {"a": "x" * 59}}, {"data": {}}, {"data": None}, {"more": [1, 2]}, {}])
async def test_data_up_to_64_bytes_as_messagepack_and_unknown_members_pass(
    surface: SurfaceServer, event: dict[str, Any]
) -> None:
    heard = await surface.ask("POST", "/topics/orders", EVENT | event, user=await surface.token("shop"))
    assert heard.status == 200
    (record,) = await surface.records()
    assert record["data"].get("data") == event.get("data")
    assert ("data" in record["data"]) == (event.get("data") is not None)


async def test_numbers_come_out_as_they_are_written(surface: SurfaceServer) -> None:
    token = await surface.token("shop")
    bodies = (
        '"timestamp": 1795176000, "data": { "a" : 1.50, "b": [-0, 1E2, 18446744073709551615], "c": "\\u00e4\\/" }',
        '"timestamp": -1.250e-3, "data": {"a": 1, "a": 2}',
        '"timestamp": 0.' + "1" * 100,
    )
    for body in bodies:
        text = f'{{"type":"noop","url":"{URL}",{body}}}'.encode()
        assert (await surface.ask("POST", "/topics/orders", text, user=token)).status == 200
    stored = (await text_of_records(surface)).splitlines()
    ends = [line.partition('"t":')[2] for line in stored]
    assert ends == [
        '1795176000,"data":{"a":1.50,"b":[-0,1E2,18446744073709551615],"c":"ä/"}}}',
        '-1.250e-3,"data":{"a":2}}}',
        "0.1111111111111111}}",
    ]


@pytest.mark.parametrize("given", [{}, {"timestamp": None}, {"timestamp": False}])
async def test_without_a_time_it_is_now_in_milliseconds(start_surface: StartSurface, given: dict[str, Any]) -> None:
    surface = await start_surface(clock=ManualClock())
    token = await surface.token("shop")
    for _ in range(2):
        await surface.ask("POST", "/topics/orders", EVENT | given, user=token)
    assert [record["data"]["t"] for record in await surface.records()] == [NOW // 1000, NOW // 1000 + 1]


@on_sqlite
async def test_a_claimed_topic_is_403_even_for_a_bad_event(stored: SurfaceServer) -> None:
    shop, other = await stored.token("shop"), await stored.token("other")
    assert (await stored.ask("POST", "/topics/orders", EVENT, user=shop)).status == 200
    for event in (EVENT, {}, {"type": "create"}):
        heard = await stored.ask("POST", "/topics/orders", event, user=other)
        assert (heard.status, heard.text) == (403, "topic claimed")
    assert await counts(stored) == {"orders": 1}
    assert len(await stored.records()) == 1


async def test_of_two_first_publishers_one_wins(stored: SurfaceServer) -> None:
    tokens = [await stored.token(f"shop{number}") for number in range(5)]
    asked = [stored.ask("POST", "/topics/orders", EVENT, user=token) for token in tokens]
    assert sorted([heard.status for heard in await asyncio.gather(*asked)]) == [200, 403, 403, 403, 403]
    assert await counts(stored) == {"orders": 1}


async def test_a_repeated_key_is_200_writes_nothing_and_is_not_counted(start_surface: StartSurface) -> None:
    counted: list[tuple[str, str, int]] = []
    surface = await start_surface(published=lambda *event: counted.append(event))
    token = await surface.token("shop")
    for _ in range(2):
        heard = await surface.ask("POST", "/topics/orders", EVENT, user=token, Idempotency_Key="k1")
        assert (heard.status, heard.body) == (200, b"")
    assert await counts(surface) == {"orders": 1}
    size = len("orders" + EVENT["type"] + EVENT["url"])
    assert counted == [("orders", handle_of("shop", token), size)]
    long = await surface.ask("POST", "/topics/orders", EVENT, user=token, Idempotency_Key="k" * 257)
    assert (long.status, long.text) == (400, "bad idempotency key")


async def test_a_full_store_is_503_and_comes_with_a_pause(start_surface: StartSurface) -> None:
    config = surface_topic_config(cap_bytes=100)
    surface = await start_surface(config=PLAIN._replace(topic=config))
    await surface.log.submit(OpenTopic(config, random=bytes(16)))
    token = await surface.token("shop")
    assert (await surface.ask("POST", "/topics/orders", EVENT, user=token)).status == 200
    heard = await surface.ask("POST", "/topics/orders", EVENT, user=token)
    assert (heard.status, heard.headers["retry-after"]) == (503, "1")
    assert await counts(surface) == {"orders": 1}


async def test_a_fault_of_the_node_shows_its_files_in_the_log_and_not_to_clients(
    surface: SurfaceServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    token = await surface.token("shop")
    words = "the disk that holds /srv/node/eventd.db is full: 12 KiB are left"

    async def refuse(_unit: object) -> None:
        raise DatabaseUnavailable(words, hint="free some space")

    monkeypatch.setattr(surface.log, "submit", refuse)
    for method, target, body in (
        ("POST", "/topics/orders", EVENT),
        ("POST", "/subscription", {"topics": ["orders"], "callback": "https://app.example/"}),
        ("DELETE", "/subscriber", None),
        ("DELETE", "/topics/orders", None),
    ):
        heard = await surface.ask(method, target, body, user=token)
        assert (heard.status, heard.text) == (503, "the node cannot serve this request now; try again later")
        assert heard.headers["retry-after"] == "1"
        assert words in getattr(caplog.records[-1], "why", "")


async def test_the_limit_of_data_is_a_setting(start_surface: StartSurface) -> None:
    surface = await start_surface(config=SurfaceConfig(require_tls=False, max_event_data=4))
    token = await surface.token("shop")
    found = [
        (await surface.ask("POST", "/topics/orders", {**EVENT, "data": data}, user=token)).status
        for data in ({"a": 1}, {"a": 128}, {"a": 2**16})
    ]
    assert found == [200, 400, 400]
