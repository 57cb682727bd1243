"""Pages of the console that stay open: they follow the node, through its death too, and never under the visitor's
hands."""

from __future__ import annotations

import re
import time

import pytest

from tests.support.browser import Visitor, Visitors
from tests.support.console import ConsoleNode, sign_in, wait_for_keys
from tests.support.declared import group
from tests.support.ports import free_port
from tests.support.processes import Processes

pytestmark = pytest.mark.browser
SLACK = 2
"""What is promised in seconds may take this many times as long on a machine that does other work, too."""
GONE = ("ERR_CONNECTION_REFUSED", "ERR_EMPTY_RESPONSE", "ERR_INCOMPLETE_CHUNKED", "ERR_CONNECTION_RESET")


@pytest.fixture
def node(processes: Processes) -> ConsoleNode:
    """A node of this test alone, which returns at the same address when it is started again."""
    made = ConsoleNode(processes, "mortal", EVENTD_API_LISTEN=f"127.0.0.1:{free_port()}")
    made.apply(group("mortal"))
    return made


def follow(visitor: Visitor, node: ConsoleNode, path: str = "/", **who: str) -> Visitor:
    """Sign in, open a page, and wait until it is live."""
    sign_in(visitor, node, path=path, **who)
    visitor.page.locator("#live.on").wait_for()
    return visitor


def show_events(visitor: Visitor, count: int, *, seconds: float) -> None:
    """Wait until the overview shows this number of events."""
    row = visitor.page.get_by_role("row", name=re.compile(rf"^edge mortal {count:,} "))
    row.wait_for(timeout=seconds * SLACK * 1000)


def test_a_change_is_visible_within_two_seconds_without_a_reload(visitor: Visitor, node: ConsoleNode) -> None:
    follow(visitor, node)
    visitor.page.evaluate("window.opened = true")
    node.emit("e1", "e2", "e3")
    show_events(visitor, 3, seconds=2)
    assert visitor.page.evaluate("window.opened")


def test_a_page_says_that_its_node_died_and_shows_right_figures_within_five_seconds_of_its_return(
    visitor: Visitor, node: ConsoleNode
) -> None:
    visitor.expect_reports(*GONE)
    node.emit("e1")
    follow(visitor, node)
    node.kill9()
    visitor.page.get_by_text(re.compile("not live since")).wait_for()
    visitor.page.locator("body.outdated").wait_for()
    node.start()
    node.emit("e2", "e3", "e4")
    show_events(visitor, 4, seconds=5)
    visitor.page.locator("body:not(.outdated) #live.on").wait_for()


def test_eight_tabs_of_one_browser_all_open_and_three_of_them_stream(visitor: Visitor, node: ConsoleNode) -> None:
    follow(visitor, node)
    tabs = [visitor.page, *[visitor.context.new_page() for _ in range(7)]]
    tabs[-1].clock.install()
    for tab in tabs[1:]:
        tab.goto(node.url())
        tab.locator("#live.on").wait_for()
    assert sorted(tab.locator("#live").inner_text() for tab in tabs) == ["every 10 s"] * 5 + ["live"] * 3
    node.emit("e1")
    tabs[-1].clock.fast_forward("00:11")
    for tab in (tabs[0], tabs[-1]):
        tab.get_by_role("row", name=re.compile("^edge mortal 1 ")).wait_for()


def test_a_hidden_tab_asks_for_nothing_and_is_right_when_it_is_shown_again(
    visitors: Visitors, node: ConsoleNode
) -> None:
    hidden, watching = follow(visitors(), node), follow(visitors(), node)
    hide(hidden, True)
    asked = len(hidden.requested)
    node.emit("e1")
    show_events(watching, 1, seconds=2)
    assert len(hidden.requested) == asked
    hide(hidden, False)
    show_events(hidden, 1, seconds=2)


def hide(visitor: Visitor, hidden: bool) -> None:
    """Let the page believe that its tab is hidden: all tabs of a headless browser are visible."""
    visitor.page.evaluate(
        """(hidden) => { Object.defineProperty(document, "hidden", { configurable: true, get: () => hidden });
        Object.defineProperty(document, "visibilityState", { configurable: true, get: () => hidden ? "hidden"
          : "visible" }); document.dispatchEvent(new Event("visibilitychange")); }""",
        hidden,
    )


def test_a_paused_page_asks_for_nothing_until_it_is_resumed(visitors: Visitors, node: ConsoleNode) -> None:
    paused, watching = follow(visitors(), node), follow(visitors(), node)
    wait_for_keys(paused.page)
    paused.page.keyboard.press("p")
    paused.page.get_by_text(re.compile("^paused")).wait_for()
    asked = len(paused.requested)
    node.emit("e1")
    show_events(watching, 1, seconds=2)
    hide(paused, True)
    hide(paused, False)
    node.emit("e2")
    show_events(watching, 2, seconds=2)
    assert len(paused.requested) == asked
    paused.page.keyboard.press("p")
    show_events(paused, 2, seconds=2)


def test_a_change_waits_while_text_is_selected_and_a_bar_says_so(visitors: Visitors, node: ConsoleNode) -> None:
    reading, watching = follow(visitors(), node), follow(visitors(), node)
    reading.page.evaluate("getSelection().selectAllChildren(document.querySelector('#main h1'))")
    node.emit("e1")
    show_events(watching, 1, seconds=2)
    bar = reading.page.get_by_role("button", name=re.compile("changes? waits?"))
    bar.wait_for()
    assert reading.page.get_by_role("row", name=re.compile("^edge mortal 0 ")).count() == 1
    bar.click()
    show_events(reading, 1, seconds=2)


def test_the_page_of_a_revoked_key_ends_within_a_second(visitor: Visitor, node: ConsoleNode) -> None:
    visitor.expect_reports("ERR_INCOMPLETE_CHUNKED", "status of 401")
    made = node.ask("POST", "/keys", {"name": "short-lived", "scopes": ["read"]})
    follow(visitor, node, key=made["key"])
    began = time.monotonic()
    node.ask("POST", "/keys/short-lived/revoke", {})
    visitor.page.get_by_label("API key").wait_for()
    assert time.monotonic() - began <= 1.5 * SLACK
    assert visitor.page.get_by_role("navigation", name="Pages").count() == 0


def test_a_page_on_which_nothing_changes_stays_live_while_its_node_gives_signs_of_life(
    visitor: Visitor, node: ConsoleNode
) -> None:
    visitor.context.add_init_script(
        """window.sources = [];
        window.EventSource = class extends EventSource {
          constructor(...all) { super(...all); sources.push(this); } };"""
    )
    sign_in(visitor, node)
    visitor.page.clock.install()
    visitor.page.goto(node.url("/settings"))
    visitor.page.locator("#live.on").wait_for()
    for _ in range(3):
        visitor.page.clock.fast_forward(30_000)
        visitor.page.evaluate("sources[0].dispatchEvent(new MessageEvent('alive', { data: '' }))")
    assert visitor.page.evaluate("sources.length") == 1
    with visitor.page.expect_request(re.compile("/console/stream")):
        visitor.page.clock.fast_forward(36_000)
    assert visitor.page.evaluate("sources[0].readyState === EventSource.CLOSED")


def test_a_page_for_which_the_node_has_no_stream_left_asks_every_ten_seconds(
    visitors: Visitors, processes: Processes
) -> None:
    node = ConsoleNode(processes, "crowded", EVENTD_MAX_CONSOLE_STREAMS="1")
    node.apply(group("mortal"))
    follow(visitors(), node)
    late = sign_in(visitors(), node)
    late.expect_reports("status of 429", "status of 503")
    late.page.get_by_text("every 10 s", exact=True).wait_for()
    late.page.clock.install()
    late.page.goto(node.url())
    late.page.get_by_text("every 10 s", exact=True).wait_for()
    node.emit("e1")
    late.page.clock.fast_forward(11_000)
    late.page.get_by_role("row", name=re.compile("^edge mortal 1 ")).wait_for()
    late.page.route(node.url(), lambda route: route.fulfill(status=503, body="<main id='main'>broken</main>"))
    late.page.clock.fast_forward(11_000)
    late.page.get_by_text(re.compile("not live since")).wait_for()
    assert late.page.get_by_text("broken").count() == 0
