"""Inputs that made a property fail are kept, and tried first by everybody."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.database import (
    DirectoryBasedExampleDatabase,
    ExampleDatabase,
    InMemoryExampleDatabase,
    MultiplexedDatabase,
    ReadOnlyDatabase,
)

from tests.support.source import ROOT


@pytest.mark.parametrize("profile", ["quick", "steady", "thorough"])
def test_every_run_tries_what_the_repository_keeps(profile: str) -> None:
    kept = ReadOnlyDatabase(DirectoryBasedExampleDatabase(ROOT / "tests" / "examples"))
    local = DirectoryBasedExampleDatabase(ROOT / ".hypothesis" / "examples")
    assert settings.get_profile(profile).database == MultiplexedDatabase(local, kept)


def test_an_input_that_failed_is_kept_and_fails_again(
    tmp_path: Path, seeded: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> None:
    tried: list[int] = []

    def small(number: int) -> None:
        tried.append(number)
        assert number < 1000

    def run(database: ExampleDatabase, examples: int) -> None:
        seeded(settings(database=database, max_examples=examples)(given(st.integers())(small)))()

    kept = DirectoryBasedExampleDatabase(tmp_path)
    with pytest.raises(AssertionError):
        run(kept, 1000)
    tried.clear()
    with pytest.raises(AssertionError):
        run(MultiplexedDatabase(InMemoryExampleDatabase(), ReadOnlyDatabase(kept)), 1)
    assert tried[0] == 1000
