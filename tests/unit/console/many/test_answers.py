"""Answers of nodes of other programs do not break the pages of all nodes."""

from __future__ import annotations

from typing import Any

import pytest

from eventd.console.many.answers import (
    check_description,
    check_found,
    check_groups,
    check_letters,
    check_map,
    showable,
)
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


@pytest.mark.parametrize("groups", [None, {}, [1], [{"group": "edge"}], [{"group": 1, "stored": True}]], ids=repr)
def test_found_events_and_dead_letters_of_another_form_are_refused(groups: Any) -> None:
    for check in (check_found, check_letters):
        with pytest.raises(Unavailable, match="has another form"):
            check({"groups": groups})


EVENT = {"type": "t", "path": ["a"], "recordedAt": None}
DELIVERY = {"status": "delivered", "deliveredAt": None, "lastError": None}
RUN = {"subscription": None, "plugin": "p", "status": "ok", "startedAt": None}
DESCRIPTION = {
    "event": EVENT,
    "node": "a",
    "deliveries": [DELIVERY | {"peer": "b"}],
    "callbacks": [DELIVERY | {"callback": "c"}],
    "runs": [RUN],
    "deadLetters": [{}],
}


@pytest.mark.parametrize(
    "changes",
    [
        {"event": None},
        {"event": EVENT | {"path": 1}},
        {"deliveries": [1]},
        {"callbacks": [DELIVERY]},
        {"runs": [RUN | {"startedAt": 1}]},
        {"deadLetters": None},
        {"node": {}},
    ],
    ids=repr,
)
def test_a_description_of_another_form_is_refused(changes: dict[str, Any]) -> None:
    assert check_description(DESCRIPTION) == DESCRIPTION
    with pytest.raises(Unavailable, match=r"its answer to events\.describe has another form"):
        check_description(DESCRIPTION | changes)


def test_halves_of_characters_are_replaced_and_numbers_that_are_none_are_refused() -> None:
    assert showable({"a\ud800": ["\udc00", "\U0001f600", 1, None]}) == {"a\ufffd": ["\ufffd", "\U0001f600", 1, None]}
    with pytest.raises(Unavailable, match="nan"):
        showable([float("nan")])
