from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventd.resources.reading.nodes import MAX_DEPTH, Flaw, ParseError, line_of, plain
from eventd.resources.reading.yaml_text import read_yaml, write_yaml


def read(text: str) -> list[Any]:
    """The plain values of a flawless text."""
    flaws: list[Flaw] = []
    documents = [plain(node) for node in read_yaml(text, flaws)]
    assert flaws == []
    return documents


def flaws_of(text: str) -> list[tuple[int, int, str]]:
    flaws: list[Flaw] = []
    list(read_yaml(text, flaws))
    return [(flaw.line, flaw.column, flaw.message) for flaw in flaws]


def refusal(text: str) -> ParseError | None:
    try:
        for node in read_yaml(text, []):
            plain(node)
    except ParseError as refused:
        return refused
    return None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12", 12),
        ("-7", -7),
        ("0x1f", 31),
        ("0o17", 15),
        ("017", 17),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        ("-.Inf", float("-inf")),
        ("true", True),
        ("False", False),
        ("~", None),
        ("null", None),
        ('"12"', "12"),
        ("'true'", "true"),
        ("!!str 12", "12"),
        ("! 12", "12"),
    ],
)
def test_a_scalar_means_what_it_looks_like(text: str, value: object) -> None:
    assert read(f"a: {text}") == [{"a": value}]


@pytest.mark.parametrize("text", ["no", "on", "yes", "12:30", "2026-11-20", "1_000", "v1", "=", "0b11"])
def test_what_older_yaml_turns_into_something_else_stays_text(text: str) -> None:
    assert read(f"a: {text}") == [{"a": text}]


def test_documents_follow_each_other_and_keys_stay_text() -> None:
    assert read("a: 1\n---\n12: [x, {y: z}]\n---\n") == [{"a": 1}, {"12": ["x", {"y": "z"}]}, None]


def test_every_field_knows_its_line() -> None:
    flaws: list[Flaw] = []
    [node] = read_yaml("a:\n  b:\n    - x\n    -\n      c: 1\n  d: {e: 2}\n", flaws)
    assert line_of(node, ("a", "b", 0)) == 3
    assert line_of(node, ("a", "b", 1, "c")) == 5
    assert line_of(node, ("a", "d", "e")) == 6
    assert line_of(node, ("a", "b", 1, "absent", "deeper")) == 5
    assert line_of(node, ("absent",)) == 1


def test_an_alias_stands_for_what_was_anchored() -> None:
    assert read("a: &x [1, 2]\nb: *x\n") == [{"a": [1, 2], "b": [1, 2]}]


def test_a_merge_key_fills_in_what_is_not_written() -> None:
    text = "base: &b {x: 1, y: 2}\nmore: &m {y: 3, z: 4}\nall:\n  <<: [*b, *m]\n  x: 9\nquoted: {'<<': 5}\n"
    assert read(text)[0]["all"] == {"x": 9, "y": 2, "z": 4}
    assert read(text)[0]["quoted"] == {"<<": 5}


@pytest.mark.parametrize(
    ("text", "flaw"),
    [
        ("a: 1\nb: 2\na: 3\n", (3, 1, "the key a stands twice in one mapping, first on line 1")),
        ("a: !!binary aGk=\n", (1, 4, "the tag tag:yaml.org,2002:binary is not supported; leave it out")),
        ("a: !mine {b: 1}\n", (1, 4, "the tag !mine is not supported; leave it out")),
        ("a: !!set [b]\n", (1, 4, "the tag tag:yaml.org,2002:set is not supported; leave it out")),
        ('a: "x\\0y"\n', (1, 4, "text must not contain the character U+0000")),
        ("a: " + "9" * 50, (1, 4, "the number is too long")),
    ],
)
def test_a_flaw_is_named_with_its_place_and_reading_goes_on(text: str, flaw: tuple[int, int, str]) -> None:
    assert flaws_of(text) == [flaw]


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        ("a: 1\nb: *x\n", 2, 4, "the alias *x is not defined"),
        ("a: &x\n  b: *x\n", 2, 6, "the alias *x stands inside itself"),
        ("a: &x 1\n---\nb: *x\n", 3, 4, "the alias *x is not defined"),
        ("? [a]\n: b\n", 1, 3, "a key must be text, not a list, a mapping or an alias"),
        ("a:\n  <<: 5\n", 2, 3, "<< takes a mapping or a list of mappings"),
        ("a: \x07b", 1, 4, "the character U+0007 is not allowed in YAML"),
    ],
)
def test_what_cannot_be_read_says_where_and_why(text: str, line: int, column: int, message: str) -> None:
    with pytest.raises(ParseError) as refused:
        flaws_of(text)
    assert (refused.value.line, refused.value.column, refused.value.message) == (line, column, message)


@pytest.mark.parametrize(
    ("text", "line"), [("a: 1\n  b: 2\n", 2), ("a: [1,\n2\n", 3), ("a: 'x\n", 2), ("a: b\n\tc: d\n", 2)]
)
def test_broken_syntax_names_its_line(text: str, line: int) -> None:
    with pytest.raises(ParseError, match="is not valid YAML: ") as refused:
        flaws_of(text)
    assert refused.value.line == line


def test_a_text_that_is_too_deep_is_refused() -> None:
    assert read("[" * MAX_DEPTH + "]" * MAX_DEPTH)
    with pytest.raises(ParseError, match="nested more than 64 levels deep"):
        read("[" * 100_000)


def test_aliases_cannot_make_a_text_deeper() -> None:
    text = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [[[*a{n - 1}]]]\n" for n in range(1, 30))
    with pytest.raises(ParseError, match="nested more than 64 levels deep"):
        read(text)


def test_a_billion_laughs_are_not_laughed() -> None:
    text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
    text += "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10))
    with pytest.raises(ParseError, match=r"more than 500000 values \(each use of an alias") as refused:
        read(text)
    assert refused.value.line == 6


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abc<=", max_size=3), inner, max_size=4),
    max_leaves=20,
)


@given(VALUES)
def test_what_is_written_reads_back_to_the_same_value(value: Any) -> None:
    assert read(write_yaml(value)) == [value]


@pytest.mark.parametrize("text", ["1e3", "0o17", "017", "no", "12:30", "2026-11-20", "~", "", "=", "1.", "<<", "# x"])
def test_text_that_looks_like_something_else_is_quoted(text: str) -> None:
    assert read(write_yaml({"a": text})) == [{"a": text}]


@given(st.text(max_size=200) | st.text(alphabet="{}[]&*!|>'\"%@`:-?,# \n\tab01<~", max_size=60))
def test_no_text_raises_anything_but_our_error(text: str) -> None:
    refused = refusal(text.encode("utf-8", "replace").decode())
    assert refused is None or (refused.line >= 1 and refused.message)
