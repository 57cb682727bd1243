"""The published schemas are those of the validating models, and describe what is really sent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from eventd.plugins.contract.contract import MANUAL_TRIGGER, RunRequest
from eventd.plugins.contract.schemas import FILES, main, schema_text
from eventd.testing import NOW, event
from tests.support.source import ROOT

FOLDER = ROOT / "docs" / "reference" / "plugin-contract"


@pytest.mark.parametrize("name", FILES)
def test_a_published_schema_is_the_one_that_is_made(name: str) -> None:
    made = schema_text(FILES[name])
    assert (FOLDER / name).read_text() == made, (
        "python -m eventd.plugins.contract.schemas docs/reference/plugin-contract"
    )


def test_there_is_no_schema_beside_them(tmp_path: Path) -> None:
    main(str(tmp_path))
    assert sorted(file.name for file in FOLDER.glob("*.json")) == sorted(file.name for file in tmp_path.iterdir())


def members(schema: dict[str, Any], *path: str) -> list[str]:
    """The members a schema describes at a place, references followed."""
    place = schema
    for step in path:
        place = place["properties"][step]
        place = place.get("items", place)
        if "$ref" in place:
            place = schema["$defs"][place["$ref"].rpartition("/")[2]]
    return list(place["properties"])


def test_the_schema_of_a_request_names_what_a_request_holds_in_its_order() -> None:
    shown = {"apiVersion": "a/v1", "kind": "K", "name": "n", "spec": {}}
    whole = event("e", subject="s", payload={"a": "b"})
    request = RunRequest(plugin="p", trigger=MANUAL_TRIGGER, topic="", now=NOW, events=[whole], context=[shown])
    sent = json.loads(request.encode())
    schema = json.loads(schema_text(FILES["request.json"]))
    assert members(schema) == list(sent)
    assert members(schema, "spec") == list(sent["spec"])
    assert members(schema, "spec", "trigger") == list(sent["spec"]["trigger"])
    assert members(schema, "spec", "events") == list(sent["spec"]["events"][0])
    assert members(schema, "spec", "context", "resources") == list(shown)


def test_the_schema_of_a_result_requires_what_the_node_requires() -> None:
    schema = json.loads(schema_text(FILES["result.json"]))
    assert schema["required"] == ["apiVersion", "kind", "status"]
    assert schema["$defs"]["Status"]["required"] == ["ttl"]
    assert schema["$defs"]["ProposedResource"]["required"] == ["apiVersion", "kind", "metadata", "spec"]
    assert schema["$defs"]["Directive"]["properties"]["op"]["const"] == "mask"
