"""Notes on events that peers have not received when retention may remove them, or has."""

from __future__ import annotations

from typing import Any, cast

import pytest

from eventd.cli.federation.undelivered import (
    WaitingEvents,
    note_what_may_be_lost,
    note_what_was_lost,
    read_waiting,
)
from eventd.cli.gateway.session import Session
from eventd.errors import Forbidden

WAITING = {"cloud": 20, "hub": 0, "site-b": 1_500}
LINKS = {
    "outbound": [{"peer": peer, "lagEvents": events, "position": 4, "head": 9} for peer, events in WAITING.items()]
}


class _Node:
    """Answers as a node does; `undelivered` is that of the stored group. It refuses the operations in `refuses`."""

    def __init__(self, undelivered: str = "keep", refuses: tuple[str, ...] = ()) -> None:
        self._answers = {
            "links.status": LINKS,
            "resources.get": {"spec": {"retention": {"undelivered": undelivered}}},
        }
        self._refuses = refuses

    async def call(self, operation: str, **_: Any) -> Any:
        if operation in self._refuses:
            raise Forbidden("the key may not")
        return self._answers[operation]


def session(undelivered: str = "keep", refuses: tuple[str, ...] = ()) -> Session:
    return cast(Session, _Node(undelivered, refuses))


@pytest.mark.parametrize(
    ("lowers", "undelivered", "is_noted"),
    [
        (["retention.undelivered"], "drop", True),
        (["retention.maxEvents", "retention.undelivered"], "keep", True),
        (["retention.maxAge"], "drop", True),
        (["retention.maxEvents"], "keep", False),
        ([], "drop", False),
    ],
)
async def test_lowered_retention_of_a_group_that_drops_is_noted_with_what_waits(
    lowers: list[str], undelivered: str, is_noted: bool
) -> None:
    changes = [
        {"kind": "EventGroup", "name": "edge", **({"lowers": lowers} if lowers else {})},
        {"kind": "Topic", "name": "orders", "lowers": ["capBytes"]},
    ]
    note = (
        "note: retention.undelivered of group edge is drop, so retention removes events over its limits also if a peer"
        " has not received them; at most this many wait: 20 for cloud, 1,500 for site-b"
    )
    found = await note_what_may_be_lost(session(undelivered), changes, verb="removes")
    assert found == ([note] if is_noted else [])


async def test_a_key_that_must_not_see_links_or_resources_gets_no_note() -> None:
    change = {"kind": "EventGroup", "name": "edge", "lowers": ["retention.maxAge"]}
    for refused in ("links.status", "resources.get"):
        assert await note_what_may_be_lost(session("drop", (refused,)), [change], verb="removes") == []
    assert await read_waiting(session(refuses=("links.status",)), "edge") == {}


async def test_what_was_lost_is_what_waits_no_more_at_peers_that_received_nothing() -> None:
    before = await read_waiting(session(), "edge")
    assert before["site-b"] == WaitingEvents(1_500, 4, 9)
    assert note_what_was_lost(before, before) == []
    received = WaitingEvents(3, position=7, head=9)
    emitted = WaitingEvents(1_000, position=4, head=12)
    after = {"cloud": WaitingEvents(5, 4, 9), "hub": before["hub"], "site-b": emitted}
    lost = "note: peers that had not received removed events do not get them any more: "
    assert note_what_was_lost(before, after) == [f"{lost}15 events for cloud, about 500 events for site-b"]
    assert note_what_was_lost(before, after | {"cloud": received}) == [f"{lost}about 500 events for site-b"]


def test_a_note_names_five_peers() -> None:
    before = {f"p{number}": WaitingEvents(1, 0, 9) for number in range(7)}
    after = dict.fromkeys(before, WaitingEvents(0, 0, 9))
    (found,) = note_what_was_lost(before, after)
    assert found.endswith("1 event for p4, and 2 more peers")
