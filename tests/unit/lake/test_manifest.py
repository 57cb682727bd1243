"""JSON files of the lake that no node writes are unreadable, and no error of the program."""

from __future__ import annotations

import pytest

from eventd.lake.manifest import LakeHead, NodeState, SelectionConditions, Unreadable, decode, decode_selection, encode
from federation.selector import Selector

DEEP = "[" * 200_000
STATE = NodeState(node="a", epoch="e", instance="i", began_at=1, as_of=2, head=0, complete_until=2)
MALFORMED = [
    '{"types": [1]}',
    '{"types": null}',
    '{"types": 5}',
    '{"types": "x"}',
    '{"types": [["a"]]}',
    '{"subjectPrefixes": [null]}',
    '{"payload": 5}',
    '{"payload": {"a": 1}}',
    '{"relay": "yes"}',
    "{",
    "[]",
]


@pytest.mark.parametrize("text", [DEEP, '{"schema": 1, "x": ' + DEEP, '{"schema": 1, "groups": ' + DEEP])
def test_a_file_that_is_nested_too_deeply_is_unreadable(text: str) -> None:
    for kind in (NodeState, LakeHead):
        with pytest.raises(Unreadable, match="is not"):
            decode(text.encode(), kind)


@pytest.mark.parametrize("selection", MALFORMED)
def test_a_state_with_a_malformed_selection_is_unreadable(selection: str) -> None:
    groups = (
        '[{"group": "g", "peers": [{"peer": "b", "selections": [{"version": 1, "declared_at": 1, "selection": %s}]}]}]'
    )
    text = encode(STATE).decode().replace('"groups": []', f'"groups": {groups % selection}')
    with pytest.raises(Unreadable, match=r"is not (valid: |JSON)"):
        decode(text.encode(), NodeState)


@pytest.mark.parametrize("selection", [*MALFORMED, DEEP, '{"x": ' + DEEP])
def test_a_malformed_selection_of_a_row_is_unreadable(selection: str) -> None:
    with pytest.raises(Unreadable, match="is not valid: "):
        decode_selection(selection)


def test_a_selection_in_the_lake_has_all_conditions_of_a_selector() -> None:
    """A new condition of selectors that states leave out would make audits expect too many events."""
    assert {*SelectionConditions.__struct_fields__} == {*Selector.__struct_fields__, "relay"}
    conditions = {"types": ["x"], "subjectPrefixes": ["p"], "sources": ["a"], "payload": {"k": "v"}}
    found = SelectionConditions.of({**conditions, "relay": True, "without": ["another"]})
    assert found.relay
    assert found.selector == Selector.of(types="x", subject_prefixes="p", sources="a", payload={"k": "v"})


def test_equal_selections_have_one_text() -> None:
    texts = ['{"relay": true, "types": ["x"], "later": 1}', '{"types":["x"],"relay":true,"subjectPrefixes":[]}']
    assert {decode_selection(text).text for text in texts} == {'{"relay":true,"types":["x"]}'}
    assert decode_selection("") == SelectionConditions()
