"""The console of many nodes in a browser: its own pages keep the rules of all pages, and show a node that dies."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.support.browser import Visitor
from tests.support.console import KEYS, ConsoleNode
from tests.support.declared import group, peer
from tests.support.page_checks import MAIN, find_faults, walk_by_tab, with_axe
from tests.support.ports import free_port
from tests.support.processes import CONTROL, Process, Processes
from tests.support.waiting import wait_for

pytestmark = pytest.mark.browser
SLACK = 2
"""What is promised in seconds may take this many times as long on a machine that does other work, too."""


@pytest.fixture
def nodes(processes: Processes) -> tuple[ConsoleNode, ConsoleNode]:
    """Two nodes that are peers, each of which returns at the same address."""
    one, two = (ConsoleNode(processes, name, EVENTD_API_LISTEN=f"127.0.0.1:{free_port()}") for name in ("one", "two"))
    two.secret = one.secret
    for node, other in ((one, two), (two, one)):
        node.apply(group(node.name, port=node.port, secret=node.secret), peer(other.name, other.port))
    return one, two


@pytest.fixture
def console(processes: Processes, nodes: tuple[ConsoleNode, ConsoleNode], tmp_path: Path) -> Process:
    """`routerctl console` for both nodes, and for one at which nothing listens."""
    key = tmp_path / "key"
    key.write_text(KEYS["admin"])
    file = tmp_path / "config" / "routerctl" / "contexts.yaml"
    file.parent.mkdir(parents=True)
    file.touch(0o600)
    contexts = {
        node.name: {"server": node.process.url, "keyFile": str(key), "colour": "blue", "protected": node is nodes[0]}
        for node in nodes
    }
    contexts["gone"] = {"server": "http://127.0.0.1:1", "colour": "red"}
    file.write_text(json.dumps({"contexts": contexts}))  # JSON is YAML
    env = {"XDG_CONFIG_HOME": str(tmp_path / "config")}
    return processes.start("console", [*CONTROL, "console", "--all"], env=env)


def enter(visitor: Visitor, console: Process) -> str:
    """Open the link; return the beginning of all addresses."""
    wait_for(lambda: "works once" in console.log(), "the link to be printed")
    link = re.search(r"^(http://[^/]+)/\S+$", console.log(), re.M)
    assert link is not None
    visitor.page.goto(link[0])
    visitor.page.locator("#live.on").wait_for()
    return link[1]


def test_the_pages_of_all_nodes_fit_all_windows_and_break_no_rule_of_wcag(
    visitor: Visitor, console: Process, nodes: tuple[ConsoleNode, ConsoleNode]
) -> None:
    with_axe(visitor)
    nodes[0].emit("e1")
    base = enter(visitor, console)
    visitor.page.locator("#map").wait_for()
    faults = []
    for path, part in {
        "/console/": "",
        "/console/events": MAIN,
        "/console/events?id=e1": MAIN,
        "/console/dead-letters": MAIN,
        "/at/one/console/links": "",
    }.items():
        visitor.page.goto(base + path)
        visitor.page.locator(".switcher summary").click()
        faults += [f"{path}: {one}" for one in find_faults(visitor.page, part)]
        visitor.page.goto(base + path)  # Tab begins where the page was clicked last
        walk = walk_by_tab(visitor.page, part)
        faults += [f"{path}, by keyboard: {one}" for one in [*walk.missed, *walk.hidden, *walk.unmarked]]
    assert faults == []


def test_a_node_that_is_killed_is_shown_within_two_seconds_and_heals_without_a_reload(
    visitor: Visitor, console: Process, nodes: tuple[ConsoleNode, ConsoleNode]
) -> None:
    enter(visitor, console)
    page = visitor.page
    page.locator("#node-two .s-ok").wait_for()
    page.locator("#m-two").wait_for()
    page.evaluate("window.opened = true")
    nodes[1].kill9()
    page.locator("#node-two .s-silent").wait_for(timeout=2000 * SLACK)
    page.locator("#m-two.r-bad").wait_for(timeout=2000 * SLACK)
    assert page.locator("#node-one .s-ok").count() == 1
    nodes[1].start()
    page.locator("#node-two .s-ok").wait_for()
    assert page.evaluate("window.opened")


def test_the_switcher_leads_to_the_pages_of_a_node_which_are_live(
    visitor: Visitor, console: Process, nodes: tuple[ConsoleNode, ConsoleNode]
) -> None:
    enter(visitor, console)
    page = visitor.page
    page.locator(".switcher summary").press("Enter")
    page.get_by_role("link", name="one protected").first.click()
    page.locator("#live.on").wait_for()
    nodes[0].emit("e1", "e2")
    page.get_by_role("row", name=re.compile(r"^edge one 2 ")).wait_for()


def test_a_form_of_a_node_works_in_the_console_of_many(
    visitor: Visitor, console: Process, nodes: tuple[ConsoleNode, ConsoleNode]
) -> None:
    beginning = enter(visitor, console)
    pause_and_resume(visitor, nodes[1], f"{beginning}/at/two/console/links/edge/one")


def test_a_form_works_at_a_node_without_keys(visitor: Visitor, processes: Processes) -> None:
    node = ConsoleNode(processes, "open", keys=())
    node.apply(group("open", port=node.port, secret=node.secret), peer("one", free_port()))
    pause_and_resume(visitor, node, node.url("/links/edge/one"))


def pause_and_resume(visitor: Visitor, node: ConsoleNode, page: str) -> None:
    """Pause the link of a page and resume it. The browser writes the origin of these forms as null."""
    visitor.page.goto(page)
    visitor.page.get_by_role("link", name="Pause").click()
    visitor.page.get_by_role("button", name="Pause").click()
    visitor.page.get_by_role("status").get_by_text("The link is paused.").wait_for()
    assert node.link("one")["state"] == "paused"
    visitor.page.get_by_role("button", name="Resume").click()
    visitor.page.get_by_role("status").get_by_text("The link resumes at once.").wait_for()
