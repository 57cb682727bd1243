"""The result of the check of an event against the tree of the node that admitted it, as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def show_check(event: Mapping[str, Any]) -> str:
    """Return the result in a word; `verified (NODE)` if the leaf is in the tree of another node than its source."""
    result, node = event.get("history"), event.get("admittedBy")
    if not result:
        return "-"
    return f"verified ({node})" if result == "verified" and node and node != event["sourceNode"] else str(result)


def describe_check(event: Mapping[str, Any]) -> str:
    """Return the result with the node whose tree it is about, for a description."""
    result, node, source = str(event["history"]), event.get("admittedBy"), event["sourceNode"]
    if not node:  # a node of an earlier release
        return result
    if result == "verified":
        apart = "" if node == source else f"; not proven to come from {source}"
        return f"{result}: admitted by {node}{apart}"
    return f"{result}: admitted by {node} according to its path"
