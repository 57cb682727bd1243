"""The page that a problem leads to."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from eventd.console.pages.targets import target_of
from eventd.console.pages.visit import Visit


def visit(*operations: str) -> Visit:
    return cast(Visit, SimpleNamespace(view=SimpleNamespace(may=lambda operation: operation in operations)))


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


def test_a_problem_of_the_whole_node_leads_nowhere() -> None:
    assert target_of(visit("links.status"), {"name": "node readiness", "group": "edge"}) == ()
