"""Pages of others cannot act in the console, show it in a frame, or reach it by another name."""

from __future__ import annotations

import pytest

from tests.support.browser import REBOUND, Visitor
from tests.support.console import ConsoleNode, sign_in
from tests.support.ports import free_port
from tests.support.processes import Processes

IGNORED = "Cross-Origin-Opener-Policy header has been ignored"
"""Reported by the browser for each plain page that is not of this machine."""
pytestmark = pytest.mark.browser
FORM = """<!doctype html><title>another page</title><form method=post action="{url}"><input name=group value=edge>
<input name=peer value=site-b><input name=asked value=yes><button>Win a prize</button></form>"""


def serve_page(visitor: Visitor, url: str, body: str) -> None:
    """Answer this URL with a page, whichever server is there."""
    visitor.context.route(url, lambda route: route.fulfill(body=body, content_type="text/html"))


@pytest.mark.parametrize("origin", ["http://127.0.0.1:{port}", "http://localhost:{port}", "http://prizes.test"])
def test_a_form_of_another_port_or_site_does_nothing(visitor: Visitor, full: ConsoleNode, origin: str) -> None:
    """A page on another port of the same host is of the same site: the browser sends the cookie of the session."""
    sign_in(visitor, full)
    visitor.expect_reports("status of 40[13]")
    url = origin.format(port=free_port()) + "/"
    serve_page(visitor, url, FORM.format(url=full.url("/do/links.pause")))
    visitor.page.goto(url)
    with visitor.page.expect_response(full.url("/do/links.pause")) as answer:
        visitor.page.get_by_role("button", name="Win a prize").click()
    assert answer.value.status in (401, 403)
    assert full.link("site-b")["state"] == "running"


def test_a_frame_of_another_page_shows_nothing_of_the_console(visitor: Visitor, full: ConsoleNode) -> None:
    sign_in(visitor, full)
    url = f"http://127.0.0.1:{free_port()}/"
    serve_page(visitor, url, f"<!doctype html><title>frame</title><iframe src='{full.url()}'></iframe>")
    visitor.page.goto(url)
    (frame,) = visitor.page.main_frame.child_frames
    frame.wait_for_url("chrome-error:**")
    assert "Overview" not in frame.content()


def test_a_name_that_was_pointed_at_this_machine_opens_nothing(visitor: Visitor, full: ConsoleNode) -> None:
    visitor.expect_reports("status of 403", IGNORED)
    answer = visitor.page.goto(f"http://{REBOUND}:{full.process.port}/console/")
    assert answer is not None
    assert answer.status == 403
    assert visitor.page.get_by_label("API key").count() == 0


def test_without_keys_only_pages_under_names_of_this_machine_open(visitor: Visitor, processes: Processes) -> None:
    node = ConsoleNode(processes, "open", keys=())
    visitor.page.goto(node.url())
    visitor.page.get_by_role("heading", name="Overview").wait_for()
    visitor.expect_reports("status of 403", IGNORED)
    answer = visitor.page.goto(f"http://{REBOUND}:{node.process.port}/console/")
    assert answer is not None
    assert answer.status == 403
    assert visitor.page.get_by_role("heading", name="Overview").count() == 0
