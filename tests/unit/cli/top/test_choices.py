"""Keys on the screen of top: which rows are shown, and in which order."""

from __future__ import annotations

from typing import Any

from eventd.cli.top.choices import Choices
from eventd.cli.top.views import CALLBACKS, LINKS, QUEUES, TOPICS


def link(peer: str, **given: Any) -> dict[str, Any]:
    row = {"group": "edge", "peer": peer, "state": "running", "reason": "", "lagEvents": 0, "lagSeconds": 0.0}
    return row | {"deadLetters": 0, "lastError": "", "perSecond": None, "perSecondOfMinute": None} | given


ROWS = [link("a", lagSeconds=1.0), link("b", lagEvents=7, state="blocked"), link("c", lagSeconds=9.0, perSecond=2.0)]


def shown(choices: Choices) -> str:
    rows = choices.view.arrange(
        ROWS, sort=choices.sort, reverse=choices.reverse, failing=choices.failing, part=choices.part
    )
    return "".join(row["peer"] for row in rows)


def after(keys: str, *more: str) -> Choices:
    choices = Choices(LINKS)
    for each in (keys, *more):
        choices.press(each)
    return choices


def test_a_letter_sorts_and_the_same_letter_reverses() -> None:
    assert shown(after("")) == "cab"
    assert shown(after("l")) == "bac"
    assert shown(after("w")) == "bac"
    assert shown(after("p")) == "abc"
    assert shown(after("pp")) == "cba"
    assert shown(after("n")) == "cab"


def test_failing_rows_alone() -> None:
    assert shown(after("f")) == "b"
    assert shown(after("ff")) == "cab"
    assert after("f").describe(1, 3) == "links: 1 of 3, by LAG, failing only"


def test_a_filter_is_typed_and_its_letters_choose_nothing() -> None:
    choices = after("/", "E", "DGE", "/b")
    assert (shown(choices), choices.typing, choices.ended) == ("b", True, False)
    choices.press("q\x7f")
    assert choices.part == "EDGE/b"
    choices.press("\r")
    assert (choices.typing, choices.part) == (False, "EDGE/b")
    choices.press("\x1b")
    assert choices.part == ""
    assert shown(after("/zz\x1b")) == "cab"


def test_digits_choose_the_table_and_q_ends() -> None:
    choices = after("lf")
    assert choices.press("4")
    assert (choices.view, choices.sort, choices.reverse, choices.failing) == (CALLBACKS, "", False, True)
    assert not choices.press("4")
    assert after("q").ended
    assert not after("\x1b[A", "\x1bOP", "9", "?").ended


def test_no_letter_of_a_column_has_another_meaning() -> None:
    for view in (LINKS, TOPICS, QUEUES, CALLBACKS):
        letters = [measure.letter for measure in view.measures]
        assert len({*letters}) == len(letters)
        assert not {*letters} & {*"qf/1234"}
        assert view.measure(view.first) is not None
        assert len(Choices(view).help()) <= 80
