"""Checks the parts of nodes' answers that the pages of all nodes need: an answer of another form must not break the
pages."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
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


class _FoundGroup(msgspec.Struct):
    group: str
    stored: bool


class _Envelope(msgspec.Struct, rename="camel"):
    type: str
    path: list[str]
    recorded_at: str | None
    subject: str | None = None
    source_node: str | None = None


class _EventDelivery(msgspec.Struct, rename="camel"):
    status: str
    delivered_at: str | None
    last_error: str | None


class _PeerDelivery(_EventDelivery, rename="camel"):
    peer: str


class _Mismatch(msgspec.Struct):
    peer: str
    resource: str
    reason: str
    remedy: str


class _CallbackDelivery(_EventDelivery, rename="camel"):
    callback: str


class _EventRun(msgspec.Struct, rename="camel"):
    subscription: str | None
    plugin: str
    status: str
    started_at: str | None


class _Description(msgspec.Struct, rename="camel"):
    event: _Envelope
    node: str
    deliveries: list[_PeerDelivery]
    callbacks: list[_CallbackDelivery]
    runs: list[_EventRun]
    dead_letters: list[Any]
    not_selected: list[_Mismatch] = []


class _LetterGroup(msgspec.Struct):
    kind: str
    owner: str
    group: str
    topic: str
    reason: str
    count: int
    exact: bool


def check_groups(answer: Any) -> list[Mapping[str, Any]]:
    """Return the groups of an answer of `groups.status`. Raises `Unavailable` for one of another form."""
    return _check_groups(answer, list[_GroupAnswer], "groups.status")


def check_map(answer: Any) -> Mapping[str, Any]:
    """Return an answer of `map.show`. Raises `Unavailable` for one of another form."""
    _check(answer, _MapAnswer, "map.show")
    found: Mapping[str, Any] = answer
    return found


def check_found(answer: Any) -> list[Mapping[str, Any]]:
    """Return the groups of an answer of `events.find`. Raises `Unavailable` for one of another form."""
    return _check_groups(answer, list[_FoundGroup], "events.find")


def check_description(answer: Any) -> Mapping[str, Any]:
    """Return an answer of `events.describe`. Raises `Unavailable` for one of another form."""
    _check(answer, _Description, "events.describe")
    found: Mapping[str, Any] = answer
    return found


def check_letters(answer: Any) -> list[Mapping[str, Any]]:
    """Return the groups of an answer of `dead_letters.all`. Raises `Unavailable` for one of another form."""
    return _check_groups(answer, list[_LetterGroup], "dead_letters.all")


def showable(value: Any) -> Any:
    """Return a decoded answer whose texts can be shown: JSON can escape halves of characters.

    Raises `Unavailable` for numbers that JSON does not have.
    """
    match value:
        case str():
            return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        case list():
            return [showable(each) for each in value]
        case dict():
            return {showable(name): showable(each) for name, each in value.items()}
        case float() if not isfinite(value):
            raise of_another_form("a question", f"{value} is not a number of JSON")
    return value


def _check_groups(answer: Any, form: Any, operation: str) -> list[Mapping[str, Any]]:
    groups = answer.get("groups") if isinstance(answer, dict) else None
    _check(groups, form, operation)
    return groups or []


def of_another_form(operation: str, reason: object) -> Unavailable:
    """Return the error for an answer that does not have the form of the operation's answers."""
    return Unavailable(
        f"its answer to {operation} has another form: {reason}", hint="check the address and the program there"
    )


def _check(answer: Any, form: Any, operation: str) -> None:
    try:
        msgspec.convert(answer, form)
    except msgspec.ValidationError as error:
        raise of_another_form(operation, error) from None
