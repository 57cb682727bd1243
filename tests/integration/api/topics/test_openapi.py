"""The description of /v0 is correct: what it allows is accepted, what it forbids is refused, and answers match it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventd.api.framework.endpoint import load
from eventd.api.framework.openapi import describe
from eventd.api.framework.route import Route
from eventd.api.topic_routes import TOPIC_ROUTES
from tests.support.schemas import ANYTHING, NAME, Schemas, corrupted
from tests.support.v0 import Response, Server

TITLE = "Topics of a routerd-eventd node"
DOCUMENT: dict[str, Any] = json.loads(json.dumps(describe(TOPIC_ROUTES, TITLE, "1")))
SCHEMAS = Schemas(DOCUMENT)
ANSWERED = [route for route in TOPIC_ROUTES if not route.stream]
"""Streams have tests of their own: they do not end."""

NAMES = st.sampled_from(["jobs", "queue", "copies", "new", "_", "a b", "ü", "\x00", "a" * 300, "group:g", "a->b"])
PLAUSIBLE = {
    NAME: NAMES,
    "source": NAMES,
    "dest": NAMES,
    "dead_letter": NAMES | st.none(),
    "wait_ms": st.sampled_from([0, 1]),
    "claim_jitter_ms": st.sampled_from([0, 1]),
    "data": ANYTHING,
    "match": st.sampled_from(["a", "a*", ["tag", "Eq", "a"], ["tag", "Glob", "a*"], ["tag", "Glob", "a"], None]),
    "filter": st.sampled_from(["a", ["tag", "Eq", "a"], ["tag", "Glob", "*"], ["tag", "Glob", ""], None]),
}


def test_every_route_is_described_and_nothing_else() -> None:
    described = {(method.upper(), path) for path, methods in DOCUMENT["paths"].items() for method in methods}
    assert described == {(route.method, route.path) for route in TOPIC_ROUTES}
    ids = [told["operationId"] for methods in DOCUMENT["paths"].values() for told in methods.values()]
    assert len(ids) == len(set(ids))
    assert DOCUMENT["openapi"].startswith("3.1.")


def test_every_reference_leads_somewhere() -> None:
    def references(value: Any) -> Any:
        if isinstance(value, dict):
            yield from [value["$ref"]] if "$ref" in value else []
            value = list(value.values())
        if isinstance(value, list):
            for each in value:
                yield from references(each)

    found = set(references(DOCUMENT))
    assert found
    for reference in found:
        assert SCHEMAS.resolve({"$ref": reference})["title"]


def test_what_a_route_needs_is_told() -> None:
    for route in TOPIC_ROUTES:
        told = DOCUMENT["paths"][route.path][route.method.lower()]
        assert bool(told.get("security")) == bool(route.scopes), route.path
        assert told.get("requestBody", {}).get("required", False) == (
            load(route).body is not None and not route.may_be_empty
        ), route.path
        assert {each["name"] for each in told["parameters"] if each["in"] == "path"} == {
            part[1:-1] for part in route.path.split("/") if part.startswith("{")
        }


async def test_it_is_served_with_the_version_of_the_node(server: Server) -> None:
    told = await server.ask("GET", "/openapi.json")
    assert told.status == 200
    assert told.body == json.loads(json.dumps(describe(TOPIC_ROUTES, TITLE, "1.2.3")))


def described(route: Route) -> dict[str, Any]:
    found: dict[str, Any] = DOCUMENT["paths"][route.path][route.method.lower()]
    return found


def body_schema(route: Route) -> dict[str, Any] | None:
    content = described(route).get("requestBody", {}).get("content")
    return None if content is None else content["application/json"]["schema"]


def bodies(route: Route) -> st.SearchStrategy[Any]:
    """Bodies that fit, and some that nearly do."""
    schema = body_schema(route)
    if schema is None:
        return st.none()
    fitting = SCHEMAS.values(schema, PLAUSIBLE)
    return fitting | fitting.flatmap(corrupted).filter(_ends_soon)


def _ends_soon(body: Any) -> bool:
    """Whether an answer does not take long because it was asked to."""
    waits = [body.get(name) for name in ("wait_ms", "claim_jitter_ms")] if isinstance(body, dict) else []
    config = body.get("config") if isinstance(body, dict) else None
    waits += [config.get("claim_jitter_ms")] if isinstance(config, dict) else []
    return all(not isinstance(wait, int) or wait <= 1 for wait in waits)


def queries(route: Route) -> st.SearchStrategy[dict[str, str]]:
    names = [each["name"] for each in described(route)["parameters"] if each["in"] == "query"]
    texts = st.sampled_from(["", "true", "0", "1", "2", "-1", "x", "%", "a*", "ü", "\x00", "9" * 30, "jobs"])
    return st.fixed_dictionaries({}, optional=dict.fromkeys(names, texts))


@pytest.fixture
async def furnished(stored: Server) -> Server:
    """A server with a log, a queue, and a router between two topics."""
    await stored.write_records("jobs", *[{"data": n, "tag": f"a{n}", "node": "n", "meta": {"m": n}} for n in range(5)])
    await stored.write("queue", *range(5), config={"type": "queue"})
    await stored.ask("PUT", "/routers/r", {"source": "jobs", "dest": "copies"})
    return stored


READING = [route for route in ANSWERED if route.method == "GET"]
"""Routes that change nothing: one server serves them all."""
CHANGING = [route for route in ANSWERED if route not in READING]


@pytest.mark.parametrize(
    ("migrated_url", "routes"),
    [
        pytest.param("sqlite", READING, id="sqlite-reading"),
        *(pytest.param("sqlite", [route], id=f"sqlite-{route.method} {route.path}") for route in CHANGING),
        pytest.param("postgres", ANSWERED, id="postgres", marks=pytest.mark.postgres),
    ],
    indirect=["migrated_url"],
)
async def test_answers_are_as_they_are_described(
    routes: list[Route], furnished: Server, seeded: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> None:
    for route in routes:
        await _require_answers_described(route, furnished, seeded)


async def _require_answers_described(
    route: Route, furnished: Server, seeded: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> None:
    loop = asyncio.get_running_loop()

    @seeded
    @given(name=NAMES, body=bodies(route), query=queries(route))
    def check(name: str, body: Any, query: dict[str, str]) -> None:
        path = route.path.removeprefix("/v0")
        for part in ("topic", "router", "wid"):
            path = path.replace(f"{{{part}}}", quote(name, safe=""))
        asked = furnished.ask(route.method, f"{path}?{urlencode(query)}", body)
        told = asyncio.run_coroutine_threadsafe(asked, loop).result(20)
        _require_described(route, told, body)

    await asyncio.to_thread(check)


def _require_described(route: Route, told: Response, body: Any) -> None:
    responses = described(route)["responses"]
    assert str(told.status) in responses, f"{told.status} is not described: {told.body}"
    assert told.status not in (500, 503), told.body
    content = responses[str(told.status)]["content"]
    if "application/json" in content:
        assert not list(SCHEMAS.flaws(content["application/json"]["schema"], told.body)), told.body
    schema = body_schema(route)
    if schema is not None and body is not None and any(SCHEMAS.flaws(schema, body)):
        assert 400 <= told.status < 500, f"it should not have been taken: {list(SCHEMAS.flaws(schema, body))}"
