"""The command `federation map`: the table, and the same as JSON."""

from __future__ import annotations

from typing import Any

import pytest

from eventd.cli.federation import map as command
from eventd.cli.federation.map import ANSWERS, LINKS
from eventd.groups import group_map
from tests.integration.cli.conftest import Control


def test_the_map_of_a_database_without_a_node_has_its_own_links(routerctl: Control) -> None:
    routerctl.edge()
    told = routerctl("federation", "map", "--group", "edge", "-o", "json").json
    assert [(link["from"], link["to"], link["receiver"]) for link in told["links"]] == [("onprem", "cloud", None)]
    assert [(node["node"], node["answer"]) for node in told["nodes"]] == [("cloud", "unasked"), ("onprem", "self")]
    shown = routerctl("federation", "map").out
    assert "onprem" in shown
    assert "not asked" in shown
    assert "this node" in shown


def test_a_group_that_is_not_declared_has_no_map(routerctl: Control) -> None:
    routerctl.edge()
    assert "EventGroup nobody is not declared" in routerctl("federation", "map", "--group", "nobody", code=None).err


def test_a_row_shows_both_ends_and_the_findings() -> None:
    end = {"eventsPerSecond": 0.5, "silentSeconds": 662.0, "ageSeconds": 1.0, "via": "c"}
    sender = end | {"state": "running", "lagEvents": 3, "lagSeconds": 660.0}
    row: dict[str, Any] = {"from": "a", "to": "b", "sender": sender, "receiver": end, "findings": ["x", "y"]}
    cells = [column.cell(row) for column in LINKS]
    assert cells[:9] == ["a", "b", "running", "3", "11m0s", "0.5", "0.5", "11m2s", "x; y"]
    said = [column.cell({**row, "past": True}) for column in LINKS]
    assert said[2] == "running (1s ago)", "its sender does not answer now"
    assert said[5:7] == ["-", "-"]
    stopped = [column.cell({**row, "sender": sender | {"state": "paused"}}) for column in LINKS]
    assert stopped[5:7] == ["-", "-"], "its rates are those of the minute before"
    empty = [column.cell({**row, "sender": None, "receiver": None, "findings": []}) for column in LINKS]
    assert empty == ["a", "b", *["-"] * 11]


@pytest.mark.parametrize("word", [group_map.SELF, group_map.ANSWERED, group_map.RELAYED, group_map.UNASKED])
def test_every_word_for_what_is_known_has_its_text(word: str) -> None:
    assert word in ANSWERS
    assert command.ANSWERS[word]
