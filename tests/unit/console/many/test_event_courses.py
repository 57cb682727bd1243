"""The courses of one event at several nodes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from eventd.console.many.all_nodes import AllNodesView
from eventd.console.many.event_courses import note_arrivals
from eventd.console.pages.visit import ShownPage, Visit
from eventd.console.rendering.formats import TimeStyle
from eventd.console.rendering.urls import Urls
from eventd.console.serving.layout import Layout, SiteFrame
from eventd.console.serving.preferences import Preferences


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


def test_the_resource_to_change_is_linked_at_the_node_that_has_it() -> None:
    event = {"path": ["a"], "type": "t", "subject": "", "sourceNode": "a", "recordedAt": None}
    one = course("b") | {"event": event, "runs": [], "deadLetters": [], "deliveries": [], "callbacks": []}
    other = {"peer": "c", "reason": "it is relayed", "resource": "to-c", "remedy": "set spec.relay", "arrived": False}
    at = Urls("/nodes/b")
    shown = one | {"notSelected": [other], "url": at.to("events", "edge", "e1"), "at": at}
    row = {
        "name": "b",
        "url": at.to(),
        "colour": "",
        "protected": False,
        "problem": "",
        "state": "",
        "courses": [shown],
    }
    visit = Visit(AllNodesView(), Urls(), "/console/find", {}, {}, TimeStyle("utc", UTC, datetime.now(UTC)))
    page = ShownPage("Event e1", "found.html", {"name": "e1", "rows": [row]})
    text = Layout(SiteFrame(Urls(), "")).whole(page, visit, "", Preferences())
    assert '<a href="/nodes/b/console/resources/EventPeer/to-c">EventPeer to-c</a>' in text
