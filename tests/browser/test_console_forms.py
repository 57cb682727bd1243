"""Forms of the console in a browser: sent twice, and kept up to date with their page."""

from __future__ import annotations

import pytest

from tests.support.browser import Visitor
from tests.support.console import ConsoleNode, sign_in
from tests.support.declared import group, peer
from tests.support.ports import free_port
from tests.support.processes import Processes

pytestmark = pytest.mark.browser


@pytest.fixture
def node(processes: Processes) -> ConsoleNode:
    """A node of this test alone, whose peer does not answer."""
    made = ConsoleNode(processes, "forms")
    made.apply(group("forms", secret=made.secret), peer("gone", free_port()))
    return made


def test_a_double_click_makes_one_key_and_shows_it(visitor: Visitor, node: ConsoleNode) -> None:
    page = sign_in(visitor, node, path="/do/keys.create?back=/console/keys").page
    page.goto(node.url("/do/keys.create?back=/console/keys"))
    page.get_by_label("Name", exact=True).fill("ci")
    page.get_by_role("button", name="Create the key").dblclick()
    page.get_by_role("heading", name="Key ci").wait_for()
    assert page.locator("#main pre").inner_text().startswith("evk_")
    page.get_by_role("link", name="I have stored the key").click()
    page.get_by_role("row", name="ci active").wait_for()


def test_an_update_leaves_the_key_of_the_page_in_its_forms(visitor: Visitor, node: ConsoleNode) -> None:
    page = sign_in(visitor, node, path="/links/edge/gone").page
    page.goto(node.url("/links/edge/gone"))
    once = page.locator("body").get_attribute("data-once")
    page.locator("#live.on").wait_for()
    node.emit("e1", "e2")
    page.locator("dt:text-is('Waiting') + dd:text-is('2')").wait_for()
    assert once
    assert page.locator("#main input[name=once]").first.input_value() == once
