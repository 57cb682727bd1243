"""Every route, asked with each scope, and with no key, a wrong, revoked or expired one, or one for other names."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import pytest

from eventd.api.framework.route import Route
from eventd.api.keys.configured_keys import read_scopes
from eventd.api.keys.roles import ROLES
from eventd.api.keys.scopes import SCOPES
from eventd.api.routes import OPERATIONS
from eventd.api.topic_routes import TOPIC_ROUTES
from eventd.runtime.clock import SECOND
from eventd.store.rows.keys import KeyRow
from tests.support.every_route import SERVED, has_field, name_of, narrows, send
from tests.support.source import ROOT
from tests.support.v0 import Server, serving

KEYS = ",".join([*(f"key-{scope}:{scope}" for scope in SCOPES), "key-all", "key-rw:rw", "key-mine::mine-"])
NAMES = {"group": "theirs", "topic": "theirs", "router": "theirs"}
FOR_ALL = {f"{method} /api/v1/effective{end}" for method in ("GET", "HEAD") for end in ("", "/stream")}
"""Calls, besides operations without a group, that need a key without prefixes."""
FOR_ANY_NAME = {"GET /metrics", "HEAD /metrics", "GET /openapi.json", "HEAD /openapi.json"}


def made(secret: str, **given: Any) -> KeyRow:
    digest = hashlib.sha256(secret.encode()).hexdigest()
    return KeyRow(secret, digest, ("read", "write", "delete", "admin"), (), 0, None, None)._replace(**given)


@pytest.fixture
async def server(migrated_sqlite_url: str) -> AsyncIterator[Server]:
    async with serving(migrated_sqlite_url, keys=KEYS) as server:
        now = time.time_ns() // 1000
        keys = server.v0.serving.callers.keys
        keys.reload_from([made("key-revoked", revoked_at=now), made("key-expired", expires_at=now - SECOND)])
        yield server


def allows(scopes: set[str], route: Route) -> bool:
    """Return whether a key with these scopes may use a route: `read` includes `look`, and that is all."""
    held = scopes | {"look"} if "read" in scopes else scopes
    return not held.isdisjoint(route.scopes) if route.any_scope else set(route.scopes) <= held


@pytest.mark.parametrize("key", ["", "key-wrong", "key-revoked", "key-expired"])
async def test_without_a_valid_key_only_probes_and_descriptions_answer(server: Server, key: str) -> None:
    refused = {}
    for route in SERVED:
        answer = await send(server, route, key, {})
        if answer.status == 401 and (answer.code == "unauthorized" or route.method == "HEAD"):
            refused[name_of(route)] = route
    open_to_all = {name_of(route) for route in SERVED} - refused.keys()
    assert open_to_all == {name_of(route) for route in SERVED if not route.scopes and not route.upgrade}


@pytest.mark.parametrize("scopes", [*SCOPES, "read+write"])
async def test_each_scope_opens_its_routes_and_no_others(server: Server, scopes: str) -> None:
    key = "key-rw" if scopes == "read+write" else f"key-{scopes}"
    for route in SERVED:
        if route.upgrade:
            continue  # a WebSocket takes a scope for each command
        answer = await send(server, route, key, {})
        allowed = allows(set(scopes.split("+")), route)
        assert (answer.status == 403) is not allowed, f"{name_of(route)}: {answer}"
        assert allowed or answer.code in ("forbidden", ""), f"{name_of(route)}: {answer}"
        assert answer.status not in (401, 500), f"{name_of(route)}: {answer}"


async def test_a_key_with_all_scopes_is_refused_by_no_route(server: Server) -> None:
    for route in SERVED:
        answer = await send(server, route, "key-all", {})
        assert answer.status not in (401, 403, 500), f"{name_of(route)}: {answer}"


async def test_a_key_of_prefixes_uses_no_route_for_other_names_or_for_all(server: Server) -> None:
    for route in (route for route in SERVED if route.scopes):
        answer = await send(server, route, "key-mine", NAMES)
        name, is_operation = name_of(route), route in OPERATIONS.values()
        if any(f"{{{place}}}" in route.path for place in NAMES) or name in FOR_ALL:
            assert answer.status == 403, f"{name}: {answer}"
        elif narrows(route):
            assert answer.status in (200, 404), f"{name}: {answer}"
        elif name == "callers.show":
            assert json.loads(answer.text)["prefixes"] == ["mine-"], "it is about the key itself"
        elif is_operation:
            # A request whose fields are wrong, or that has no body, is refused for these first.
            assert answer.status == 403 or answer.code.startswith("invalid_"), f"{name}: {answer}"
        else:
            assert name in FOR_ANY_NAME | {name_of(each) for each in TOPIC_ROUTES}, name


async def test_a_key_of_prefixes_names_no_group_of_others_in_a_field(server: Server) -> None:
    asked = [route for route in OPERATIONS.values() if has_field(route, "group") and "{group}" not in route.path]
    assert asked
    for route in asked:
        answer = await send(server, route, "key-mine", {}, {"group": "theirs"})
        assert answer.status in (400, 403), f"{name_of(route)}: {answer}"
        assert "theirs" not in answer.text or answer.status == 403, f"{name_of(route)}: {answer}"


def test_look_is_below_read_and_only_for_reading() -> None:
    looking = [route for route in SERVED if "look" in route.scopes]
    assert all(route.scopes == ("look",) and route.method in ("GET", "HEAD") for route in looking)
    assert not [name_of(route) for route in SERVED if route.withheld and route not in looking]


def test_each_role_includes_those_below_it() -> None:
    for lower, higher in pairwise(ROLES):
        opened = [{name_of(route) for route in SERVED if allows(set(role.scopes), route)} for role in (lower, higher)]
        assert opened[0] < opened[1], (lower.name, higher.name)
    assert {name_of(route) for route in SERVED if not allows(set(ROLES[-1].scopes), route)} == set()


def test_the_roles_are_in_the_docs_with_their_scopes() -> None:
    page = (ROOT / "docs/how-to/api-keys.md").read_text(encoding="utf-8")
    told = re.findall(r"^\| (\w+) \| (?:`([\w+]+)`|all \(leave it out\)) \|", page, re.MULTILINE)
    assert [(name, read_scopes([scopes] if scopes else [])) for name, scopes in told] == [role[:2] for role in ROLES]
