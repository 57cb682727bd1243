"""The pages that commands in texts of the node lead to."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import cast

import pytest

from eventd.console.pages import commands
from eventd.console.pages.commands import _PAGES, LONGEST, MOST, _CommandPage, find_commands
from eventd.console.pages.table import ACTIONS, find_page
from eventd.console.pages.visit import Visit
from eventd.console.rendering.environment import templates
from eventd.console.rendering.formats import prose
from eventd.console.rendering.urls import Urls
from eventd.errors import Conflict
from tests.support.source import ROOT


def visit(*, may: bool = True, sees_all: bool = True) -> Visit:
    view = SimpleNamespace(may=lambda operation: may, sees=lambda name: sees_all)
    return cast(Visit, SimpleNamespace(view=view, urls=Urls()))


@pytest.mark.parametrize(
    ("text", "command", "url"),
    [
        (
            "find the cause: routerctl federation links --group edge --peer b",
            "routerctl federation links --group edge --peer b",
            "/console/links/edge/b",
        ),
        (
            "see why: routerctl federation dead-letters list --group edge --peer b; then wait",
            "routerctl federation dead-letters list --group edge --peer b",
            "/console/dead-letters?kind=peer&owner=b&group=edge",
        ),
        ("see why: routerctl subscription runs claims", None, "/console/subscriptions/edge/claims?status=failed"),
        ("or at once: routerctl subscription retry claims", None, "/console/subscriptions/edge/claims"),
        (
            "routerctl callback dead-letters list hook shows why; then retry",
            None,
            "/console/dead-letters?kind=callback&owner=hook",
        ),
        ("show its content: routerctl dynamic describe Plugin/p/1", None, "/console/parts/Plugin%2Fp%2F1"),
        ("declare one: routerctl apply -f FILE", None, "/console/do/resources.apply"),
        (
            "use routerctl edit 'Topic/orders', or routerctl delete",
            None,
            "/console/do/resources.apply?kind=Topic&name=orders",
        ),
        (
            "send them again: routerctl federation redeliver b --group edge --id ID",
            None,
            "/console/do/deliveries.redeliver?group=edge&peer=b",
        ),
        ("`routerctl job list` shows the jobs", "routerctl job list", "/console/jobs"),
    ],
)
def test_a_command_leads_to_the_page_that_does_it(text: str, command: str | None, url: str) -> None:
    (found,) = find_commands(visit(), text, "edge")
    assert found.url == url
    assert command in (None, text[found.begin : found.end])
    assert not find_commands(visit(may=False), text, "edge")


def test_a_command_stays_beside_its_link_and_is_one_to_copy() -> None:
    text = "see `routerctl job list`: <b> or routerctl job lists"
    code = '<code class="command">routerctl job list</code> <a href="/console/jobs">Open the jobs</a>'
    assert prose(text, find_commands(visit(), text)) == f"see {code}: &lt;b&gt; or routerctl job lists"


def test_a_subscription_whose_group_is_not_known_is_found_by_its_name() -> None:
    (found,) = find_commands(visit(), "see why: routerctl subscription runs claims")
    assert found.url == "/console/subscriptions?q=claims"


def test_a_key_of_some_names_is_led_to_no_page_of_all() -> None:
    assert not find_commands(visit(sees_all=False), "routerctl callback test hook")


def test_only_a_few_places_in_the_beginning_of_a_text_are_searched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried = list[int]()

    class CountedPattern:
        def match(self, text: str, at: int) -> None:
            assert len(text) <= LONGEST
            tried.append(at)

    assert find_commands(visit(), "routerctl jobs " * (MOST - 1) + "routerctl job list")
    assert not find_commands(visit(), " " * LONGEST + "routerctl job list")
    monkeypatch.setattr(commands, "_PATTERNS", [(CountedPattern(), page) for page in _PAGES])
    find_commands(visit(), "routerctl " * 100_000)
    assert len(tried) == MOST * len(_PAGES)


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: page.command)
def test_arguments_have_a_longest_length_and_their_text_is_split_in_one_way(page: _CommandPage) -> None:
    words = {"kind": "Topic", "name": "n", "group": "edge", "peer": "b", "source": "Plugin/p/1"}
    assert find_commands(visit(), "routerctl " + page.command.format(**words), "edge")
    for word in ("n" * 201, "a/" * 2000):
        assert "{" not in page.command or not find_commands(
            visit(), "routerctl " + page.command.format_map(dict.fromkeys(words, word)), "edge"
        )


def test_commands_are_found_in_the_hint_of_an_error_and_not_in_its_message() -> None:
    page = templates().from_string('{% import "macros.html" as ui with context %}{{ ui.said(error) }}')
    error = Conflict("b says `no`: routerctl edit 'EventPeer/b'", hint="routerctl job list shows the jobs")
    shown = page.render(error=error, find_commands=partial(find_commands, visit()), made_contexts=[])
    assert shown.startswith("b says <code>no</code>: routerctl edit &#39;EventPeer/b&#39; (")
    assert 'href="/console/jobs"' in shown
    assert shown.count("href") == 1


def test_each_page_of_a_command_and_each_command_exist() -> None:
    known = (ROOT / "docs/reference/cli.md").read_text()
    for page in _PAGES:
        path = [part.replace("{", "").replace("}", "") for part in page.path]
        assert path[1] in ACTIONS if path[0] == "do" else find_page("/" + "/".join(path)), page
        words = page.command.partition("{")[0].partition(" -")[0].rstrip(" '")
        words = " ".join(word for word in words.split() if not word.isupper())
        assert f"routerctl {words}" in known, page
