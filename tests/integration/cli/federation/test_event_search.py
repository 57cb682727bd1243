"""The commands `federation event`: search, find, describe."""

from __future__ import annotations

import pytest

from tests.integration.cli.conftest import Control


@pytest.fixture
def edge(routerctl: Control) -> Control:
    """A node with the group edge and the peer cloud, and three events."""
    routerctl.edge()
    for number in range(3):
        event = ("--type", "client.seen", "--subject", f"10.0.0.{number}", "--id", f"e/{number}")
        routerctl("federation", "event", "emit", *event, "--payload", f"port={number}")
    return routerctl


def test_a_search_shows_the_newest_first_and_how_to_continue(edge: Control) -> None:
    told = edge("federation", "event", "search", "--type", "client.*", "--limit", "2")
    assert [line.split()[0] for line in told.lines[1:]] == ["e/2", "e/1"]
    token = told.err.split("--after ")[1].strip()
    rest = edge("federation", "event", "search", "--limit", "2", "--after", token)
    assert [line.split()[0] for line in rest.lines[1:]] == ["e/0"]
    [only] = edge("federation", "event", "search", "--payload", "port=1", "-o", "json").json
    assert only["id"] == "e/1"


def test_an_event_is_found_and_described_by_its_id(edge: Control) -> None:
    found = edge("federation", "event", "find", "e/1")
    assert found.lines[1].split()[:3] == ["edge", "yes", "client.seen"]
    told = edge("federation", "event", "describe", "e/1")
    assert '{"port":"1"}' in told.lines
    assert any(line.split()[:2] == ["cloud", "pending"] for line in told.lines)
    answer = edge("federation", "event", "describe", "e/1", "-o", "json").json
    assert answer["payload"] == '{"port":"1"}'


def test_an_unknown_event_is_not_found(edge: Control) -> None:
    assert "has no event nothing" in edge("federation", "event", "describe", "nothing", code=3).err
    assert "no group has an event nothing" in edge("federation", "event", "find", "nothing", code=3).err
