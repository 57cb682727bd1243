from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.selector import Selector

words = st.text("ab.", max_size=3)
selectors = st.builds(
    Selector.of,
    types=st.lists(words, max_size=2),
    subject_prefixes=st.lists(words, max_size=2),
    sources=st.lists(words, max_size=2),
    payload=st.dictionaries(words, words, max_size=2),
)
facts = st.fixed_dictionaries(
    {"type": words, "subject": words, "source": words, "payload": st.dictionaries(words, words, max_size=2)}
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
    ],
)
def test_widening(new: dict[str, list[str]], old: dict[str, list[str]], widens: bool) -> None:
    assert Selector.of(**new).widens(Selector.of(**old)) is widens  # type: ignore[arg-type]
