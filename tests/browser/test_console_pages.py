"""Each page of the console, with nothing to show, with everything, and where everything fails: it fits all windows, has
no fault that axe finds, works by keyboard alone, and is whole without JavaScript."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from eventd.console.pages.table import find_page
from tests.support.browser import WIDTHS, Visitor, Visitors
from tests.support.console import ConsoleNode, find_pages, sign_in
from tests.support.console_worlds import HOSTILE
from tests.support.page_checks import find_small, find_violations, find_wide, walk_by_tab, with_axe

pytestmark = pytest.mark.browser
LARGEST_HTML = 2 * 25_000
Finder = Callable[[Visitor, ConsoleNode], list[str]]


@pytest.fixture(scope="module")
def pages_of() -> Finder:
    """Finds the pages of a node by following its links, once for all tests of this file."""
    found: dict[str, list[str]] = {}

    def find(visitor: Visitor, node: ConsoleNode) -> list[str]:
        if node.name not in found:
            found[node.name] = find_pages(visitor, node)
        return found[node.name]

    return find


def test_each_page_fits_all_windows_and_breaks_no_rule_of_wcag_in_light_or_dark_colours(
    visitors: Visitors, world: ConsoleNode, pages_of: Finder
) -> None:
    visitor = sign_in(with_axe(visitors(bypass_csp=True)), world)
    found = {}
    for path in pages_of(visitor, world):
        visitor.page.emulate_media(color_scheme="light")
        visitor.page.goto(world.url(path))
        found[path, "light"] = find_violations(visitor.page)
        visitor.page.emulate_media(color_scheme="dark")
        found[path, "dark"] = find_violations(visitor.page, only=["color-contrast"])
        for width in WIDTHS:
            visitor.page.set_viewport_size({"width": width, "height": 900})
            found[path, width] = find_wide(visitor.page)
        found[path, "targets"] = find_small(visitor.page)
    assert {place: faults for place, faults in found.items() if faults} == {}


def test_the_state_of_updates_is_beside_the_name_in_a_narrow_window(visitors: Visitors, full: ConsoleNode) -> None:
    visitor = sign_in(visitors(width=390), full)
    visitor.page.locator("#live.on").wait_for()
    middle = "e => { const box = e.getBoundingClientRect(); return box.top + box.height / 2; }"
    for name in ("site-a", "a-node-of-a-very-long-name.in.a.domain.example:8780"):
        visitor.page.locator(".bar .node").evaluate("(node, name) => { node.textContent = name; }", name)
        for state in ("live", "not live since 12:00:00"):
            visitor.page.locator("#live").evaluate("(live, state) => { live.textContent = state; }", state)
            rows = [visitor.page.locator(f".bar {part}").evaluate(middle) for part in (".brand", ".node", "#live")]
            assert max(rows) - min(rows) < 4, (name, state)


def test_the_tab_key_reaches_all_of_each_page_in_sight_and_marked(
    visitor: Visitor, full: ConsoleNode, pages_of: Finder
) -> None:
    sign_in(visitor, full)
    found = {}
    for path in pages_of(visitor, full):
        visitor.page.goto(full.url(path))
        walk = walk_by_tab(visitor.page)
        assert walk.reached[0].startswith('<a class="skip"'), path
        found[path] = {name: faults for name, faults in walk._asdict().items() if faults and name != "reached"}
    assert {path: faults for path, faults in found.items() if faults} == {}


def test_each_page_is_whole_without_javascript(visitors: Visitors, full: ConsoleNode, pages_of: Finder) -> None:
    with_scripts, without = sign_in(visitors(), full), sign_in(visitors(javascript=False), full)
    for path in pages_of(without, full):
        texts = []
        for visitor in (with_scripts, without):
            answer = visitor.page.goto(full.url(path))
            assert answer is not None
            assert answer.status == 200
            assert len(answer.body()) <= LARGEST_HTML, path
            texts.append(visitor.page.locator("main h1, main h2, main thead").all_inner_texts())
        assert texts[0] == texts[1], path
        if without.page.locator("#live[data-live=yes]").count():
            assert without.page.locator("#live").get_by_role("link", name="Reload").is_visible(), path


def test_nothing_that_a_name_or_a_payload_says_is_done(visitors: Visitors, broken: ConsoleNode) -> None:
    visitor = sign_in(visitors(), broken)
    visitor.page.on("dialog", lambda dialog: visitor.reports.append(f"a page opened a dialog: {dialog.message}"))
    shown = ""
    for path in find_pages(visitor, broken, of_each=2):
        visitor.page.goto(broken.url(path))
        strange = visitor.page.locator("main script, main img, main [onerror], main [onfocus], main [href^=javascript]")
        assert strange.count() == 0, path
        text = visitor.page.locator("main").inner_text()
        assert "\u202e" not in text, path
        assert str(7654321 * 3) not in text, path
        shown += text
    if find_page("/events"):
        assert HOSTILE["markup"] in shown
