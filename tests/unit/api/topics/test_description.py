"""The generation of /v0's description from the routes and their models."""

from __future__ import annotations

import msgspec

from eventd.api.framework.calls import Call
from eventd.api.framework.models import Body, Query, ResponseModel
from eventd.api.framework.openapi import describe
from eventd.api.framework.route import Route


class Wish(Body):
    name: str
    much: int = 1


class Granted(ResponseModel):
    done: bool


class How(Query, frozen=True):
    fast: bool = False


async def grant(call: Call[None, How, Wish]) -> Granted:
    raise AssertionError


ROUTE = Route("PUT", "/v0/wishes/{topic}", ("admin",), "Grant it.", grant, creates=True)


def test_a_route_is_told_with_all_that_it_takes_and_gives() -> None:
    told = describe([ROUTE], "Wishes", "7")["paths"]["/v0/wishes/{topic}"]["put"]
    assert told["summary"] == "Grant it."
    assert told["security"] == [{"key": []}]
    assert "admin" in told["description"]
    assert [(each["name"], each["in"]) for each in told["parameters"]] == [("topic", "path"), ("fast", "query")]
    assert told["parameters"][1]["schema"] == {"type": "boolean", "default": False}
    assert told["requestBody"]["required"] is True
    assert {"200", "201", "400", "401", "403", "404", "413", "415", "429", "500", "503"} <= told["responses"].keys()
    refused = told["responses"]["415"]["content"]["application/json"]["schema"]
    assert refused == {"$ref": "#/components/schemas/Refusal"}


def test_models_are_told_as_they_are_read() -> None:
    schemas = describe([ROUTE], "Wishes", "7")["components"]["schemas"]
    assert schemas["Wish"]["required"] == ["name"]
    assert schemas["Wish"]["properties"]["much"] == {"type": "integer", "default": 1}
    assert "performance" in schemas["Granted"]["required"]


def test_it_is_plain_json() -> None:
    assert msgspec.json.decode(msgspec.json.encode(describe([ROUTE], "Wishes", "7")))["info"]["version"] == "7"
