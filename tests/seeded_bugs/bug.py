"""A seeded bug, and the ways to look for it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from eventd.simulation.plan import SimulationPlan

Patch = Callable[[pytest.MonkeyPatch], None]
"""Puts a bug into the product; its docstring says which."""
ChangePlan = Callable[[SimulationPlan], SimulationPlan]
"""Returns a plan with other faults."""


@dataclass(frozen=True)
class BySimulation:
    """Runs of whole nodes with these `kinds` of load; the bug is found when one violates one of the `invariants`.

    `known` is a seed that finds it. `change`: the faults that it needs, if those of the seed are not enough. `also`:
    what else is wrong, such as a peer that lies; without the bug, it does no harm.
    """

    invariants: tuple[str, ...]
    known: int
    kinds: tuple[str, ...] = ("emit",)
    change: ChangePlan | None = None
    also: Patch | None = None
    most: int = 200
    """The most seeds that it may take."""

    @property
    def conditions(self) -> str:
        """Return the load of the runs, which is less than that of a campaign, and what else the search needs."""
        found = [", ".join(self.kinds)]
        if self.change is not None:
            found.append(f"no faults but {self.change.__name__.removeprefix('with_').replace('_', ' ')}")
        if self.also is not None:
            found.append("a peer that lies")
        return "; ".join(found)


@dataclass(frozen=True)
class ByModel:
    """Bugs of models with these titles: the whole space of each is explored until the invariant breaks."""

    titles: tuple[str, ...]


@dataclass(frozen=True)
class BySuite:
    """A test that fails with the bug, at the lowest layer that has what the bug needs. `needs`: Postgres, or nothing.

    `invariants` says what the test shows.
    """

    test: str
    invariants: tuple[str, ...]
    needs: str = ""


Way = BySimulation | ByModel | BySuite


@dataclass(frozen=True)
class ProductBug:
    """One row of the table. `patch` is None if the bug is only in a model of the product.

    `stands` says why no way finds it: which load or fault is missing, or that the product has a second line of defence.
    """

    number: int
    title: str
    where: str
    patch: Patch | None
    ways: tuple[Way, ...] = ()
    stands: str = ""

    @property
    def name(self) -> str:
        """Return the name of the patch, by which it is planted."""
        return "" if self.patch is None else self.patch.__name__


@contextmanager
def planted(*patches: Patch | None) -> Iterator[None]:
    """Have these bugs in the product for the block."""
    with pytest.MonkeyPatch.context() as patch:
        for bug in patches:
            if bug is not None:
                bug(patch)
        yield


def replace_function(patch: pytest.MonkeyPatch, original: Any, bug: Any) -> None:
    """Replace a function of the product in each of its modules that has imported it, or will."""
    for name, module in [*sys.modules.items()]:
        if name.partition(".")[0] not in ("eventd", "federation"):
            continue
        for known, value in [*vars(module).items()]:
            if value is original:
                patch.setattr(module, known, bug)
