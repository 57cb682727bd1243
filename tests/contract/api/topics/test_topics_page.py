"""The reference page of topics lists exactly the existing paths, fields and defaults."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import inspect

from eventd.api.errors.codes import TOPICS_FORM
from eventd.api.framework.endpoint import load
from eventd.api.framework.limits import Limits
from eventd.api.framework.route import Route
from eventd.api.topic_routes import TOPIC_ROUTES
from eventd.api.topics import websocket
from eventd.log.core.topic_config import TopicConfig
from tests.contract.test_reference_docs import _declared_errors

PAGE = (Path(__file__).parents[4] / "docs" / "reference" / "topics-api.md").read_text(encoding="utf-8")
ALL_CODE = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`]+)`", PAGE))))
"""Every word that is marked as code."""
COMMANDS = (websocket.Subscribe, websocket.Unsubscribe, websocket.Publish)


def members(model: Any) -> Iterator[str]:
    """The names of all members of a model, and of those inside."""

    def walk(kind: inspect.Type) -> Iterator[str]:
        match kind:
            case inspect.StructType(fields=fields):
                for field in fields:
                    yield field.encode_name
                    yield from walk(field.type)
            case inspect.ListType(item_type=inner) | inspect.DictType(value_type=inner):
                yield from walk(inner)
            case inspect.UnionType(types=types):
                for each in types:
                    yield from walk(each)

    return walk(inspect.type_info(model)) if isinstance(model, type) else iter(())


def test_every_path_has_its_place_and_no_other_does() -> None:
    told = set(re.findall(r"^### ((?:GET|PUT|PATCH|POST|DELETE) \S+)$", PAGE, re.MULTILINE))
    assert told == {f"{route.method} {route.path}" for route in TOPIC_ROUTES}


@pytest.mark.parametrize("route", TOPIC_ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_every_member_of_what_is_asked_and_answered_is_named(route: Route) -> None:
    _, _, _, *models = load(route)
    missing = {name for model in models if model is not None for name in members(model)} - ALL_CODE
    assert not missing, f"{route.path}: {sorted(missing)}"


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.__name__)
def test_every_member_of_a_command_is_named(command: type) -> None:
    assert not set(members(command)) - ALL_CODE


def test_every_field_of_a_topic_is_told_with_its_default() -> None:
    section = PAGE.partition("### PUT /v0/topics/{topic}")[2].partition("###")[0]
    told = dict(re.findall(r"^\| `(\w+)` \| (\S+) \|", section, re.MULTILINE))
    defaults = msgspec.to_builtins(TopicConfig().resolved())
    told = {name: told[name].strip("`") for name in defaults}
    assert told == {name: json.dumps(value).strip('"') for name, value in defaults.items()}


def test_every_limit_is_told_with_its_default() -> None:
    told = dict(re.findall(r"^\| `EVENTD_(\w+)` \| (\S+) \|", PAGE, re.MULTILINE))
    wanted = {name.upper(): str(value) for name, value in Limits._field_defaults.items()}
    wanted |= {"MAX_TOTAL_BYTES": "none", "MAX_BODY_BYTES": "64MiB"}
    assert told == wanted


def test_every_code_has_its_status() -> None:
    told = {
        code: int(status)
        for status, codes in re.findall(r"^\| (\d{3}) \| ([^|]+) \|", PAGE, re.MULTILINE)
        for code in re.findall(r"`(\w+)`", codes)
    }
    for kind in _declared_errors():
        if kind.code == "error" or not kind.__module__.startswith(("eventd.log.topics.errors", "eventd.api.topics")):
            continue
        error = kind.__new__(kind)
        assert TOPICS_FORM.code(error) in ALL_CODE
        if kind.__module__ != "eventd.api.topics.websocket":
            assert told[TOPICS_FORM.code(error)] == TOPICS_FORM.status(error)
