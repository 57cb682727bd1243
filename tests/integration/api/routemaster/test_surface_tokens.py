"""Tokens: shown once, known by their handles, deleted at once."""

from __future__ import annotations

import hashlib
import re
from typing import Any

import pytest

from eventd.api.routemaster.surface import SurfaceConfig
from eventd.store.rows.routemaster import read_subscribers
from eventd.store.rows.tokens import handle_of
from tests.support.fresh import on_sqlite
from tests.support.routemaster import PLAIN, ROOT, StartSurface, SurfaceServer


@on_sqlite
async def test_a_token_is_made_of_its_name_and_shown_once(stored: SurfaceServer) -> None:
    made = await stored.ask("POST", "/api_tokens", {"name": "shop", "other": 1}, user=ROOT)
    assert (made.status, made.headers["content-type"]) == (201, "application/json")
    assert re.fullmatch(rb'\{"token":"shop--[0-9a-f]{32}","name":"shop"\}', made.body)
    token = made.json["token"]
    handle = f"shop--{hashlib.sha256(token.encode()).hexdigest()[:12]}"
    assert (await stored.ask("GET", "/api_tokens", user=ROOT)).json == [{"name": "shop", "token": handle}]
    assert (await stored.ask("GET", "/topics", user=token)).status == 200
    assert (await stored.ask("GET", "/topics", user=handle)).status == 401


async def test_without_tokens_the_list_is_204_or_empty_as_set(start_surface: StartSurface) -> None:
    surface = await start_surface()
    heard = await surface.ask("GET", "/api_tokens", user=ROOT)
    assert (heard.status, heard.body, "content-type" in heard.headers) == (204, b"", False)
    surface = await start_surface(config=PLAIN._replace(empty_list=True))
    heard = await surface.ask("GET", "/api_tokens", user=ROOT)
    assert (heard.status, heard.body) == (200, b"[]")


BAD: list[tuple[dict[str, Any], str]] = [
    ({}, "requires a string"),
    ({"name": None}, "requires a string"),
    ({"name": 1}, "requires a string"),
    ({"name": ["a"]}, "requires a string"),
    ({"name": "a", "token": 1}, "requires a string"),
    ({"name": "a", "token": False}, "requires a string"),
    ({"name": ""}, "contains invalid characters"),
    ({"name": "A"}, "contains invalid characters"),
    ({"name": "a\n"}, "contains invalid characters"),
    ({"name": "a b"}, "contains invalid characters"),
    ({"name": "a" * 65, "token": "t"}, "contains invalid characters"),
    ({"name": "a" * 31}, "contains invalid characters"),
    ({"name": "a", "token": ""}, "contains invalid characters"),
    ({"name": "a", "token": "T"}, "contains invalid characters"),
    ({"name": "a", "token": "t" * 65}, "contains invalid characters"),
]


@pytest.mark.parametrize(("given", "words"), BAD, ids=lambda value: str(value)[:30])
async def test_names_and_tokens_have_one_alphabet(surface: SurfaceServer, given: dict[str, Any], words: str) -> None:
    heard = await surface.ask("POST", "/api_tokens", given, user=ROOT)
    assert (heard.status, heard.text) == (400, words)


async def test_long_names_and_given_tokens(surface: SurfaceServer) -> None:
    name = "a" * 64
    heard = await surface.ask("POST", "/api_tokens", {"name": name, "token": "t:_-9"}, user=ROOT)
    assert heard.json == {"token": "t:_-9", "name": name}
    assert (await surface.ask("POST", "/api_tokens", {"name": "b" * 30, "token": None}, user=ROOT)).status == 201
    shown = (await surface.ask("GET", "/api_tokens", user=ROOT)).json
    assert {"name": name, "token": handle_of(name, "t:_-9")} in shown
    assert max(len(row["token"]) for row in shown) == 64


async def test_a_known_token_is_201_again_and_renamed(surface: SurfaceServer) -> None:
    for name in ("shop", "store"):
        heard = await surface.ask("POST", "/api_tokens", {"name": name, "token": "t"}, user=ROOT)
        assert (heard.status, heard.json) == (201, {"token": "t", "name": name})
    assert (await surface.ask("GET", "/api_tokens", user=ROOT)).json == [
        {"name": "store", "token": handle_of("shop", "t")}
    ]


@pytest.mark.parametrize("by_handle", [False, True])
@on_sqlite
async def test_a_deleted_token_ends_with_its_subscription_and_keeps_its_claims(
    stored: SurfaceServer, by_handle: bool
) -> None:
    token = await stored.token("shop")
    handle = handle_of("shop", token)
    await stored.ask("POST", "/topics/orders", {"type": "create", "url": "https://a"}, user=token)
    await stored.ask("POST", "/subscriber", {"topics": ["orders"], "callback": "https://a"}, user=token)
    heard = await stored.ask("DELETE", f"/api_tokens/{handle if by_handle else token}", user=ROOT)
    assert (heard.status, heard.body) == (204, b"")
    assert (await stored.ask("GET", "/topics", user=token)).status == 401
    assert (await stored.ask("GET", "/topics", user=ROOT)).json[0]["publisher"] == handle
    assert await stored.log.database.read(read_subscribers) == []
    assert stored.changes == 2


async def test_deleting_an_unknown_token_is_204_whatever_the_path_holds(surface: SurfaceServer) -> None:
    for name in ("none", "%FF", "%00", "a%2Fb", "a%20b", "%F0%9F%92%A9", "x" * 500):
        assert (await surface.ask("DELETE", f"/api_tokens/{name}", user=ROOT)).status == 204


async def test_a_handle_that_was_made_a_token_is_that_token(surface: SurfaceServer) -> None:
    token = await surface.token("shop")
    handle = handle_of("shop", token)
    await surface.ask("POST", "/api_tokens", {"name": "twin", "token": handle}, user=ROOT)
    assert (await surface.ask("DELETE", f"/api_tokens/{handle}", user=ROOT)).status == 204
    assert (await surface.ask("GET", "/topics", user=token)).status == 200


async def test_a_client_whose_token_is_the_root_key_does_not_take_it(surface: SurfaceServer) -> None:
    assert (await surface.ask("POST", "/api_tokens", {"name": "x", "token": ROOT}, user=ROOT)).status == 201
    assert (await surface.ask("GET", "/api_tokens", user=ROOT)).status == 200


async def test_without_a_root_key_no_caller_is_root(start_surface: StartSurface) -> None:
    surface = await start_surface(config=SurfaceConfig(require_tls=False))
    surface.surface.root.set("")
    for user in (ROOT, ""):
        assert (await surface.ask("GET", "/api_tokens", user=user)).status == 401
