"""The random source is injected: the same seed gives the same tokens and fractions."""

from __future__ import annotations

from eventd.runtime.chance import SYSTEM
from eventd.testing import SeededChance


def test_a_seed_repeats_itself() -> None:
    first, again, other = SeededChance(1), SeededChance(1), SeededChance(2)
    assert first.token(16) == again.token(16) != other.token(16)
    assert first.fraction() == again.fraction() != other.fraction()


def test_the_system_gives_something_else_each_time() -> None:
    assert len(SYSTEM.token(16)) == 16
    assert SYSTEM.token(16) != SYSTEM.token(16)
    assert all(0.0 <= SYSTEM.fraction() < 1.0 for _ in range(100))
