"""Finds the page of the console on which a problem that doctor reports can be fixed; returns its path in parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from eventd.console.pages.visit import Visit

Target = tuple[str, ...]
NOWHERE: Final[Target] = ()
_PART: Final = "DynamicConfigPart/"
"""The prefix of the names of checks that are about a part."""
_OF_ALL_GROUPS: Final = ("dynamic.describe", "callbacks.describe")
"""Operations that a key may not use if it is limited to some names."""


def target_of(visit: Visit, check: Mapping[str, Any]) -> Target:
    """Return the path of the page for a check, or for an action of the plan.

    Empty if there is none, or if the visitor may not open it.
    """
    operation, target = _find(check)
    if operation in _OF_ALL_GROUPS and not visit.view.sees(""):
        return NOWHERE
    return target if target and visit.view.may(operation) else NOWHERE


def _find(check: Mapping[str, Any]) -> tuple[str, Target]:
    """Return the operation that a page needs, and its path."""
    group, peer = check.get("group", ""), check.get("peer", "")
    kind, _, name = check.get("resource", "").partition("/")
    title = check.get("name", "")
    if title.startswith(_PART):
        return "dynamic.describe", ("parts", title.removeprefix(_PART))
    if peer and group:
        return "links.status", ("links", group, peer)
    if kind == "EventSubscription" and group and name:
        return "subscriptions.list", ("subscriptions", group, name)
    if kind == "EventCallback" and name:
        return "callbacks.describe", ("callbacks", name)
    return "", NOWHERE
