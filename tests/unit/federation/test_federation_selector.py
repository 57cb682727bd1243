from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.selector import Selector

words = st.text("ab.", max_size=3)
wildcards = st.one_of(st.just("*"), st.text("ab.", min_size=1, max_size=3).map(lambda text: f"{text}.*"))
selectors = st.builds(
    Selector.of,
    types=st.lists(words | wildcards, max_size=2),
    subject_prefixes=st.lists(words, max_size=2),
    sources=st.lists(words, max_size=2),
    payload=st.dictionaries(words, words, max_size=2),
)
facts = st.fixed_dictionaries(
    {
        "type": st.text("ab.", max_size=6),
        "subject": words,
        "source": words,
        "payload": st.dictionaries(words, words, max_size=2),
    }
)


def test_empty_selector_matches_everything() -> None:
    assert Selector().matches(type="t", subject="", source="")
    assert Selector().matches_all
    assert not Selector.of(types=["t"]).matches_all


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        (Selector.of(types=["t", "u"]), True),
        (Selector.of(types=["u"]), False),
        (Selector.of(subject_prefixes=["10.88.", "x"]), True),
        (Selector.of(subject_prefixes=["10.89."]), False),
        (Selector.of(sources=["a"]), True),
        (Selector.of(sources=["b"]), False),
        (Selector.of(payload={"k": "v"}), True),
        (Selector.of(payload={"k": "v", "l": "w"}), False),
        (Selector.of(types=["t"], sources=["b"]), False),
    ],
)
def test_every_condition_must_hold(selector: Selector, matches: bool) -> None:
    assert selector.matches(type="t", subject="10.88.60.9", source="a", payload={"k": "v", "m": "n"}) is matches


@pytest.mark.parametrize(
    ("wildcard", "taken", "left"),
    [
        (
            "routerd.client.*",
            ["routerd.client.ipv4.observed", "routerd.client.x"],
            ["routerd.client", "routerd.client."],
        ),
        ("routerd.client.*", ["routerd.client.*"], ["routerd.clients.x", "routerd", "x.routerd.client.y"]),
        ("*", ["a", "a.b", ""], []),
    ],
)
def test_wildcard_takes_the_types_below_it(wildcard: str, taken: list[str], left: list[str]) -> None:
    for selector in (Selector.of(types=[wildcard]), Selector.of(types=[wildcard, "other"])):
        assert [name for name in taken if not selector.matches(type=name, subject="", source="")] == []
        assert [name for name in left if selector.matches(type=name, subject="", source="")] == []
        assert selector.may_match({*left, *taken})
        assert not selector.may_match(left)
        assert selector.matches_all is (wildcard == "*")


def test_wildcards_do_not_come_into_the_text_of_a_selector() -> None:
    selector = Selector.of(types=["a.*"])
    assert selector.matches(type="a.b", subject="", source="")  # what it has worked out is no part of its value
    assert selector.to_json() == '{"types":["a.*"]}'
    assert selector == Selector.of(types=["a.*"])
    assert hash(selector) == hash(Selector.of(types=["a.*"]))


def test_event_without_a_subject_has_no_prefix() -> None:
    assert not Selector.of(subject_prefixes=["10."]).matches(type="t", subject="", source="a")


def test_order_and_repetition_do_not_matter() -> None:
    assert Selector.of(types=["b", "a", "b"]) == Selector.of(types=["a", "b"])


@given(selectors)
def test_selector_is_read_back(selector: Selector) -> None:
    assert Selector.from_json(selector.to_json()) == selector
    assert Selector.from_json(selector.to_json().encode()) == selector


def test_no_other_json_is_a_selector() -> None:
    assert Selector().to_json() == "{}"
    with pytest.raises(msgspec.ValidationError):
        Selector.from_json('{"types":1}')


@given(selectors, selectors, facts)
def test_selector_that_does_not_widen_wants_nothing_new(new: Selector, old: Selector, fact: dict[str, str]) -> None:
    if not new.widens(old):
        assert old.matches(**fact) or not new.matches(**fact)  # type: ignore[arg-type]


def witnesses(selector: Selector) -> Iterator[dict[str, Any]]:
    """Events that a selector wants; who leaves out anything it wants leaves out one of these."""
    types = [name.removesuffix("*") + "zz" if name.endswith("*") else name for name in selector.types or ("*",)]
    for type in types:
        for prefix in selector.subject_prefixes or ("",):
            for source in selector.sources or ("zz",):
                subjects = (prefix,) if prefix else ("", "zz")
                for subject in subjects:
                    yield {"type": type, "subject": subject, "source": source, "payload": dict(selector.payload)}


@given(selectors, selectors)
def test_selector_widens_only_where_an_event_shows_it(new: Selector, old: Selector) -> None:
    wanted = list(witnesses(new))
    assert all(new.matches(**fact) for fact in wanted)
    assert new.widens(old) is any(not old.matches(**fact) for fact in wanted)


@given(selectors, facts)
def test_what_the_types_rule_out_never_matches(selector: Selector, fact: dict[str, Any]) -> None:
    assert selector.may_match(frozenset({fact["type"]})) is selector.takes_type(fact["type"])
    if not selector.takes_type(fact["type"]):
        assert not selector.matches(**fact)
    only_types = Selector.of(types=selector.types)
    assert only_types.matches(**fact) is selector.takes_type(fact["type"])


@given(selectors)
def test_no_selector_widens_itself_or_everything(selector: Selector) -> None:
    assert not selector.widens(selector)
    assert not selector.widens(Selector())
    assert Selector().widens(selector) is not selector.matches_all


@pytest.mark.parametrize(
    ("new", "old", "widens"),
    [
        ({"types": ["a"]}, {"types": ["a", "b"]}, False),
        ({"types": ["a", "c"]}, {"types": ["a", "b"]}, True),
        ({"subject_prefixes": ["10.88."]}, {"subject_prefixes": ["10."]}, False),
        ({"subject_prefixes": ["10."]}, {"subject_prefixes": ["10.88."]}, True),
        ({"payload": {"a": "1"}}, {}, False),
        ({}, {"payload": {"a": "1"}}, True),
        ({"types": ["a.b"]}, {"types": ["a.*"]}, False),
        ({"types": ["a.*"]}, {"types": ["a.b"]}, True),
        ({"types": ["a.b.*", "c"]}, {"types": ["a.*", "c"]}, False),
        ({"types": ["a.*"]}, {"types": ["a.b.*", "a.c.*"]}, True),
        ({"types": ["a"]}, {"types": ["a.*"]}, True),
        ({"types": ["ab.c"]}, {"types": ["a.*"]}, True),
        ({"types": ["*"]}, {"types": ["a.*"]}, True),
        ({"types": ["a.*"]}, {"types": ["*"]}, False),
        ({"types": ["*"]}, {}, False),
        ({}, {"types": ["*"]}, False),
        ({"subject_prefixes": [""]}, {}, False),
        ({}, {"subject_prefixes": [""]}, False),
    ],
)
def test_widening(new: dict[str, list[str]], old: dict[str, list[str]], widens: bool) -> None:
    assert Selector.of(**new).widens(Selector.of(**old)) is widens  # type: ignore[arg-type]
