"""The script of others works under the strictest policy of a page: no inline code, no eval, Trusted Types."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from eventd.console.serving.answers import POLICY
from tests.support.browser import Visitor
from tests.support.vendored import FOLDER

if TYPE_CHECKING:
    from playwright.sync_api import Route

pytestmark = pytest.mark.browser
HOST = "http://console.test"
PAGE = """<!doctype html><title>vendored</title>
<main id=main><label>Name <input id=name></label><details id=more><summary>More</summary><p id=text>before</p></details>
<ul><li id=a>a</li><li id=b>b</li></ul></main><output></output>
<script type=module src=/page.mjs></script>"""
MERGE = """import { Idiomorph } from "/idiomorph.mjs";
const policy = trustedTypes.createPolicy("console", { createHTML: (text) => text });
const text = `<main id=main><label>Name <input id=name></label><details id=more><summary>More</summary>
    <p id=text>after</p></details><ul><li id=c>c</li><li id=b>b</li></ul></main>`;
const kept = document.getElementById("b");
addEventListener("keydown", (event) => {
  if (event.key !== "Enter") return;
  const fresh = new DOMParser().parseFromString(policy.createHTML(text), "text/html").getElementById("main");
  Idiomorph.morph(document.getElementById("main"), fresh, {
    ignoreActiveValue: true,
    callbacks: { beforeAttributeUpdated: (name) => name !== "open" },
  });
  const items = [...document.querySelectorAll("li")].map((one) => one.textContent).join(" ");
  document.querySelector("output").textContent = `${items} ${kept === document.getElementById("b")}`;
});
"""


def serve(visitor: Visitor, script: str) -> None:
    """Open the page with this script; everything else it may load is a vendored file."""

    def answer(route: Route) -> None:
        name = route.request.url.removeprefix(f"{HOST}/")
        if name in ("", "page.mjs"):
            body, media = (script, "text/javascript") if name else (PAGE, "text/html")
        elif name == "favicon.ico":
            return route.fulfill(status=204)
        else:
            body, media = (FOLDER / name).read_text(), "text/javascript"
        return route.fulfill(body=body, content_type=media, headers={"Content-Security-Policy": POLICY})

    visitor.context.route("**/*", answer)
    visitor.page.goto(f"{HOST}/")


def test_a_merge_keeps_the_focus_the_input_and_the_elements_that_stay(visitor: Visitor) -> None:
    serve(visitor, MERGE)
    page = visitor.page
    page.locator("summary").click()
    page.locator("#name").fill("half a na")
    page.keyboard.press("Enter")
    page.locator("#text", has_text="after").wait_for()
    assert page.locator("output").inner_text() == "c b true"
    assert page.locator("#name").input_value() == "half a na"
    assert page.evaluate("document.activeElement.id") == "name"
