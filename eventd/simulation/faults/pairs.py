"""Which kinds of faults have met in a run: some failures need two of them, one soon after the other."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Final

from eventd.simulation.faults.fault import LACKING, FaultKind

MEET_SECONDS: Final = 5.0
"""Two faults meet if at most these seconds are between their begins: the nodes do not rest so soon."""


def pair_name(first: str, second: str) -> str:
    """Return the name of a pair of kinds, whichever of them came first."""
    return " + ".join(sorted((first, second)))


def pairs_on(store: str) -> list[str]:
    """Return the names of all pairs of different kinds of faults that nodes on a store have."""
    kinds = [kind for kind in FaultKind if kind not in LACKING[store]]
    return list(itertools.starmap(pair_name, itertools.combinations(kinds, 2)))


def pairs_that_met(times: Sequence[tuple[float, str]]) -> list[str]:
    """Return the pairs of different kinds that met, each once; `times`: when each fault began, and its kind."""
    met: dict[str, None] = {}
    for (begun, kind), (other_begun, other) in itertools.combinations(times, 2):
        if kind != other and abs(begun - other_begun) <= MEET_SECONDS:
            met[pair_name(kind, other)] = None
    return list(met)
