"""Seeded bugs are found: some each day, each by the way and the seed that are known to find it."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from pkgutil import resolve_name

import pytest

from tests.models.bugs import ALL
from tests.seeded_bugs.bug import ByModel, BySimulation, BySuite, ProductBug
from tests.seeded_bugs.hunt import hunt
from tests.seeded_bugs.table import TABLE
from tests.support.source import ROOT

EACH_DAY = 5


def is_replayed(bug: ProductBug) -> bool:
    """Return whether a test replays the bug: those of models are tried with the models, and Postgres takes longer."""
    way = bug.ways[0] if bug.ways else None
    return isinstance(way, BySimulation) or (isinstance(way, BySuite) and not way.needs)


REPLAYED = [bug for bug in TABLE if is_replayed(bug)]
"""`make seeded-bugs` tries all ways of all bugs."""
TODAY = [REPLAYED[(EACH_DAY * date.today().toordinal() + number) % len(REPLAYED)] for number in range(EACH_DAY)]


@pytest.mark.parametrize("bug", TODAY, ids=lambda bug: f"{bug.number}-{bug.name}")
def test_a_bug_of_the_day_is_found(bug: ProductBug, tmp_path: Path) -> None:
    [(_, catches)] = hunt(bug, tmp_path, known=True)
    assert catches, bug.title


def test_the_table_has_every_number_once() -> None:
    numbers = [bug.number for bug in TABLE]
    assert numbers == sorted(set(numbers))


def test_each_bug_has_a_way_to_be_found_or_a_reason_why_it_stands() -> None:
    assert [bug.number for bug in TABLE if bool(bug.ways) == bool(bug.stands)] == []


@pytest.mark.parametrize("bug", TABLE, ids=lambda bug: bug.number)
def test_the_code_of_a_bug_is_where_the_table_says(bug: ProductBug) -> None:
    assert resolve_name(bug.where) is not None


def test_the_ways_lead_to_models_and_tests_that_exist() -> None:
    titles = {each.title for each in ALL}
    ways = [way for bug in TABLE for way in bug.ways]
    assert {title for way in ways if isinstance(way, ByModel) for title in way.titles} <= titles
    for way in ways:
        if isinstance(way, BySuite):
            file, _, name = way.test.partition("::")
            text = (ROOT / file).read_text()
            assert not name or f"def {name.rpartition('::')[2]}(" in text, way.test
