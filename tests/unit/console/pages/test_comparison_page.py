"""The page of a comparison whose process does not answer."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from eventd.console.pages.links import show_comparison
from eventd.console.pages.visit import Visit
from eventd.console.rendering.formats import TimeStyle
from eventd.console.rendering.urls import Urls
from eventd.console.serving.layout import Layout, SiteFrame
from eventd.console.serving.preferences import Preferences
from eventd.errors import Unavailable
from tests.unit.console.pages.test_overview_page import LargeGroup


class HungProcess(LargeGroup):
    """A node whose process that compares does not answer."""

    async def call(self, operation: str, **params: Any) -> Any:
        if operation == "links.verify":
            raise Unavailable("it hangs; the comparison continues there", hint="look again")
        link = {"filter": {"types": ["dns.*"], "subjectPrefixes": [], "words": "only of types dns.*"}}
        return {"outbound": [link], "inbound": []}


async def test_a_comparison_whose_process_hangs_says_so_and_what_is_compared() -> None:
    style = TimeStyle("utc", UTC, datetime.now(UTC))
    names = {"group": "edge", "peer": "b"}
    visit = Visit(HungProcess(), Urls(), "/console/links/edge/b/comparison", names, {"run": "r"}, style)
    text = Layout(SiteFrame(Urls(), "")).whole(await show_comparison(visit), visit, "links", Preferences())
    assert "the comparison continues there" in text
    assert "only of types dns.*" in text
