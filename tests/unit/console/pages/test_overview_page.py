"""The overview of a large group stays small."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

from eventd.console.pages.overview import show_overview
from eventd.console.pages.visit import Visit
from eventd.console.rendering.formats import TimeStyle
from eventd.console.rendering.urls import Urls
from eventd.console.serving.layout import Layout, SiteFrame
from eventd.console.serving.preferences import Preferences

NODES = 300
LARGEST_HTML = 160_000
NAMES = [f"site-{at:03}" for at in range(NODES)]
END = {"eventsPerSecond": 1.0, "silentSeconds": 1.0, "ageSeconds": 1.0, "via": ""}


class LargeGroup:
    """A view of a group in which a hub has links with 300 nodes."""

    name = "hub"

    def may(self, operation: str, group: str = "") -> bool:
        return operation in ("map.show", "groups.status")

    def sees(self, name: str) -> bool:
        return True

    def may_ask(self, method: str, *path: str) -> bool:
        return False

    async def ask(self, method: str, *path: str, body: Any = None, **query: Any) -> Any:
        raise NotImplementedError

    async def call(self, operation: str, **params: Any) -> Any:
        if operation == "groups.status":
            group = {"group": "edge", "nodeName": "hub", "events": 1, "bytes": 1, "peers": NODES, "links": {}}
            return {"groups": [group | {"listen": ""}]}
        if operation == "rates.show":
            return {"series": []}
        node = {"ageSeconds": 1.0, "via": "", "console": "", "leftOut": 0}
        nodes = [node | {"node": name, "answer": "answered"} for name in NAMES]
        nodes[-1]["answer"] = "unreachable"
        sender = END | {"state": "running", "lagEvents": 0, "lagSeconds": 0.0}
        links = [
            {"from": one, "to": other, "sender": sender, "receiver": END, "findings": []}
            for name in NAMES
            for one, other in (("hub", name), (name, "hub"))
        ]
        own = node | {"node": "hub", "answer": "self"}
        return {"group": "edge", "node": "hub", "nodes": [own, *nodes], "links": links, "leftOut": 0}


async def test_a_large_group_has_100_rows_of_each_table_and_says_how_many_more_there_are() -> None:
    style = TimeStyle("utc", UTC, datetime.now(UTC))
    visit = Visit(LargeGroup(), Urls(), "/console/", {}, {}, style)
    text = Layout(SiteFrame(Urls(), "")).whole(await show_overview(visit), visit, "overview", Preferences())
    assert len(text) < LARGEST_HTML
    assert [len(re.findall(f'<tr id="{kind}-', text)) for kind in "ln"] == [100, 100]
    assert "500 more links" in text
    assert "201 more nodes" in text
    assert f'<tr id="n-{NAMES[-1]}"' in text, "silent nodes come first"
    legend = text.partition('<ul class="legend"')[2].partition("</ul>")[0]
    assert re.search('class="line odd .*ends disagree', legend)


class BrokenLink(LargeGroup):
    """A view of a node whose only link is down, of which doctor has not heard yet."""

    def may(self, operation: str, group: str = "") -> bool:
        return operation in ("links.status", "doctor.examine")

    async def call(self, operation: str, **params: Any) -> Any:
        if operation == "doctor.examine":
            return {"checks": []}
        if operation == "links.status":
            state = {"state": "backing-off", "reason": "unreachable", "since": None, "lastError": "cannot connect"}
            return {"outbound": [state | {"group": "edge", "peer": "b", "lagEvents": 3}], "inbound": []}
        found = await super().call(operation, **params)
        return {"groups": [found["groups"][0] | {"links": {"backing-off": 1}}]} if "groups" in found else found


async def test_a_link_that_is_down_now_needs_attention_before_doctor_has_found_it() -> None:
    style = TimeStyle("relative", UTC, datetime.now(UTC))
    visit = Visit(BrokenLink(), Urls(), "/console/", {}, {}, style)
    text = Layout(SiteFrame(Urls(), "")).whole(await show_overview(visit), visit, "overview", Preferences())
    problems = text.partition('<ul class="problems">')[2].partition("</ul>")[0]
    assert 'href="/console/links/edge/b"' in problems
    assert "cannot connect; 3 events waiting" in problems
    assert "Nothing:" not in text
    assert "Last run of doctor" in text


async def test_a_group_that_does_not_exist_is_named_beside_the_map_of_another() -> None:
    style = TimeStyle("utc", UTC, datetime.now(UTC))
    visit = Visit(LargeGroup(), Urls(), "/console/", {}, {"group": "no-such"}, style)
    text = Layout(SiteFrame(Urls(), "")).whole(await show_overview(visit), visit, "overview", Preferences())
    assert "No group no-such that your key may access: this is the map of edge." in text


class DeadLetters(BrokenLink):
    """A view of a node without groups, with dead letters."""

    def may(self, operation: str, group: str = "") -> bool:
        return operation in ("dead_letters.all", "doctor.examine")

    async def call(self, operation: str, **params: Any) -> Any:
        if operation == "dead_letters.all":
            return {"groups": [{"count": 13, "exact": True}, {"count": 2, "exact": False}], "groupsComplete": True}
        return {"groups": []} if operation == "groups.status" else await super().call(operation, **params)


async def test_dead_letters_are_counted_with_the_way_to_them_and_a_node_without_links_has_none_that_run() -> None:
    visit = Visit(DeadLetters(), Urls(), "/console/", {}, {}, TimeStyle("utc", UTC, datetime.now(UTC)))
    text = Layout(SiteFrame(Urls(), "")).whole(await show_overview(visit), visit, "overview", Preferences())
    assert '<a class="hot" href="/console/dead-letters">at least 15</a>' in text
    assert "Nothing: there is no group yet, and each check passes." in text
