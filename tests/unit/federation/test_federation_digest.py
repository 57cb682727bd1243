"""Digests that two nodes compare: by known vectors, and sums that do not depend on order."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.digest import add, digest, fingerprint, fingerprint_of

NUMBERS = st.integers(min_value=-(2**63), max_value=2**63 - 1)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("", -2039914840885289964),
        ("abc", -5010229573455851542),
        ("ü", 6950308537068853028),
    ],
)
def test_a_fingerprint_is_the_beginning_of_the_digest(body: str, expected: int) -> None:
    assert digest(body) == hashlib.sha256(body.encode()).digest()
    assert fingerprint(body) == fingerprint(body.encode()) == expected


def test_the_digest_of_an_event_is_what_any_tool_computes() -> None:
    assert digest("abc").hex() == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_sums_wrap_around_as_a_databases_integers_do() -> None:
    largest = 2**63 - 1
    assert add() == 0
    assert add(largest, 1) == -(2**63)
    assert add(-(2**63), -1) == largest
    assert add(largest, largest) == -2
    assert fingerprint_of([]) == 0
    assert fingerprint_of(["abc", "ü"]) == add(fingerprint("abc"), fingerprint("ü"))


@given(st.lists(NUMBERS), st.randoms())
def test_a_sum_depends_on_neither_order_nor_portions(numbers: list[int], chance: object) -> None:
    shuffled = [*numbers]
    chance.shuffle(shuffled)  # type: ignore[attr-defined]
    middle = len(numbers) // 2
    assert add(*numbers) == add(*shuffled) == add(add(*shuffled[:middle]), add(*shuffled[middle:]))
    assert -(2**63) <= add(*numbers) < 2**63
