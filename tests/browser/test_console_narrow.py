"""What scripts add to the content of a page: rows as cards in a narrow window, and buttons that copy."""

from __future__ import annotations

import pytest

from tests.support.browser import Visitors
from tests.support.console import ConsoleNode, sign_in

pytestmark = pytest.mark.browser


def test_rows_are_cards_with_the_labels_of_their_columns_in_a_narrow_window_and_rows_in_a_wide_one(
    visitors: Visitors, full: ConsoleNode
) -> None:
    visitor = sign_in(visitors(width=390), full)
    visitor.page.goto(full.url("/links"))
    row = visitor.page.locator("tr[id^=out-]").first
    state = row.locator("td[data-label=State]")
    state.wait_for()
    frame = visitor.page.locator(".wide").first
    assert frame.evaluate("one => one.scrollWidth <= one.clientWidth")
    name = row.locator("th").bounding_box()
    below = state.bounding_box()
    assert name
    assert below
    assert below["y"] > name["y"]
    visitor.page.set_viewport_size({"width": 1280, "height": 900})
    assert row.locator("th").evaluate("one => getComputedStyle(one).display") == "table-cell"


def test_a_button_copies_the_id_of_an_event(visitors: Visitors, full: ConsoleNode) -> None:
    visitor = sign_in(visitors(permissions=["clipboard-read", "clipboard-write"]), full)
    visitor.page.goto(full.url("/events/edge/e100"))
    visitor.page.get_by_role("button", name="Copy e100").click()
    visitor.page.get_by_text("Copied").wait_for()
    assert visitor.page.evaluate("navigator.clipboard.readText()") == "e100"
