from __future__ import annotations

from contextlib import suppress
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.errors import Malformed
from federation.structured import (
    InnerList,
    Item,
    Member,
    Token,
    parse_dictionary,
    write_dictionary,
    write_member,
    write_value,
)

keys = st.from_regex(r"[a-z*][a-z0-9_.*-]{0,5}", fullmatch=True)
bare = (
    st.integers(-(10**15) + 1, 10**15 - 1)
    | st.booleans()
    | st.binary(max_size=8)
    | st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=8)
    | st.from_regex(r"[A-Za-z*][A-Za-z0-9:/!-]{0,5}", fullmatch=True).map(Token)
    | st.decimals(-999, 999, places=2)
)
items = st.builds(Item, bare, st.dictionaries(keys, bare, max_size=2))
members = items | st.builds(InnerList, st.lists(items, max_size=3).map(tuple), st.dictionaries(keys, bare, max_size=2))


@given(st.dictionaries(keys, members, max_size=4))
def test_dictionary_is_read_back(found: dict[str, Member]) -> None:
    text = ", ".join(f"{name}={write_member(member)}" for name, member in found.items())
    assert parse_dictionary(text) == found
    assert list(parse_dictionary(text)) == list(found)


@given(st.text(st.sampled_from(list('ab=*();," \\:?01-.\t/+é')), max_size=20) | st.text(max_size=20))
def test_any_text_is_a_dictionary_or_malformed(text: str) -> None:
    with suppress(Malformed):
        found = parse_dictionary(text)
        again = ", ".join(f"{name}={write_member(member)}" for name, member in found.items())
        assert parse_dictionary(again) == found


def test_every_kind_of_value() -> None:
    text = ' a=1,\tb;x;y=?0 , c=("d" tok;p );q=:AAE=:, e=-1.50, f="\\"\\\\", a=?1 '
    assert parse_dictionary(text) == {
        "a": Item(True, {}),
        "b": Item(True, {"x": True, "y": False}),
        "c": InnerList((Item("d", {}), Item(Token("tok"), {"p": True})), {"q": b"\0\1"}),
        "e": Item(Decimal("-1.50"), {}),
        "f": Item('"\\', {}),
    }


@pytest.mark.parametrize(
    "text",
    [
        "A=1", "a=", "a=1,", "a=1 b=2", ",a", "a=1;", "a=1;;b", "a=(", 'a=("b""c")', "a=(1,2)", "a=(1", 'a="', 'a="é"',
        'a="\\n"', "a=:AA", "a=:A:", "a=:A===:", "a=:A-:", "a=?2", "a=-", "a=1.", "a=1.2345", "a=1234567890123456",
        "a=1234567890123.5", "a=1.2.3", "a=١", "a=é", "a==1",
    ],
)  # fmt: skip
def test_what_is_no_dictionary(text: str) -> None:
    with pytest.raises(Malformed, match="structured field"):
        parse_dictionary(text)


def test_missing_padding_is_forgiven() -> None:
    assert parse_dictionary("a=:AAE:") == {"a": Item(b"\0\1", {})}


def test_writing() -> None:
    assert write_dictionary({"a": 1, "b": True, "c": "x"}) == 'a=1, b, c="x"'
    assert write_value(False) == "?0"
    assert write_value(b"\xff\xff\xff") == ":////:"
    with pytest.raises(Malformed, match="printable ASCII"):
        write_value("é")
