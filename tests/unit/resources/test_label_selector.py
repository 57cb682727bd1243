"""Label selectors."""

from __future__ import annotations

import pytest

from eventd.errors import Invalid
from eventd.resources.label_selector import LabelSelector

NORTH = {"site": "north", "tier": "core", "app.example/name": "hub", "in": "x"}


@pytest.mark.parametrize(
    "selector",
    [
        "",
        "site=north",
        "site==north",
        " site = north , tier = core ",
        "site!=south",
        "absent!=south",
        "site",
        "!absent",
        "site in (north, south)",
        "site in (south,north),tier notin (lab)",
        "absent notin (x)",
        "app.example/name=hub",
        "in=x",
    ],
)
def test_labels_are_selected_that_meet_every_condition(selector: str) -> None:
    assert LabelSelector(selector).matches(NORTH)


@pytest.mark.parametrize(
    "selector",
    ["site=south", "site!=north", "!site", "absent", "absent=north", "site=north,tier=lab", "site in (south)", "site="],
)
def test_labels_that_fail_one_condition_are_not_selected(selector: str) -> None:
    assert not LabelSelector(selector).matches(NORTH)


@pytest.mark.parametrize(
    ("selector", "part"),
    [("=x", "'=x'"), ("site=north,", "''"), ("!site=x", "'!site=x'"), ("a in b", "'a in b'"), ("a=b=c", "'a=b=c'")],
)
def test_a_part_that_cannot_be_read_is_named(selector: str, part: str) -> None:
    with pytest.raises(Invalid) as refused:
        LabelSelector(selector)
    assert f"cannot read the part {part} of the label selector" in str(refused.value)


def test_a_long_selector_is_refused_at_once() -> None:
    with pytest.raises(Invalid, match="at most 4096 characters, not 100,000"):
        LabelSelector("a" * 100_000)
    with pytest.raises(Invalid):
        LabelSelector("a in (" + "b" * 4000)
