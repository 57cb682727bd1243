"""Answers of nodes of other programs do not break the pages of all nodes."""

from __future__ import annotations

from typing import Any

import pytest

from eventd.console.many.answers import check_groups, check_map
from eventd.errors import Unavailable

GROUP = {"group": "edge", "nodeName": "a", "events": 3, "links": {"running": 1}, "listen": ""}
NODE = {"node": "a", "answer": "self", "ageSeconds": None, "via": "", "console": "", "leftOut": 0}
END = {"eventsPerSecond": None, "silentSeconds": 1.5, "ageSeconds": 0.0, "via": ""}
SENDER = END | {"state": "running", "lagEvents": 0, "lagSeconds": None}
LINK = {"from": "a", "to": "b", "sender": SENDER, "receiver": END, "findings": []}
MAP = {"group": "edge", "node": "a", "at": "", "nodes": [NODE], "links": [LINK], "leftOut": 0}


def test_answers_of_a_node_are_taken_as_they_are() -> None:
    assert check_groups({"groups": [GROUP]}) == [GROUP]
    assert check_map(MAP) == MAP
    assert check_map(MAP | {"links": [LINK | {"sender": None, "receiver": None}]})["links"][0]["sender"] is None


@pytest.mark.parametrize(
    "answer",
    [None, [], "groups", {}, {"groups": None}, {"groups": [1]}, {"groups": [GROUP | {"links": []}]}],
    ids=repr,
)
def test_groups_of_another_form_are_refused(answer: Any) -> None:
    with pytest.raises(Unavailable, match=r"its answer to groups\.status has another form"):
        check_groups(answer)


@pytest.mark.parametrize(
    "changes",
    [{"nodes": [{}]}, {"links": [{}]}, {"links": [LINK | {"sender": END}]}, {"leftOut": "1"}, {"node": None}],
    ids=repr,
)
def test_a_map_of_another_form_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(Unavailable, match=r"its answer to map\.show has another form"):
        check_map(MAP | changes)
