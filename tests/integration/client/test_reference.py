"""The page about the client: its first example runs, and all names in it exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp.test_utils import TestServer

import eventd.client
import eventd.client.drain
import eventd.client.webhooks
from eventd.client.queues import Queues
from eventd.client.routers import Routers
from eventd.client.topics import Topics
from eventd.runtime.clock import SECOND, SystemClock
from federation.webhooks import read_key, sign
from tests.support.v0 import Server

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "client.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


async def test_the_first_example_runs(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    program, _, run = EXAMPLES[0].partition("\n\nasyncio.run(")
    assert run == "main())\n"
    scope: dict[str, object] = {}
    exec(compile(program.replace("http://127.0.0.1:8780", server.url), "client.md", "exec"), scope)
    await scope["main"]()  # type: ignore[operator]
    assert capsys.readouterr().out == "[1]\n1 demo {'n': 1}\n"


def test_the_example_of_a_receiver_runs(capsys: pytest.CaptureFixture[str]) -> None:
    program = next(example for example in EXAMPLES if "webhooks.verify" in example)
    scope: dict[str, Any] = {}
    exec(compile(program, "client.md", "exec"), scope)
    now = SystemClock().now() // SECOND
    signature = sign([read_key("k", scope["SECRET"])], "m-1", now, b"{}")
    headers = {"Webhook-Id": "m-1", "Webhook-Timestamp": str(now), "Webhook-Signature": signature}
    assert scope["receive"](headers, b"{}") == 204
    assert scope["receive"](headers, b"{ }") == 401
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == f"received m-1 sent at {now}"
    assert shown[1].startswith("refused: no signature")


async def test_the_example_of_a_drain_runs(capsys: pytest.CaptureFixture[str]) -> None:
    program, cached = (example for example in EXAMPLES if "eventd.client.drain" in example)
    scope: dict[str, Any] = {"__name__": "page"}
    exec(compile(program, "client.md", "exec"), scope)
    exec(compile(cached, "client.md", "exec"), scope)
    event = {"topic": "orders", "type": "create", "url": "https://shop.example/1", "t": 5}
    user = aiohttp.encode_basic_auth("shop--0123", "x")
    async with TestServer(scope["application"](scope["drain"])) as server, aiohttp.ClientSession() as session:
        sent = session.post(server.make_url("/"), json=[event], headers={"Authorization": user})
        async with sent as answer:
            assert answer.status == 204
    assert capsys.readouterr().out == "orders create https://shop.example/1 5 None\n"


def test_every_call_on_the_page_is_there() -> None:
    calls = re.findall(r"`?(topics|routers|queues)\.(\w+)\(", PAGE)
    families = {"topics": Topics, "routers": Routers, "queues": Queues}
    assert len(calls) > 12
    for family, name in calls:
        assert callable(getattr(families[family], name)), f"{family}.{name}"
    told = {name for family, name in calls}
    for kind in families.values():
        assert {name for name in vars(kind) if not name.startswith("_")} <= told


def test_every_value_on_the_page_is_there() -> None:
    names = set(re.findall(r"`([A-Z]\w+)", PAGE)) - {"Retry", "None", "True", "PATH", "HOST", "NAMESPACE", "TypeError"}
    ours = {*eventd.client.__all__, *eventd.client.webhooks.__all__, *eventd.client.drain.__all__, *dir(eventd.errors)}
    assert names - {"Unavailable"} <= ours | {"ONCE"}
