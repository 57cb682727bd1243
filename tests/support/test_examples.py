"""Inputs of properties: a seed repeats them, and those that failed are kept and tried first in every run."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
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


def test_one_seed_tries_the_same_inputs_again_and_another_seed_others(
    pytestconfig: pytest.Config,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    seeded: Callable[[Callable[..., Any]], Callable[..., Any]],
) -> None:
    def inputs_of(seed: str) -> list[list[int]]:
        monkeypatch.setattr(pytestconfig.option, "inputs_seed", seed)
        tried: list[list[int]] = []
        prop = given(st.lists(st.integers(), min_size=30))(lambda numbers: tried.append(numbers))
        seeded(settings(database=None, max_examples=10)(prop))()
        return tried

    first = inputs_of("7")
    assert inputs_of("7") == first
    assert inputs_of("8") != first
    assert _inputs_of_a_run(tmp_path, "--hypothesis-seed=7") == first


RUN = """
from hypothesis import given, settings, strategies as st

import loaded_here_alone

@settings(database=None, max_examples=10)
@given(st.lists(st.integers(), min_size=30))
def test_numbers(numbers):
    print("tried", numbers)
"""


def _inputs_of_a_run(folder: Path, *options: str) -> list[list[int]]:
    """Run a property with the hooks of this suite, in a process with another module; return the inputs it tried."""
    file = folder / "test_numbers.py"
    file.write_text(RUN)
    (folder / "loaded_here_alone.py").write_text(f"NUMBERS = {[*range(1000, 1100)]}")
    options = (*options, "-qs", "-p", "tests.conftest", "-p", "no:randomly", "-p", "no:cacheprovider")
    command = [sys.executable, "-m", "pytest", *options, "--rootdir", str(folder), str(file)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment["PYTHONPATH"] = str(folder)
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return [json.loads(line) for line in re.findall(r"tried (.*)", ran.stdout)]


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
