"""Loads beside emits: runs with each of them violate nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from eventd.simulation.plan import draw_plan
from eventd.simulation.run import play
from tests.seeded_bugs.plans import with_power_losses, with_power_losses_after_failed_syncs

SEEDS = {
    "write": (6, 193),
    "write follow": (15,),
    "publishing": (70,),
    "conflict": (23,),
    "queue": (57, 249),
    "watch socket": (118,),
    "route": (158,),
    "subscription callback": (169,),
    "renewal": (14,),
}
"""Seeds of runs with at most 45 steps of load, by the kinds of load. They find the seeded bugs 16, 32, 34 and 43."""


@pytest.mark.parametrize("seed", [69, 193])
def test_what_is_acknowledged_after_a_failed_sync_outlives_a_power_loss(seed: int, tmp_path: Path) -> None:
    result = play(with_power_losses_after_failed_syncs(draw_plan(seed, ["write"])), within=tmp_path)
    assert result.violations == []
    assert result.power_losses > 0


@pytest.mark.parametrize(("kinds", "seed"), [(kinds, seed) for kinds, seeds in SEEDS.items() for seed in seeds])
def test_a_run_with_a_kind_of_load_violates_nothing(kinds: str, seed: int, tmp_path: Path) -> None:
    result = play(with_power_losses(draw_plan(seed, kinds.split())), within=tmp_path)
    assert result.violations == []
    assert result.power_losses > 0
    assert all(done for _, done in result.work.values()), result.work
    assert bool(result.branches["letter"]) == (kinds == "conflict")
