"""The courses of one event at several nodes."""

from __future__ import annotations

from typing import Any

from eventd.console.many.event_courses import note_arrivals


def course(node: str, *others: str, group: str = "edge") -> dict[str, Any]:
    return {
        "group": group,
        "stored": True,
        "node": node,
        "notSelected": [{"peer": peer, "remedy": "relay"} for peer in others],
    }


def test_a_link_that_does_not_select_an_event_has_no_remedy_if_the_peer_has_the_event() -> None:
    evicted = {"group": "edge", "stored": False}
    rows = [
        {"courses": [course("a", "b", "c", "d")]},
        {"courses": [course("b")]},
        {"courses": [course("c", group="other")]},
        {"courses": [evicted]},
        {"courses": []},
    ]
    note_arrivals(rows)
    found = rows[0]["courses"][0]["notSelected"]
    assert [(one["peer"], one["arrived"], one["remedy"]) for one in found] == [
        ("b", True, ""),
        ("c", False, "relay"),
        ("d", False, "relay"),
    ]
