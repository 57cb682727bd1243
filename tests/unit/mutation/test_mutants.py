"""Which code the mutation tests change, and which they leave alone."""

from __future__ import annotations

import pytest

from tests.mutation.mutants import mutants


def changed(source: str) -> list[str]:
    text = source.encode()
    return [found.apply(text).decode() for found in mutants("a.py", text)]


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ("x = a < b", "x = (a <= b)"),
        ("x = a and b", "x = (a or b)"),
        ("x = not a", "x = (a)"),
        ("x = a + 'é'", "x = (a - 'é')"),
        ("x = 'é' if a else b", "x = (b if a else 'é')"),
        ("x = True", "x = (False)"),
        ("x = 41", "x = (42)"),
        ("f(x)", "pass"),
        ("a.b = c", "pass"),
        ("a += c", "pass"),
        ("if a:\n    b = c", "if (not a):\n    b = c"),
        ("def f():\n    return a", "def f():\n    return None"),
        ("while a < b:\n    break", "while a < b:\n    continue"),
    ],
)
def test_a_change_is_one_place_of_the_text(source: str, wanted: str) -> None:
    assert wanted in changed(source)


@pytest.mark.parametrize(
    "source",
    [
        '"""A docstring."""',
        "x: int | None = a",
        "def f(a: int | None) -> str | None: ...",
        "if TYPE_CHECKING:\n    x = 1",
        "logger.warning('told')",
        "x = f'{a + 1}'",
        "def f():\n    return None",
    ],
)
def test_what_no_test_can_notice_is_left_alone(source: str) -> None:
    assert changed(source) == []
