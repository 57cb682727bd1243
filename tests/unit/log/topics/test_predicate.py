"""Which records a predicate matches, and what is not a valid predicate."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventd.errors import Invalid
from eventd.log.topics.predicate import Predicate, parse


@pytest.mark.parametrize(
    ("value", "meant", "shown"),
    [
        ("job", Predicate("job", False), ["tag", "Eq", "job"]),
        ("job:*", Predicate("job:", True), ["tag", "Glob", "job:*"]),
        ("*", Predicate("", True), ["tag", "Glob", "*"]),
        ("", Predicate("", False), ["tag", "Eq", ""]),
        (["tag", "Eq", "job:*"], Predicate("job:*", False), ["tag", "Eq", "job:*"]),
        (["tag", "Glob", "a*b**"], Predicate("a*b*", True), ["tag", "Glob", "a*b**"]),
        (["tag", "Glob", "*"], Predicate("", True), ["tag", "Glob", "*"]),
    ],
)
def test_what_is_written_means_a_tag_or_a_prefix_and_is_shown_in_one_way(
    value: object, meant: Predicate, shown: list[str]
) -> None:
    assert parse(value) == meant
    assert meant.shown() == shown
    assert parse(shown) == meant


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (["tag", "Glob", "no-star"], "'no-star' is not a prefix"),
        (["tag", "Glob", ""], "'' is not a prefix"),
        (["tag", "Regex", ".*"], "no operator 'Regex'"),
        (["tag", "eq", "x"], "no operator 'eq'"),
        (["node", "Eq", "x"], "not by 'node'"),
        (["n" * 99, "Eq", "x"], "n…'"),
        (["tag", "Eq"], "a list of three texts"),
        (["tag", "Eq", "x", "y"], "a list of three texts"),
        (["tag", "Eq", 1], "a list of three texts"),
        ([1, "Eq", "x"], "a list of three texts"),
        ({"tag": "x"}, "a list of three texts"),
        (5, "a list of three texts"),
        (None, "a list of three texts"),
        (True, "a list of three texts"),
    ],
)
def test_anything_else_is_refused_with_what_to_write(value: object, reason: str) -> None:
    with pytest.raises(Invalid) as told:
        parse(value)
    assert reason in told.value.message
    assert '"Glob"' in told.value.hint


@given(st.text("ab*", max_size=5), st.booleans(), st.none() | st.text("ab*", max_size=5))
def test_a_tag_fits_as_a_whole_or_by_how_it_begins(text: str, prefix: bool, tag: str | None) -> None:
    expected = tag is not None and (tag[: len(text)] == text if prefix else tag == text)
    assert Predicate(text, prefix).matches(tag) == expected
