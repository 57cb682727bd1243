"""What the pages of all nodes need of the answers of a node: one of another form must not break the pages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from eventd.errors import Unavailable


class _GroupAnswer(msgspec.Struct):
    group: str
    events: int
    links: dict[str, int]


class _MapNode(msgspec.Struct, rename="camel"):
    node: str
    answer: str
    age_seconds: float | None
    via: str
    console: str
    left_out: int


class _LinkReceiver(msgspec.Struct, rename="camel"):
    events_per_second: float | None
    silent_seconds: float | None
    age_seconds: float
    via: str


class _LinkSender(_LinkReceiver, rename="camel"):
    state: str
    lag_events: int
    lag_seconds: float | None


class _MapLink(msgspec.Struct, rename={"source": "from", "target": "to"}):
    source: str
    target: str
    sender: _LinkSender | None
    receiver: _LinkReceiver | None
    findings: list[str]


class _MapAnswer(msgspec.Struct, rename="camel"):
    node: str
    nodes: list[_MapNode]
    links: list[_MapLink]
    left_out: int


def check_groups(answer: Any) -> list[Mapping[str, Any]]:
    """Return the groups of an answer of `groups.status`. Raises `Unavailable` for one of another form."""
    groups = answer.get("groups") if isinstance(answer, dict) else None
    _check(groups, list[_GroupAnswer], "groups.status")
    return groups or []


def check_map(answer: Any) -> Mapping[str, Any]:
    """Return an answer of `map.show`. Raises `Unavailable` for one of another form."""
    _check(answer, _MapAnswer, "map.show")
    found: Mapping[str, Any] = answer
    return found


def of_another_form(operation: str, reason: object) -> Unavailable:
    """Return the error for an answer that is not what the operation gives."""
    return Unavailable(
        f"its answer to {operation} has another form: {reason}", hint="check the address and the program there"
    )


def _check(answer: Any, form: Any, operation: str) -> None:
    try:
        msgspec.convert(answer, form)
    except msgspec.ValidationError as error:
        raise of_another_form(operation, error) from None
