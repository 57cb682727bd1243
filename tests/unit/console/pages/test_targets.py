"""The page that a problem leads to."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from eventd.console.pages.targets import target_of
from eventd.console.pages.visit import Visit


def visit(*operations: str, sees_all: bool = True) -> Visit:
    view = SimpleNamespace(may=lambda operation: operation in operations, sees=lambda name: sees_all)
    return cast(Visit, SimpleNamespace(view=view))


@pytest.mark.parametrize(
    ("check", "operation", "target"),
    [
        ({"group": "edge", "peer": "b"}, "links.status", ("links", "edge", "b")),
        (
            {"group": "edge", "resource": "EventSubscription/claims"},
            "subscriptions.list",
            ("subscriptions", "edge", "claims"),
        ),
        ({"group": "", "resource": "EventCallback/hook"}, "callbacks.describe", ("callbacks", "hook")),
        (
            {"name": "DynamicConfigPart/Plugin/p", "group": "edge", "resource": "Plugin"},
            "dynamic.describe",
            ("parts", "Plugin/p"),
        ),
    ],
)
def test_a_problem_leads_to_the_page_of_what_it_is_about_unless_the_visitor_may_not_open_it(
    check: dict[str, Any], operation: str, target: tuple[str, ...]
) -> None:
    assert target_of(visit(operation), check) == target
    assert target_of(visit("groups.status"), check) == ()


@pytest.mark.parametrize("operation", ["dynamic.describe", "callbacks.describe"])
def test_a_key_of_some_names_is_led_to_no_page_that_it_may_not_open(operation: str) -> None:
    for check in ({"name": "DynamicConfigPart/Plugin/p"}, {"resource": "EventCallback/hook"}):
        assert target_of(visit(operation, sees_all=False), check) == ()


def test_a_problem_of_the_whole_node_leads_nowhere() -> None:
    assert target_of(visit("links.status"), {"name": "node readiness", "group": "edge"}) == ()
