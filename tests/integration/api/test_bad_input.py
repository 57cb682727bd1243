"""Invalid input to every operation of the API is answered with an error that says what is wrong."""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from aiohttp import ClientSession
from aiohttp.test_utils import TestServer

from eventd.api.app import build_app
from eventd.api.framework.callers import Callers
from eventd.api.framework.limits import Limits
from eventd.api.framework.operations import Services
from eventd.api.framework.worker_peers import WorkerPeers
from eventd.api.keys.valid_keys import Keys
from eventd.api.listener.connection_limiter import ConnectionLimiter
from eventd.api.routes import OPERATIONS
from eventd.log.core.eventlog import EventLog
from eventd.observe.metrics import Metrics
from eventd.runtime.worker_share import Share
from eventd.store.engine.database import Database
from eventd.testing import ManualClock
from tests.support.operations import params_of

DECLARED = """
apiVersion: federation.routerd.net/v1alpha1
kind: EventGroup
metadata: {name: g}
spec: {nodeName: a, auth: {secretFile: /no/key}}
---
apiVersion: federation.routerd.net/v1alpha1
kind: EventPeer
metadata: {name: b}
spec: {groupRef: g, nodeName: b, endpoint: "http://127.0.0.1:1"}
---
apiVersion: federation.routerd.net/v1alpha1
kind: EventCallback
metadata: {name: c}
spec: {source: {groupRef: g}, url: "https://hooks.example/"}
"""
TEXTS = (
    *(
        "",
        " ",
        "g",
        "b",
        "EventGroup",
        "\0",
        "a\0b",
        "x" * 3000,
        "\u202e\u2028",
        "🦀",
        "..",
        "%",
        "%00",
        "'; --",
        "null",
    ),
    *(
        "-1",
        "0",
        "1e400",
        "9" * 30,
        "1.5",
        "true",
        "NaN",
        "15m",
        "99999999999h",
        "0001-01-01T00:00:00Z",
        "9999-12-31T23:59:59Z",
    ),
    *("abc:1", "abc:99999999999999999999", ":", "delivered", "{", "[]"),
)
VALUES = (
    *(
        None,
        True,
        0,
        -1,
        1.5,
        2**31,
        2**63 - 1,
        2**63,
        2**64,
        -(2**63) - 1,
        1e300,
        [],
        {},
        [[]],
        [None],
        [{}],
        [""],
        {"a": 1},
    ),
    *([0], [-1], [2**63], [2**70], ["\0"], [{"type": "t"}], [{"type": "\0"}], [{"type": "t", "payload": {"a": 1}}]),
    *([{"type": "t", "id": "i", "ttl": "99999999999h"}], [{"type": "t", "observedAt": "9999-12-31T23:59:59.9Z"}]),
    *([{"type": "t", "payload": {"k": "\ud83e\udd80"}, "expiresAt": "0001-01-01T00:00:00Z"}], [{"x": [[[[]]]]}]),
    *(
        [{"name": "f", "text": text}]
        for text in ("", ":", "- [", "&a [*a]", "kind: EventGroup", "{}", "\u0085", "a: &x {b: *x}")
    ),
)
PLAUSIBLE: dict[str, Any] = {
    **{"group": "g", "peer": "b", "kind": "EventPeer", "name": "b", "events": [{"type": "t"}]},
    "callback": "c",
}


@pytest.fixture
async def server(migrated_url: str) -> AsyncIterator[TestServer]:
    """Every operation of the API on a port, over a database with a group and a peer."""
    async with AsyncExitStack() as stack:
        # The loop's own threads, in which keys are read, would outlive the test.
        stack.push_async_callback(asyncio.get_running_loop().shutdown_default_executor)
        database, clock = Database(migrated_url), ManualClock()
        stack.callback(database.close)
        log = await EventLog.open(database, clock)
        stack.push_async_callback(log.close)
        metrics = Metrics()
        app = build_app(
            Services(log),
            Callers(Keys(tuple), ConnectionLimiter("", 256, metrics)),
            WorkerPeers(Share(), dict, metrics),
            version="1",
            limits=Limits(max_body_bytes=1 << 20),
        )
        server = TestServer(app)
        await server.start_server(access_log=None)
        stack.push_async_callback(server.close)
        yield server


SHARE = 12
"""Of the wrong values of a field, one in so many is tried on each database: other ones in each run."""


def requests_to(operation: str, chance: random.Random) -> Iterator[dict[str, Any]]:
    """One field wrong at a time, the others plausible or absent; then nothing at all."""
    fields = {name: field.alias or name for name, field in params_of(operation).model_fields.items()}
    needed = {fields[name]: PLAUSIBLE[name] for name in fields if name in PLAUSIBLE}
    yield {}
    yield {**needed, "noSuchField": 1}
    for name in fields.values():
        # a query holds nothing but text
        values: tuple[Any, ...] = TEXTS if OPERATIONS[operation].method == "GET" else (*TEXTS, *VALUES)
        for value in chance.sample(values, len(values) // SHARE):
            yield {**needed, name: value}


def url_of(operation: str, values: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    rest = dict(values)
    parts = [
        quote(str(rest.pop(part[1:-1], "g")), safe="") if part.startswith("{") else part
        for part in OPERATIONS[operation].path.split("/")
    ]
    return "/".join(parts), rest


READING = [name for name, route in OPERATIONS.items() if route.method == "GET"]
"""Operations that change nothing: one server serves them all."""
CHANGING: dict[str, list[str]] = {}
"""The other operations, by the resource that they change."""
for _name in OPERATIONS:
    if _name not in READING:
        CHANGING.setdefault(_name.partition(".")[0], []).append(_name)


@pytest.mark.parametrize("operations", [READING, *CHANGING.values()], ids=["reading", *CHANGING])
async def test_no_input_is_a_fault_of_the_node(
    operations: list[str], server: TestServer, chance: random.Random, caplog: pytest.LogCaptureFixture
) -> None:
    assert server.port is not None
    base = f"http://127.0.0.1:{server.port}"
    async with ClientSession() as session:
        for operation, values in ((name, values) for name in operations for values in requests_to(name, chance)):
            if not values:  # the first one: the operation before may have deleted what is declared
                declare = {"sources": [{"name": "f", "text": DECLARED}]}
                async with session.post(f"{base}/api/v1/resources/apply", json=declare) as answer:
                    assert answer.status == 200, await answer.text()
            method, (path, rest) = OPERATIONS[operation].method, url_of(operation, values)
            query = f"?{urlencode(rest, doseq=True)}" if method == "GET" else ""
            body = None if method == "GET" else json.dumps(rest).encode()
            headers = {"Content-Type": "application/json"} if body else {}
            caplog.clear()
            with caplog.at_level(logging.WARNING, logger="eventd.api"):
                async with session.request(method, base + path + query, data=body, headers=headers) as answer:
                    told = await answer.text()
            # The group's key is not there, nothing sends to callbacks, and no node has settings.
            unready = answer.status == 503 and (
                "secret_unreadable" in told
                or operation in ("callbacks.test", "node.settings", "audits.list", "audits.report")
            )
            assert answer.status < 500 or unready, f"{operation} {values!r}: {answer.status} {told} {caplog.text}"
            if answer.status >= 400:
                assert json.loads(told)["error"]["message"]
