"""Each page of the console, with nothing to show, with everything, and where everything fails: it fits all windows, has
no fault that axe finds, works by keyboard alone, and is whole without JavaScript."""

from __future__ import annotations

import pytest

from eventd.console.pages.table import find_page
from tests.support.browser import Visitor, Visitors
from tests.support.console import ConsoleNode, find_pages, sign_in
from tests.support.console_worlds import HOSTILE
from tests.support.page_checks import MAIN, find_faults, find_wide, read_parts, walk_by_tab, with_axe

pytestmark = pytest.mark.browser
LARGEST_HTML = 2 * 25_000
SAME_EVERYWHERE = "/settings"
"""The largest page, which is the same on all nodes: that of the node with everything is looked at."""


def test_pages_with_nothing_to_show_fit_all_windows_and_break_no_rule_of_wcag_in_light_or_dark_colours(
    visitor: Visitor, empty: ConsoleNode
) -> None:
    sign_in(with_axe(visitor), empty)
    found = {}
    for path in find_pages(visitor, empty):
        if path == SAME_EVERYWHERE:
            continue
        visitor.page.goto(empty.url(path))
        found[path] = find_faults(visitor.page, MAIN)
    assert _without_good(found) == {}


def test_pages_with_everything_do_so_too_work_by_keyboard_and_are_whole_without_javascript(
    visitors: Visitors, full: ConsoleNode
) -> None:
    visitor, plain = sign_in(with_axe(visitors()), full), sign_in(visitors(javascript=False), full)
    found, examined = {}, set[str]()
    for path in find_pages(plain, full):
        part = MAIN if found else ""  # the frame is the same on all pages: the first is looked at with it
        visitor.page.goto(full.url(path))
        # The questions before actions have one template: those that are made of the same parts differ in words alone.
        made_of = read_parts(visitor.page) if path.startswith("/do/") else path
        if made_of in examined:
            found[path] = find_wide(visitor.page)
        else:
            examined.add(made_of)
            found[path] = [*find_faults(visitor.page, part), *_find_unreachable(visitor, part)]
        _open_without_javascript(plain, full, path)
        assert _texts_of(plain) == _texts_of(visitor), path
    assert _without_good(found) == {}


def test_pages_of_failures_do_so_too_and_nothing_that_a_name_or_a_payload_says_is_done(
    visitors: Visitors, broken: ConsoleNode
) -> None:
    visitor, plain = sign_in(with_axe(visitors()), broken), sign_in(visitors(javascript=False), broken)
    visitor.page.on("dialog", lambda dialog: visitor.reports.append(f"a page opened a dialog: {dialog.message}"))
    kinds = find_pages(plain, broken)
    found, shown = {}, ""
    for path in kinds:
        visitor.page.goto(broken.url(path))
        found[path] = find_faults(visitor.page, MAIN) if path != SAME_EVERYWHERE else []
        shown += _read_harmless(visitor, path)
    for path in find_pages(plain, broken, of_each=2):
        if path not in kinds:
            visitor.page.goto(broken.url(path))
            shown += _read_harmless(visitor, path)
    if find_page("/events"):
        assert HOSTILE["markup"] in shown
    assert _without_good(found) == {}


def _without_good(found: dict[str, list[str]]) -> dict[str, list[str]]:
    """Return only the pages with faults."""
    return {path: faults for path, faults in found.items() if faults}


def _find_unreachable(visitor: Visitor, part: str) -> list[str]:
    """Return what the Tab key does not reach on an open page or in a part, or not in sight, or without a mark."""
    walk = walk_by_tab(visitor.page, part)
    assert part or walk.reached[0].startswith('<a class="skip"'), visitor.page.url
    return [f"{name}: {one}" for name in ("missed", "hidden", "unmarked") for one in getattr(walk, name)]


def _open_without_javascript(plain: Visitor, node: ConsoleNode, path: str) -> None:
    answer = plain.page.goto(node.url(path))
    assert answer is not None
    assert answer.status == 200
    assert len(answer.body()) <= LARGEST_HTML, path
    if plain.page.locator("#live[data-live=yes]").count():
        assert plain.page.locator("#live").get_by_role("link", name="Reload").is_visible(), path


def _texts_of(visitor: Visitor) -> list[str]:
    return visitor.page.locator("main h1, main h2, main thead").all_inner_texts()


def _read_harmless(visitor: Visitor, path: str) -> str:
    """Return the text of an open page after a look for what a hostile name could have made of it."""
    strange = visitor.page.locator("main script, main img, main [onerror], main [onfocus], main [href^=javascript]")
    assert strange.count() == 0, path
    text = visitor.page.locator("main").inner_text()
    assert "\u202e" not in text, path
    assert str(7654321 * 3) not in text, path
    return text


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
