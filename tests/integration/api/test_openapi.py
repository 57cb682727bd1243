"""The OpenAPI description names every route, every code and every model it refers to, and is served."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from eventd.api.framework.endpoint import load
from eventd.api.framework.openapi import REFUSALS, describe
from eventd.api.framework.route import Route
from eventd.api.routes import OPERATIONS, ROUTES
from tests.contract.test_reference_docs import _declared_errors
from tests.integration.api.conftest import Api, StartApi

DESCRIBED = [route for route in ROUTES if route.method != "HEAD"]


@cache
def document() -> dict[str, Any]:
    """Return the description of all routes: made when a test needs it, and not when tests are collected."""
    return describe(ROUTES, "API", "1")


def operation_of(route: Route) -> dict[str, Any]:
    found: dict[str, Any] = document()["paths"][route.path][route.method.lower()]
    return found


def nodes(value: Any) -> Iterator[Any]:
    """A value of JSON and all values inside."""
    yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from nodes(inner)


def test_every_mounted_route_is_described_and_nothing_else() -> None:
    described = {(method.upper(), path) for path, methods in document()["paths"].items() for method in methods}
    assert described == {(route.method, route.path) for route in DESCRIBED}


def test_it_has_the_structure_of_openapi_3_1() -> None:
    assert document()["openapi"] == "3.1.0"
    assert document()["info"].keys() == {"title", "version"}
    operations = [operation_of(route) for route in DESCRIBED]
    ids = [operation["operationId"] for operation in operations]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(r"\w+", each) for each in ids)
    for operation in operations:
        assert operation["summary"]
        assert operation["responses"]
        for status, response in operation["responses"].items():
            assert re.fullmatch(r"[1-5]\d\d|default", status)
            assert response["description"]
        names = [(each["in"], each["name"]) for each in operation["parameters"]]
        assert len(set(names)) == len(names)
        assert all(each["in"] in ("path", "query") and each["schema"] for each in operation["parameters"])


def test_every_reference_leads_to_a_schema() -> None:
    references = {node["$ref"] for node in nodes(document()) if isinstance(node, dict) and "$ref" in node}
    assert len(references) > 30
    schemas = document()["components"]["schemas"]
    assert {reference.removeprefix("#/components/schemas/") for reference in references} == schemas.keys()


def test_the_names_in_a_path_are_its_parameters() -> None:
    for route in DESCRIBED:
        told = {each["name"]: each["required"] for each in operation_of(route)["parameters"] if each["in"] == "path"}
        assert told == dict.fromkeys(re.findall(r"{(\w+)}", route.path), True), (route.method, route.path)


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_parameter_of_an_operation_is_described_once(name: str) -> None:
    route = OPERATIONS[name]
    params, operation = load(route).params, operation_of(route)
    assert params is not None
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    told = [each["name"] for each in operation["parameters"]] + [*body.get("properties", ())]
    assert sorted(told) == sorted(field.alias or "" for field in params.model_fields.values())


def test_every_status_of_an_error_is_that_of_an_error_there_is() -> None:
    errors = _declared_errors()
    for route in DESCRIBED:
        possible = {route.surface.form.status(kind.__new__(kind)) for kind in errors}
        told = {int(status) for status in operation_of(route)["responses"] if status[0] in "45"}
        assert told <= possible & REFUSALS.keys(), (route.method, route.path)


def test_scopes_are_told() -> None:
    for route in DESCRIBED:
        operation = operation_of(route)
        assert ("security" in operation) == bool(route.scopes)
        assert all(scope in operation.get("description", "") for scope in route.scopes)


async def test_it_is_served_to_callers_with_a_key(start_api: StartApi) -> None:
    api: Api = await start_api("k:r")
    assert (await api.ask("GET", "/openapi.json"))[0] == 401
    status, told, headers = await api.ask("GET", "/openapi.json", headers={"Authorization": "Bearer k"})
    assert (status, headers["Content-Type"], told["info"]["version"]) == (200, "application/json", "1.2.3")
    assert told["paths"].keys() == document()["paths"].keys()
