"""Duplicate keys in JSON are found wherever they are, and nothing else is reported as one."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventd.api.framework.decoding import decode
from eventd.errors import Invalid


class Inner(msgspec.Struct):
    name: str = ""
    count: int = 0
    tags: list[str] = []


class Outer(msgspec.Struct, kw_only=True):
    items: list[Inner]
    name: str | None = None
    one: Inner | None = None
    by_name: dict[str, Inner] = {}
    raw: msgspec.Raw = msgspec.Raw()


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('{"items":[],"items":[]}', "items"),
        ('{"items":[],"name":null,"name":null}', "name"),
        ('{"items":[{"count":0,"count":0}]}', "items.0.count"),
        ('{"items":[{},{"count":1},{"count":1,"count":2}]}', "items.2.count"),
        ('{"items":[{},{"tags":[],"tags":[]},{}]}', "items.1.tags"),
        ('{"items":[{"name":"a","n\\u0061me":"b"}]}', "items.0.name"),
        ('{"items":[],"one":null,"one":{}}', "one"),
        ('{"items":[],"one":{"name":"","name":""}}', "one.name"),
        ('{"items":[],"by_name":{"x":{"count":1},"y":{"count":1,"count":1}}}', "by_name.y.count"),
        ('{"items":[],"raw":{"a":1},"raw":2}', "raw"),
    ],
)
def test_a_member_that_is_given_twice_is_told_with_its_place(text: str, place: str) -> None:
    with pytest.raises(Invalid, match=f"`{place}` is given twice"):
        decode(text.encode(), Outer)


@pytest.mark.parametrize(
    "text",
    [
        '{"items":[{"name":"name"},{"name":"\\"name\\""}],"name":"name"}',
        '{"items":[],"raw":{"name":1,"name":2,"items":3,"items":4}}',
        '{"items":[],"raw":"\\u0061\\u0062"}',
        '{"items":[],"other":1,"other":2}',
        '{"items":[],"by_name":{"name":{},"items":{}}}',
        '{"items":[{"x":{"count":1,"count":2}}]}',
    ],
)
def test_what_is_no_member_may_come_as_often_as_it_likes(text: str) -> None:
    assert isinstance(decode(text.encode(), Outer).items, list)


MEMBERS = st.lists(st.tuples(st.sampled_from(["name", "count", "tags", "x"]), st.sampled_from([0, "", "name", []])))


@given(st.lists(MEMBERS, max_size=4), st.booleans())
def test_it_is_found_exactly_where_it_is(items: list[list[tuple[str, Any]]], escaped: bool) -> None:
    fitting = [[(name, FITTING[name]) for name, _ in members] for members in items]
    key = (lambda name: json.dumps(name).replace("a", "\\u0061")) if escaped else json.dumps
    objects = [
        "{" + ",".join(f"{key(name)}:{json.dumps(value)}" for name, value in members) + "}" for members in fitting
    ]
    text = f'{{"items":[{",".join(objects)}]}}'
    twice = any(
        sum(name == known for name, _ in members) > 1 for members in fitting for known in FITTING if known != "x"
    )
    if twice:
        with pytest.raises(Invalid, match="is given twice"):
            decode(text.encode(), Outer)
    else:
        assert len(decode(text.encode(), Outer).items) == len(items)


FITTING: dict[str, Any] = {"name": "name", "count": 0, "tags": [], "x": "name"}
