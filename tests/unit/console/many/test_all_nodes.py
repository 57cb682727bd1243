"""The page of all nodes shows a bounded part of what a node reports."""

from __future__ import annotations

from typing import Any

from eventd.console.many.all_nodes import AllNodes, AllNodesView
from eventd.console.many.remote_node import NodeOptions, NodeSummary, RemoteNode
from eventd.console.pages.visit import Visit
from eventd.console.rendering.urls import Urls
from eventd.console.serving.preferences import Preferences
from eventd.runtime.clock import SystemClock
from eventd.runtime.supervisor import Supervisor


async def test_a_node_with_very_many_groups_does_not_fill_the_page() -> None:
    clock = SystemClock()
    node = RemoteNode(NodeOptions("one", "http://one"), None, clock, Supervisor(clock).spawn)
    groups: list[dict[str, Any]] = [{"group": f"g{number}", "events": 1, "links": {}} for number in range(10_000)]
    node.summary = NodeSummary(clock.monotonic(), tuple(groups))
    pages = AllNodes([node], {"one": Urls("/at/one")}, Supervisor(clock).spawn)
    page = await pages.show_nodes(Visit(AllNodesView(), Urls(), "/", {}, {}, Preferences().style(clock.now())))
    (row,) = page.data["nodes"]
    assert (len(row["groups"]), row["more"], row["events"]) == (20, 9_980, 10_000)
    assert len(page.data["groups"]) == 200
