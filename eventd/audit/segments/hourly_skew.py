"""How far the clocks of peers are ahead of a node's, hour by hour."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from eventd.audit.arrays.columns import Numbers, Words
from eventd.audit.arrays.counts import index
from eventd.audit.segments.cells import HOUR


class HourlySkew(NamedTuple):
    """How far a peer's clock is ahead of the node's, in microseconds, by hour since 1970.

    For other hours, the value of the nearest known hour is used.
    """

    hours: tuple[int, ...]
    values: tuple[int, ...]

    def at(self, hours: Numbers) -> Numbers:
        """Return the skew in each of these hours (since 1970); 0 if no hour is known."""
        if not self.hours:
            return np.zeros(len(hours), np.int64)
        known = np.array(self.hours, np.int64)
        after = np.searchsorted(known, hours).clip(0, len(known) - 1)
        before = (after - 1).clip(0)
        nearer = np.where(np.abs(known[before] - hours) < np.abs(known[after] - hours), before, after)
        found: Numbers = np.array(self.values, np.int64)[nearer]
        return found


def skew_of(peer: Words, time: Numbers, skews: Mapping[str, HourlySkew]) -> Numbers:
    """Return how far the clock of each row's peer was ahead at the row's `time`, in microseconds."""
    if not len(time) or not any(skews.get(name, HourlySkew((), ())).hours for name in peer.values):
        return np.zeros(len(time), np.int64)
    hours, places = index(time // HOUR)
    lookup = np.stack([skews.get(name, HourlySkew((), ())).at(hours) for name in peer.values])
    found: Numbers = lookup[peer.codes, places]
    return found
