"""The page of all nodes shows a bounded part of what a node reports."""

from __future__ import annotations

from typing import Any

from eventd.console.many.all_nodes import AllNodes, AllNodesView
from eventd.console.many.remote_node import NodeOptions, NodeSummary, RemoteNode
from eventd.console.pages.visit import Visit
from eventd.console.rendering.urls import Urls
from eventd.console.serving.layout import Layout, SiteFrame
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


def mapped(*links: tuple[str, str, list[str]]) -> dict[str, Any]:
    """Return an answer of `map.show` of the node `one`."""
    nodes = [{"node": name, "answer": "answered", "ageSeconds": 1.0} for name in ("one", "two")]
    ends = {"sender": None, "receiver": None}
    shown = [{"from": source, "to": target, **ends, "findings": found} for source, target, found in links]
    return {"node": "one", "nodes": nodes, "links": shown, "leftOut": 0}


async def test_links_whose_ends_disagree_are_counted_for_groups_whose_map_is_not_shown() -> None:
    clock = SystemClock()
    node = RemoteNode(NodeOptions("one", "http://one", group="core"), None, clock, Supervisor(clock).spawn)
    groups: list[dict[str, Any]] = [{"group": name, "events": 1, "links": {}} for name in ("core", "edge", "far")]
    core, edge = mapped(("one", "two", [])), mapped(("one", "two", []), ("two", "one", ["two has no link to one"]))
    node.summary = NodeSummary(clock.monotonic(), tuple(groups), {"core": core})
    node.maps = {"core": core, "edge": edge}
    pages = AllNodes([node], {"one": Urls("/at/one")}, Supervisor(clock).spawn)
    page = await pages.show_nodes(Visit(AllNodesView(), Urls(), "/", {}, {}, Preferences().style(clock.now())))
    (row,) = page.data["nodes"]
    (item,) = row["attention"]
    assert (item["words"], item["url"].partition("?")[2]) == (
        "1 link of edge whose ends disagree",
        "group=edge#map-links",
    )
    assert row["unread"] == 1, "the group whose map could not be read"


async def test_a_context_that_cannot_be_used_is_not_called_a_silent_node_and_is_to_be_corrected() -> None:
    clock = SystemClock()
    options = NodeOptions("lame", "http://x", problem="key file: No such file")
    pages = AllNodes(
        [RemoteNode(options, None, clock, Supervisor(clock).spawn)], {"lame": Urls()}, Supervisor(clock).spawn
    )
    visit = Visit(AllNodesView(), Urls(), "/", {"name": "lame"}, {}, Preferences().style(clock.now()))
    (row,) = (await pages.show_nodes(visit)).data["nodes"]
    assert (row["state"], row["problem"]) == ("unusable", "key file: No such file")
    page = await pages.show_node(visit)
    text = Layout(SiteFrame(Urls(), "", ())).whole(page, visit, "nodes", Preferences())
    remedy = text.partition('<h2 id="todo">')[2]
    assert "routerctl context add lame" in remedy
    assert "firewall" not in remedy
