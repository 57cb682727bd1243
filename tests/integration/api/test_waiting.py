"""The API of a standby: it shows that it waits, and refuses everything else in the form of the path."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from aiohttp import ClientSession
from aiohttp.test_utils import TestServer

from eventd.api.keys.configured_keys import parse_keys
from eventd.api.keys.valid_keys import Keys
from eventd.api.waiting import build_waiting
from eventd.observe.metrics import Metrics
from eventd.runtime.chance import SYSTEM

Ask = Callable[..., Awaitable[tuple[int, Any, Any]]]
WHY, HINT = "this node stands by: b serves the database", "call that node, or wait until this one takes over"


@pytest.fixture
async def ask() -> AsyncIterator[Ask]:
    """Ask a standby that waits for `b`: (status, decoded JSON or text, headers)."""
    keys = Keys(lambda: parse_keys("reader-key-0001:read,writer-key-0001:write"))
    app = build_waiting(keys, Metrics(), "1.2.3", lambda: "b", SYSTEM)
    async with TestServer(app) as server, ClientSession() as session:

        async def request(path: str, key: str = "", method: str = "GET") -> tuple[int, Any, Any]:
            headers = {"Authorization": f"Bearer {key}"} if key else {}
            async with session.request(method, server.make_url(path), headers=headers) as answer:
                text = await answer.text()
                is_json = answer.content_type == "application/json" and text
                return answer.status, json.loads(text) if is_json else text, answer.headers

        yield request


async def test_it_shows_that_it_stands_by(ask: Ask) -> None:
    assert (await ask("/healthz"))[:2] == (200, {"status": "ok", "version": "1.2.3", "standby": True})
    status, told, headers = await ask("/readyz")
    assert (status, told) == (503, {"status": "standing by", "checks": {"database": "served by b"}})
    assert headers["Retry-After"] == "1"
    assert [(await ask(path, method="HEAD"))[0] for path in ("/healthz", "/readyz")] == [200, 503]


async def test_a_probe_may_accept_it(ask: Ask) -> None:
    assert (await ask("/readyz?standby=ok"))[:2] == (
        200,
        {"status": "standing by", "checks": {"database": "served by b"}},
    )
    assert (await ask("/readyz?verbose"))[:2] == (503, "[-]database: served by b\nreadyz failed\n")
    assert (await ask("/readyz?verbose&standby=ok"))[:2] == (200, "[-]database: served by b\nreadyz passed\n")
    assert (await ask("/healthz?verbose"))[:2] == (200, "[+]loop ok\nhealthz passed\n")


async def test_its_metrics_need_a_key_that_may_read(ask: Ask) -> None:
    assert [(await ask("/metrics", key))[0] for key in ("", "writer-key-0001")] == [401, 403]
    status, text, _ = await ask("/metrics", "reader-key-0001")
    assert status == 200
    assert "routerd_eventd_standby" in text


@pytest.mark.parametrize(
    ("method", "path", "error"),
    [
        ("POST", "/api/v1/resources/apply", {"code": "unavailable", "message": WHY, "hint": HINT}),
        ("POST", "/healthz", {"code": "unavailable", "message": WHY, "hint": HINT}),
        ("GET", "/v0/topics/jobs", {"code": "not_ready", "message": f"{WHY}; {HINT}"}),
    ],
)
async def test_the_rest_is_refused_in_the_form_of_its_path(
    ask: Ask, caplog: pytest.LogCaptureFixture, method: str, path: str, error: dict[str, str]
) -> None:
    with caplog.at_level(logging.WARNING):
        status, told, headers = await ask(path, method=method)
    assert (status, told, headers["Retry-After"]) == (503, {"error": error}, "1")
    assert not caplog.records, "a load balancer may ask often"
