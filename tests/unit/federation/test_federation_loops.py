from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.errors import Malformed
from federation.loops import check_inbound, decode_path, encode_path, extend_path, may_send

names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
paths = st.lists(names, max_size=4).map(tuple)


@given(paths)
def test_path_is_read_back_and_fits_a_line(path: tuple[str, ...]) -> None:
    text = encode_path(path)
    assert decode_path(text) == path
    assert text.isascii()
    assert not set(text) & set("\t\n \r")


@given(paths, names)
def test_extending_is_adding_at_the_end(path: tuple[str, ...], node: str) -> None:
    assert decode_path(extend_path(encode_path(path), node)) == (*path, node)


@given(st.text("ab,%41~ \tü", max_size=8))
def test_any_text_is_one_path_or_none(text: str) -> None:
    try:
        path = decode_path(text)
    except Malformed:
        return
    assert encode_path(path) == text


def test_names_that_cannot_be_told_apart_from_nothing_get_a_name() -> None:
    assert encode_path(("",)) == "%3F"
    assert decode_path("%3F") == ("?",)
    assert encode_path(("a,b", "ü\ud800")) == "a%2Cb,%C3%BC%3F"


@pytest.mark.parametrize("text", [",", "a,", "%", "%zz", "%2f", "%41", "%FF", "a b", "ü", "a" * 8193])
def test_other_texts_are_no_paths(text: str) -> None:
    with pytest.raises(Malformed, match="path"):
        decode_path(text)


@pytest.mark.parametrize(
    ("path", "source", "relay", "reason"),
    [
        ((), "a", False, None),
        ((), "", False, None),
        ((), "b", False, "in_path"),
        (("c",), "c", False, "not_own"),
        (("c",), "c", True, None),
        (("c", "b"), "c", True, "in_path"),
        (("c",), "b", True, "in_path"),
    ],
)
def test_where_a_record_may_go(path: tuple[str, ...], source: str, relay: bool, reason: str | None) -> None:
    assert may_send(path, source, "b", relay=relay) == reason


@pytest.mark.parametrize(
    ("path", "source", "reason"),
    [
        ((), "a", None),
        ((), "b", "own_source"),
        (("b",), "b", "own_source"),
        (("c", "d"), "c", None),
        (("c", "b"), "c", "loop"),
        (("a",), "a", "loop"),
        (("c", "d", "e"), "c", "too_many_hops"),
    ],
)
def test_where_a_record_may_come_from(path: tuple[str, ...], source: str, reason: str | None) -> None:
    assert check_inbound(path, source, node="b", sender="a", max_hops=3) == reason
