"""The single keys of the console: they lead to pages and rows, and never act while somebody types."""

from __future__ import annotations

import re

import pytest

from tests.support.browser import Visitor
from tests.support.console import ConsoleNode, sign_in, wait_for_keys

pytestmark = pytest.mark.browser


def test_keys_lead_to_a_page_to_its_rows_and_into_one(visitor: Visitor, full: ConsoleNode) -> None:
    page = sign_in(visitor, full).page
    wait_for_keys(page)
    page.keyboard.press("g")
    page.keyboard.press("l")
    page.get_by_role("heading", name="Links", exact=True).wait_for()
    wait_for_keys(page)
    page.keyboard.press("j")
    chosen = page.locator("tr[data-at]", has_text="site-b")
    chosen.wait_for()
    before = chosen.inner_text()
    page.wait_for_function("before => document.querySelector('#main tbody tr').innerText !== before", arg=before)
    assert chosen.count() == 1, "an update of the page leaves the row chosen"
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="site-b", exact=True).wait_for()


def test_a_question_mark_shows_all_keys_and_escape_closes_them(visitor: Visitor, full: ConsoleNode) -> None:
    page = sign_in(visitor, full).page
    wait_for_keys(page)
    page.keyboard.press("?")
    page.get_by_role("dialog", name="Shortcuts").wait_for()
    assert page.get_by_text("go to a page: o overview, l links").is_visible()
    page.keyboard.press("Escape")
    page.get_by_role("dialog", name="Shortcuts").wait_for(state="detached")


def test_a_slash_leads_to_the_search_where_keys_are_text(visitor: Visitor, full: ConsoleNode) -> None:
    page = sign_in(visitor, full).page
    page.locator("#live.on").wait_for()
    wait_for_keys(page)
    page.keyboard.press("/")
    page.keyboard.type("gl?pj")
    assert page.get_by_label("Find an event").input_value() == "gl?pj"
    assert page.get_by_role("dialog").count() == 0
    page.locator("#live.on").wait_for()
    assert page.get_by_role("heading", name="Overview").is_visible()


def test_a_switch_turns_single_keys_off(visitor: Visitor, full: ConsoleNode) -> None:
    page = sign_in(visitor, full).page
    page.get_by_text("Display").click()
    page.get_by_label("Shortcuts").select_option("off")
    page.get_by_role("button", name="Apply").click()
    page.locator("body[data-keys=off]").wait_for()
    page.keyboard.press("?")
    page.get_by_text("Display").click()  # pressed after the key: had it opened a dialog, this would fail
    assert page.get_by_role("dialog").count() == 0


def test_colours_follow_the_switch_from_the_first_paint_on(visitor: Visitor, full: ConsoleNode) -> None:
    page = sign_in(visitor, full).page
    page.get_by_text("Display").click()
    page.get_by_label("Theme").select_option("dark")
    page.get_by_role("button", name="Apply").click()
    page.locator("html[data-theme=dark]").wait_for()
    answer = page.goto(full.url("/links"))
    assert answer is not None
    assert re.search('<html[^>]* data-theme="dark"', answer.text())
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(18, 22, 26)"
