"""Signing in to the console in a browser, and what each role may do there."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.support.browser import Visitor, Visitors
from tests.support.console import KEYS, ROLES, ConsoleNode, find_pages, sign_in

pytestmark = pytest.mark.browser


@pytest.fixture
def linked(full: ConsoleNode) -> Iterator[ConsoleNode]:
    """The node with a link that runs, also for the tests that follow."""
    yield full
    full.ask("POST", "/groups/edge/peers/site-b/resume", {})
    full.wait_link("site-b", "running")


def test_a_wrong_key_is_refused_beside_its_field_and_the_right_one_opens_the_page_that_was_asked_for(
    visitor: Visitor, full: ConsoleNode
) -> None:
    visitor.expect_reports("status of 401")
    page = visitor.page
    page.goto(full.url("/links?state=running"))
    page.get_by_label("API key").fill("wrong")
    page.keyboard.press("Enter")
    problem = page.get_by_role("alert")
    problem.wait_for()
    assert page.get_by_label("API key").get_attribute("aria-describedby") == problem.get_attribute("id")
    page.get_by_label("API key").fill(KEYS["read"])
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Links", exact=True).wait_for()
    assert page.url == full.url("/links?state=running")


def test_the_cookie_of_a_session_is_no_key_and_scripts_do_not_see_it(visitor: Visitor, full: ConsoleNode) -> None:
    sign_in(visitor, full)
    (cookie,) = [one for one in visitor.context.cookies() if one["name"].startswith("__Host-")]
    assert re.fullmatch(r"__Host-eventd-[0-9a-f]{8}", cookie["name"])
    assert (cookie["httpOnly"], cookie["secure"], cookie["sameSite"], cookie["path"]) == (True, True, "Lax", "/")
    assert KEYS["admin"] not in str(cookie)
    assert cookie["name"] not in visitor.page.evaluate("document.cookie")
    for path in ("/api/v1/groups", "/v0/topics"):
        assert visitor.context.request.get(full.process.url + path).status == 401


def test_two_nodes_of_one_machine_do_not_sign_each_other_out(
    visitor: Visitor, full: ConsoleNode, empty: ConsoleNode
) -> None:
    for node in (full, empty):
        sign_in(visitor, node)
    for node in (full, empty):
        visitor.page.goto(node.url())
        visitor.page.get_by_role("heading", name="Overview").wait_for()


def test_after_signing_out_the_way_back_leads_to_the_sign_in(visitor: Visitor, full: ConsoleNode) -> None:
    sign_in(visitor, full, path="/links")
    visitor.page.get_by_role("button", name="Sign out").click()
    visitor.page.get_by_label("API key").wait_for()
    visitor.page.goto(full.url("/links"))
    visitor.page.get_by_label("API key").wait_for()
    visitor.page.go_back()
    visitor.page.get_by_label("API key").wait_for()


@pytest.mark.parametrize("role", [role for role, scopes in ROLES.items() if "admin" not in scopes])
def test_who_may_not_change_links_has_no_button_and_is_refused(
    visitors: Visitors, full: ConsoleNode, role: str
) -> None:
    visitor = sign_in(visitors(), full, role)
    find_pages(visitor, full)
    visitor.page.goto(full.url("/links/edge/site-b"))
    assert visitor.page.get_by_text("Pause", exact=True).count() == 0
    visitor.expect_reports("status of 403")
    sent = visitor.page.evaluate(
        "([url, body]) => fetch(url, { method: 'POST', body: new URLSearchParams(body) }).then((got) => got.status)",
        [full.url("/do/links.pause"), {"group": "edge", "peer": "site-b", "asked": "yes"}],
    )
    assert sent == 403
    assert full.link("site-b")["state"] == "running"


@pytest.mark.parametrize("javascript", [True, False])
def test_an_operator_pauses_a_link_after_a_question_and_resumes_it(
    visitors: Visitors, linked: ConsoleNode, javascript: bool
) -> None:
    visitor = sign_in(visitors(javascript=javascript), linked, path="/links/edge/site-b")
    page = visitor.page
    page.get_by_role("link", name="Pause").click()
    page.get_by_role("heading", name=re.compile("Pause the link to site-b")).wait_for()
    page.get_by_label("Reason").fill("tests <b>look</b>")
    page.get_by_role("button", name="Pause").click()
    page.get_by_role("status").get_by_text("The link is paused.").wait_for()
    page.get_by_text("Paused: tests <b>look</b>").wait_for()
    assert linked.link("site-b")["state"] == "paused"
    page.get_by_role("button", name="Resume").click()
    page.get_by_role("status").get_by_text("The link resumes at once.").wait_for()
    linked.wait_link("site-b", "running")
