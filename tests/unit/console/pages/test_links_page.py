"""The filters of the page Links."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

from eventd.console.pages.links import show_links
from eventd.console.pages.visit import Visit
from eventd.console.rendering.formats import TimeStyle
from eventd.console.rendering.urls import Urls
from eventd.console.serving.layout import Layout, SiteFrame
from eventd.console.serving.preferences import Preferences


class TwoSenders:
    """A view of a node that gets events from b and c, and sends none."""

    name = "a"

    def may(self, operation: str, group: str = "") -> bool:
        return True

    def sees(self, name: str) -> bool:
        return True

    def may_ask(self, method: str, *path: str) -> bool:
        return False

    async def ask(self, method: str, *path: str, body: Any = None, **query: Any) -> Any:
        raise NotImplementedError

    async def call(self, operation: str, **params: Any) -> Any:
        if operation == "groups.status":
            return {"groups": [{"group": "edge"}]}
        sender = {"group": "edge", "upto": 1, "gaps": 0, "updatedAt": None}
        return {"outbound": [], "inbound": [sender | {"node": node} for node in "bc"]}


async def senders(**query: str) -> str:
    """Return the text of the section about senders."""
    visit = Visit(TwoSenders(), Urls(), "/console/links", {}, query, TimeStyle("utc", UTC, datetime.now(UTC)))
    text = Layout(SiteFrame(Urls(), "")).whole(await show_links(visit), visit, "links", Preferences())
    return re.sub(r"<[^>]*>", "", text.partition('<h2 id="from">')[2].partition("</section>")[0])


async def test_a_filter_that_no_sender_matches_does_not_say_that_nothing_was_sent() -> None:
    found = await senders(q="zzz")
    assert "From senders 0 of 2" in found
    assert "No sender matches." in found


async def test_a_filter_by_state_says_that_senders_have_none() -> None:
    assert "Senders have no state" in await senders(state="blocked")
    assert "Senders have no state" not in await senders()
