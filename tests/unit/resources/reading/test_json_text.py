from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventd.resources.reading import json_text
from eventd.resources.reading.json_text import read_json
from eventd.resources.reading.nodes import Flaw, ParseError, line_of, plain


def read(text: str) -> Any:
    flaws: list[Flaw] = []
    value = plain(read_json(text, flaws))
    assert flaws == []
    return value


def refusal(text: str) -> ParseError | None:
    try:
        plain(read_json(text, []))
    except ParseError as refused:
        return refused
    return None


def test_every_field_knows_its_line() -> None:
    node = read_json('{\n\t"a": {\r\n\t\t"b": [1,\n {"c": "\\ud83d\\ude00"}]}}\n', [])
    assert plain(node) == {"a": {"b": [1, {"c": "\N{GRINNING FACE}"}]}}
    assert line_of(node, ("a",)) == 2
    assert line_of(node, ("a", "b", 0)) == 3
    assert line_of(node, ("a", "b", 1, "c")) == 4


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        ("", 1, 1, "is not valid JSON: the text ends too early"),
        ("{\n", 2, 1, "is not valid JSON: a key in double quotes is expected"),
        ('{"a": 1,\n "b" 2}', 2, 6, "is not valid JSON: : is expected"),
        ('{"a": 1 "b": 2}', 1, 9, "is not valid JSON: a comma or } is expected"),
        ('{"a": 1,}', 1, 9, "is not valid JSON: a key in double quotes is expected"),
        ("[1, 2", 1, 6, "is not valid JSON: a comma or ] is expected"),
        ("[1,]", 1, 4, "is not valid JSON: expecting value"),
        ('{"a": tru}', 1, 7, "is not valid JSON: expecting value"),
        ('{"a": "b}', 1, 7, "is not valid JSON: unterminated string starting at"),
        ('{"a": NaN}', 1, 7, "is not valid JSON: this is not a JSON value, or a number that is too long"),
        (
            '{"a": ' + "9" * 5000 + "}",
            1,
            7,
            "is not valid JSON: this is not a JSON value, or a number that is too long",
        ),
        ("{}\n{}", 2, 1, "is not valid JSON: there is more text after the end of the document"),
    ],
)
def test_broken_json_names_its_place_and_reason(text: str, line: int, column: int, message: str) -> None:
    with pytest.raises(ParseError) as refused:
        read(text)
    assert (refused.value.line, refused.value.column, refused.value.message) == (line, column, message)


@pytest.mark.parametrize(
    ("text", "flaw"),
    [
        ('{"a": 1,\n "a": 2}', Flaw(2, 2, "the key a stands twice in one mapping, first on line 1")),
        ('{"a": "\\u0000"}', Flaw(1, 7, "text must not contain the character U+0000")),
        ('{"a":\n"\\ud800"}', Flaw(2, 1, "text must not contain half of a surrogate pair")),
        ('{"\\ud800": 1}', Flaw(1, 2, "text must not contain half of a surrogate pair")),
    ],
)
def test_a_flaw_is_named_with_its_place(text: str, flaw: Flaw) -> None:
    flaws: list[Flaw] = []
    read_json(text, flaws)
    assert flaws == [flaw]


def test_json_that_is_too_deep_or_too_large_is_refused() -> None:
    assert json_text.MAX_VALUES == 500_000
    with pytest.raises(ParseError, match="nested more than 64 levels deep"):
        read("[" * 100_000)
    with pytest.raises(ParseError, match="contains more than 500 values"):
        read_json("[" + "1," * 500 + "1]", [], 500)
    assert len(read("[" + "1," * 498 + "1]")) == 499, "with the list itself that is 500"


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abc", max_size=3), inner, max_size=4),
    max_leaves=20,
)


@given(JSON, st.sampled_from([None, 2, "\t"]), st.booleans())
def test_it_reads_what_the_standard_library_writes(value: Any, indent: Any, ascii_only: bool) -> None:
    assert read(json.dumps(value, indent=indent, ensure_ascii=ascii_only)) == value


@given(st.text(max_size=100) | st.text(alphabet='{}[],:"\\u0123d89 \n\ttruefalsn-+.eE', max_size=60))
def test_no_text_raises_anything_but_our_error(text: str) -> None:
    refused = refusal(text)
    assert refused is None or (refused.line >= 1 and refused.message.startswith("is "))
