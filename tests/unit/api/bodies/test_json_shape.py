"""The values of a JSON text are counted before it is decoded."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventd.api.bodies import json_shape
from eventd.api.bodies.json_shape import MOST_LEVELS, count_elements, require_modest
from eventd.errors import Invalid, TooLarge

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=30,
)


def counted(value: Any) -> int:
    """Values as the module counts them: containers, and what commas separate."""
    match value:
        case dict():
            return 1 + max(0, len(value) - 1) + sum(counted(each) for each in value.values())
        case list():
            return 1 + max(0, len(value) - 1) + sum(map(counted, value))
        case _:
            return 0


@given(VALUES, st.booleans())
def test_values_are_counted_whatever_the_texts_hold(value: Any, ascii_only: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only).encode()
    values = 1 + counted(value)
    require_modest(text, values)
    if values > 1:
        with pytest.raises(TooLarge, match=f"more than {values - 1} values"):
            require_modest(text, values - 1)


def test_levels_are_counted() -> None:
    require_modest(b"[" * MOST_LEVELS + b"]" * MOST_LEVELS, 1000)
    require_modest(b"[" + b"{}," * 500 + b"{}]", 2000)
    require_modest(b'"' + b"[" * 1000 + b'"', 10)
    with pytest.raises(Invalid, match="nested more than 64 levels deep"):
        require_modest(b"[" * (MOST_LEVELS + 1) + b"]" * (MOST_LEVELS + 1), 1000)


@pytest.mark.parametrize("text", [b'"' + b'\\"' * 200_000, b'[["' + b'\\"' * 200_000, b'["\\', b'"\\', b'[,"'])
def test_a_text_that_does_not_end_is_passed_over_once(text: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Looked at again from each of its quotes it would take hours."""
    looked = sum(found.end() - found.start() for found in json_shape._STRUCTURE.finditer(text))
    assert looked == len(text)
    require_modest(text, 5)


@pytest.mark.parametrize(
    ("text", "elements"),
    [
        (b'{"records":[]}', 1),
        (b'{"records":[1,2,3]}', 3),
        (b'{"records":[{"a":1,"b":[1,2]},{"c":"x,y"}],"node":"n"}', 2),
        (b'{"records":[1,2,3,4,5]}', 4),  # to the most, and one
    ],
)
def test_elements_of_the_lists_in_an_object_are_counted(text: bytes, elements: int) -> None:
    assert count_elements(text, 3) == elements
