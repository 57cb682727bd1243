"""The page of a link that only one of its ends has."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from eventd.console.pages.commands import find_commands
from eventd.console.pages.links import show_link
from eventd.console.pages.overview import show_overview
from eventd.console.pages.visit import Visit
from eventd.console.rendering.formats import TimeStyle
from eventd.console.rendering.urls import Urls
from eventd.console.serving.layout import Layout, SiteFrame
from eventd.console.serving.preferences import Preferences

END = {"state": "running", "eventsPerSecond": 1.0, "silentSeconds": 1.0, "ageSeconds": 1.0, "via": "", "lagEvents": 0}
GONE = "site-c has no link to site-a any more"


class OneSided:
    """A view of site-a, which has a link to site-c and gets none back."""

    name = "site-a"

    def may(self, operation: str, group: str = "") -> bool:
        return operation not in ("rates.show", "doctor.examine", "dead_letters.all")

    def sees(self, name: str) -> bool:
        return True

    def may_ask(self, method: str, *path: str) -> bool:
        return False

    async def ask(self, method: str, *path: str, body: Any = None, **query: Any) -> Any:
        raise NotImplementedError

    async def call(self, operation: str, **params: Any) -> Any:
        node = {"ageSeconds": 1.0, "via": "", "console": "", "answer": "answered"}
        link = {"from": "site-c", "to": "site-a", "sender": None, "receiver": END, "findings": [GONE]}
        answers: dict[str, Any] = {
            "groups.status": {
                "groups": [{"group": "edge", "nodeName": "site-a", "events": 1, "bytes": 1, "peers": 1}],
            },
            "links.status": {"outbound": [], "inbound": []},
            "links.gaps": {"gaps": []},
            "links.verifications": {"verifications": []},
            "map.show": {
                "group": "edge",
                "node": "site-a",
                "nodes": [node | {"node": "site-a", "answer": "self"}, node | {"node": "site-c"}],
                "links": [
                    link,
                    {"from": "site-a", "to": "site-c", "sender": END | {"lagSeconds": 0.0}, "receiver": END},
                ],
                "leftOut": 0,
            },
        }
        answers["map.show"]["links"][1]["findings"] = []
        answers["groups.status"]["groups"][0] |= {"links": {"running": 2}, "listen": ""}
        return answers.get(operation, {"series": []})


def visit(**names: str) -> Visit:
    return Visit(OneSided(), Urls(), "/console/", names, {}, TimeStyle("utc", UTC, datetime.now(UTC)))


@pytest.fixture
def charted(monkeypatch: pytest.MonkeyPatch) -> None:
    async def read_charts(*_: Any) -> dict[str, Any]:
        return {"charts": [], "complete": True, "histories": ""}

    monkeypatch.setattr("eventd.console.pages.links.read_charts", read_charts)


@pytest.mark.usefixtures("charted")
async def test_a_link_whose_ends_disagree_says_so_on_its_page_with_the_remedy() -> None:
    there = visit(group="edge", peer="site-c")
    frame = Layout(SiteFrame(Urls(), ""))
    text = frame.whole(await show_link(there), there, "links", Preferences())
    finding = text.partition('<p class="note bad">')[2].partition("</p>")[0]
    assert GONE in finding
    assert "if site-c should send to site-a, apply an EventPeer for site-a at site-c" in finding


@pytest.mark.usefixtures("charted")
async def test_a_missing_link_leads_to_the_form_that_applies_one() -> None:
    there = visit(group="edge", peer="site-c")
    (command,) = find_commands(there, "routerctl apply -f FILE", "edge")
    text = Layout(SiteFrame(Urls(), "")).whole(await show_link(there), there, "links", Preferences())
    assert f'<a href="{command.url}">{command.label}</a>' in text


async def test_links_are_not_all_running_while_the_ends_of_one_disagree() -> None:
    there = visit()
    text = Layout(SiteFrame(Urls(), "")).whole(await show_overview(there), there, "overview", Preferences())
    assert "all running" not in text
    assert "<dt>Ends disagree</dt><dd>1 link</dd>" in text
